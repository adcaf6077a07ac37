"""``/healthz``: the process answers. ``/readyz``: everything that requests need answers too, each part named."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
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

PART_TIMEOUT_SECONDS = 5.0

_ANY_QUEUE = "readiness"
_ANY_KEY = "readiness"

log = structlog.get_logger(__name__)


def make_health_blueprint() -> Blueprint:
    """Return the two probes; they need no key. The checks' threads are made at the first ``/readyz``, after any fork."""
    health = Blueprint("health", __name__)
    # A thread for each part: one that hangs holds up its own checks, and no other part's.
    threads = {name: ThreadPoolExecutor(1, thread_name_prefix=f"ready-{name}") for name in _PARTS}

    def healthz() -> Response:
        return jsonify({"status": "ok"})

    def readyz() -> Response:
        bag = services()
        running = {name: threads[name].submit(check, bag) for name, check in _PARTS.items()}
        parts = {name: _judge(name, future) for name, future in running.items()}
        is_ready = all(state == "ok" for state in parts.values())
        response = jsonify({"status": "ok" if is_ready else "unavailable", "parts": parts})
        response.status_code = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return response

    health.add_url_rule("/healthz", view_func=healthz)
    health.add_url_rule("/readyz", view_func=readyz)
    return health


def _judge(name: str, running: Future[None]) -> str:
    """Return ``ok`` or ``unavailable``; why goes to the log: the probe is open to everybody."""
    try:
        running.result(PART_TIMEOUT_SECONDS)
    except Exception as error:  # noqa: BLE001 - whatever stops a check, the part is not ready
        log.warning("not_ready", part=name, reason=str(error) or type(error).__name__)
        return "unavailable"
    return "ok"


def _check_database(bag: Services) -> None:
    with bag.database.transaction() as transaction:
        require_current(transaction.connection)


def _check_broker(bag: Services) -> None:
    bag.dispatcher.run_queue_length(_ANY_QUEUE)


def _check_storage(bag: Services) -> None:
    bag.objects.head(_ANY_KEY)


_PARTS: dict[str, Callable[[Services], None]] = {
    "database": _check_database,
    "broker": _check_broker,
    "storage": _check_storage,
}
