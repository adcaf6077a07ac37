"""The Celery app: what ``celery --app tasks.app:app worker|beat`` runs.

Importing it reads no settings and connects to nothing: Celery asks for the configuration when it first needs it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from celery import Celery
from celery.signals import setup_logging, worker_ready

from config.log import configure_logging
from config.wiring import read_settings
from tasks.base import CoreTask
from tasks.configuration import make_worker_settings

if TYPE_CHECKING:
    from collections.abc import Callable

app = Celery(
    "anex",
    task_cls=CoreTask,
    include=["tasks.ingest", "tasks.plan", "tasks.run", "tasks.webhooks", "tasks.periodic"],
)
app.add_defaults(lambda: make_worker_settings(read_settings()))


def task(name: str) -> Callable[[Callable[..., None]], Any]:
    """Return the decorator that makes a function the body of the task ``name``; Celery's own has no types."""
    decorator: Callable[[Callable[..., None]], Any] = app.task(name=name)
    return decorator


@setup_logging.connect  # type: ignore[untyped-decorator] # Celery has no types
def _configure_logging(**_: Any) -> None:
    """Log as the other processes do: while this signal has a receiver, Celery sets up no logging of its own."""
    settings = read_settings()
    configure_logging(settings.log_level, settings.log_format)


@worker_ready.connect  # type: ignore[untyped-decorator] # Celery has no types
def _say_ready(**_: Any) -> None:
    """Say so whatever the log level: the one-machine stack waits for this line before it calls the worker ready."""
    sys.stdout.write("worker ready.\n")
    sys.stdout.flush()
