"""``/healthz``: the process answers. ``/readyz``: everything that requests need answers too, each part named."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from http import HTTPStatus
from typing import TYPE_CHECKING

import structlog
from flask import Blueprint, Response, jsonify

from anex.migrations import require_current
from api.context import services

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from anex.services import Services

PARTS_TIMEOUT_SECONDS = 5.0
"""How long a probe waits for all parts together."""

_ANY_QUEUE = "readiness"
_ANY_KEY = "readiness"

log = structlog.get_logger(__name__)


class _Part:
    """One thing that requests need, and its check: one at a time, in a thread of its own, whatever else hangs.

    Who asks while a check runs gets that check's outcome: probes may come as often as they like, and pile up nothing.
    """

    def __init__(self, name: str, check: Callable[[Services], None]) -> None:
        self.name = name
        self._check = check
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=f"ready-{name}")
        self._lock = threading.Lock()
        self._running: Future[None] | None = None

    def start(self, bag: Services) -> Future[None]:
        """Return the check that runs now, or begin one."""
        with self._lock:
            if self._running is None or self._running.done():
                self._running = self._threads.submit(self._check, bag)
            return self._running


def make_health_blueprint() -> Blueprint:
    """Return the two probes; they need no key. The checks' threads are made at the first ``/readyz``, after any fork."""
    health = Blueprint("health", __name__)
    parts = [_Part(name, check) for name, check in _CHECKS.items()]

    def healthz() -> Response:
        return jsonify({"status": "ok"})

    def readyz() -> Response:
        running = {part.name: part.start(services()) for part in parts}
        wait(running.values(), PARTS_TIMEOUT_SECONDS)
        states = {name: _judge(name, future) for name, future in running.items()}
        is_ready = all(state == "ok" for state in states.values())
        response = jsonify({"status": "ok" if is_ready else "unavailable", "parts": states})
        response.status_code = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return response

    health.add_url_rule("/healthz", view_func=healthz)
    health.add_url_rule("/readyz", view_func=readyz)
    return health


def _judge(name: str, check: Future[None]) -> str:
    """Return ``ok`` or ``unavailable``; why goes to the log: the probe is open to everybody."""
    try:
        check.result(0)
    except Exception as error:  # noqa: BLE001 - whatever stops a check, the part is not ready
        log.warning("not_ready", part=name, reason=str(error) or type(error).__name__)
        return "unavailable"
    return "ok"


def _check_database(bag: Services) -> None:
    with bag.database.transaction() as transaction:
        transaction.execute("SELECT 1")


def _check_schema(bag: Services) -> None:
    with bag.database.transaction() as transaction:
        require_current(transaction.connection)


def _check_broker(bag: Services) -> None:
    bag.dispatcher.run_queue_length(_ANY_QUEUE)


def _check_storage(bag: Services) -> None:
    bag.objects.head(_ANY_KEY)


_CHECKS: dict[str, Callable[[Services], None]] = {
    "database": _check_database,
    "schema": _check_schema,
    "broker": _check_broker,
    "storage": _check_storage,
}
