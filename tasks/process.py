"""The services of this process: built at its first task, closed at its end.

Not earlier: a prefork worker is a parent that forks, and pools, clients and tokenizers must not be carried over a
fork. The parent runs no task, so it builds none; with threads the one process does.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from celery.signals import worker_process_shutdown, worker_shutdown

from config.wiring import build_services, read_settings
from tasks.dispatch import CeleryDispatcher

if TYPE_CHECKING:
    from anex.services import Services

_lock = threading.Lock()
_services: Services | None = None


def process_services() -> Services:
    """Return the process's services, as the role ``work``. Raises ``SettingsInvalid``."""
    global _services  # noqa: PLW0603 # one a process is what this module is for
    with _lock:
        if _services is None:
            settings = read_settings()
            dispatcher = CeleryDispatcher(settings.require("redis_url"))
            _services = build_services(settings, "work", dispatcher)
        return _services


@worker_process_shutdown.connect  # type: ignore[untyped-decorator] # Celery has no types
@worker_shutdown.connect  # type: ignore[untyped-decorator]
def _close_services(**_: Any) -> None:
    """Close the connections; Postgres and Redis need not find out by themselves."""
    global _services  # noqa: PLW0603 # see above
    with _lock:
        if _services is not None:
            _services.database.close()
            _services.grammar.close()
        _services = None
