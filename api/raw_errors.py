"""What gunicorn answers when a request can't be read as HTTP at all: the contract's shape instead of its page.

Such a request never reaches the application. gunicorn has no setting for these answers; its workers write all of them with one
function, which ``api.gunicorn_conf`` replaces by this one.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

from gunicorn import util

if TYPE_CHECKING:
    import socket

_CODES = {
    408: "request_timeout",
    414: "uri_too_long",
    417: "expectation_failed",
    431: "headers_too_large",
    500: "internal_error",
    501: "not_implemented",
}
_DEFAULT_CODE = "bad_request"


def write_error(sock: socket.socket, status_int: int, reason: str, _message: str) -> None:
    """Answer with ``status_int``. What gunicorn would say quotes the request, so it is left out."""
    sentence = f"the request can't be read as HTTP ({reason.lower()})"
    error = {"code": _CODES.get(status_int, _DEFAULT_CODE), "message": sentence}
    body = json.dumps({"detail": sentence, "error": error}).encode()
    head = (
        f"HTTP/1.1 {status_int} {reason}\r\n"
        "Connection: close\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        f"X-Request-Id: req_{secrets.token_hex(16)}\r\n\r\n"
    )
    util.write_nonblock(sock, head.encode("latin-1") + body)


def use_contract_errors() -> None:
    """Make gunicorn's workers of this process answer so."""
    util.write_error = write_error
