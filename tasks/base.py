"""What surrounds every task: log context, duration, and what becomes of an error.

Nothing is retried by Celery. What a task left undone stands in Postgres, and the sweeper rings again.
"""

from __future__ import annotations

import time
from typing import Any

import structlog
from celery import Task
from celery.exceptions import Ignore

from anex.errors import AnexError, LeaseLost

log = structlog.get_logger(__name__)


class CoreTask(Task):  # type: ignore[misc] # Celery has no types
    """A task whose body is one call of the core. Its arguments are ids, by name, and so are log fields.

    A fact of the core (``AnexError``) ends the task with one line in the log; anything else is a fault of the
    program, logged with its traceback. Neither lets the rest of a chain run.
    """

    abstract = True

    def __call__(self, **ids: str) -> Any:
        """Run the body under its log context."""
        with structlog.contextvars.bound_contextvars(task=self.name, **ids):
            started = time.monotonic()
            try:
                result = self.run(**ids)
            except LeaseLost as lost:
                log.info("task_outrun", reason=lost.message, duration_seconds=_since(started))
                raise Ignore from lost
            except AnexError as error:
                log.warning(
                    "task_refused", code=error.code, reason=error.message, duration_seconds=_since(started)
                )
                raise Ignore from error
            except Exception:
                log.exception("task_failed", duration_seconds=_since(started))
                raise
            log.info("task_done", duration_seconds=_since(started))
            return result


def _since(started: float) -> float:
    return round(time.monotonic() - started, 3)
