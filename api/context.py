"""What a request carries with it: the services, who is asking, and the request's id."""

from __future__ import annotations

import re
import secrets
import time
from typing import TYPE_CHECKING

import structlog
from flask import Flask, Response, current_app, g, request

from api.metrics import count_request

if TYPE_CHECKING:
    from anex.orgs.model import Caller
    from anex.services import Services

EXTENSION = "anex"
REQUEST_ID_HEADER = "X-Request-Id"

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")

log = structlog.get_logger(__name__)


def services() -> Services:
    """Return the bag that the application was made with."""
    bag: Services = current_app.extensions[EXTENSION]
    return bag


def caller() -> Caller:
    """Return who is asking; set before the route runs (``api.auth``)."""
    who: Caller = g.caller
    return who


def request_id() -> str:
    """Return the id of the current request."""
    identifier: str = g.request_id
    return identifier


def follow_requests(app: Flask) -> None:
    """Give each request an id, answer with it, count each request and log one event for it."""
    app.before_request(_begin)
    app.after_request(_end)


def _begin() -> None:
    asked = request.headers.get(REQUEST_ID_HEADER, "")
    g.request_id = asked if _SANE_ID.fullmatch(asked) else f"req_{secrets.token_hex(16)}"
    g.begun_at = time.monotonic()
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=g.request_id)


def _end(response: Response) -> Response:
    response.headers[REQUEST_ID_HEADER] = request_id()
    response.headers["Cache-Control"] = "no-store"  # answers hold signed links and states that change
    count_request(request, response)
    route = request.url_rule.rule if request.url_rule is not None else None
    log.info(
        "request_done",
        method=request.method,
        route=route,
        status=response.status_code,
        seconds=round(time.monotonic() - g.begun_at, 4),
    )
    return response
