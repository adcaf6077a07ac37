"""One plain HTTP request over a Unix socket, for those who ask an engine now and then and run no event loop."""

from __future__ import annotations

import http.client
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_JSON = {"Content-Type": "application/json"}


def ask(socket_path: Path, path: str, body: bytes | None, timeout_seconds: float) -> tuple[int, bytes]:
    """Send a request (GET, or POST with a JSON body) and return status and body. Raises ``OSError``."""
    connection = _UnixConnection(socket_path, timeout_seconds)
    try:
        connection.request("GET" if body is None else "POST", path, body, _JSON if body else {})
        response = connection.getresponse()
        return response.status, response.read()
    except http.client.HTTPException as fault:
        raise ConnectionError(f"no HTTP answer from {socket_path}: {fault!r}") from fault
    finally:
        connection.close()


def probe_health(socket_path: Path, timeout_seconds: float) -> bool:
    """Whether a server on the socket answers ``/health`` with 200 in time."""
    try:
        return ask(socket_path, "/health", None, timeout_seconds)[0] == http.HTTPStatus.OK
    except OSError:
        return False


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, socket_path: Path, timeout_seconds: float) -> None:
        super().__init__("engine", timeout=timeout_seconds)
        self._socket_path = socket_path

    def connect(self) -> None:
        """Connect to the path; the caller's ``close`` closes the socket, connected or not."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(os.fspath(self._socket_path))
