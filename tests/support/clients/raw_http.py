"""HTTP as it goes over the wire: requests written byte by byte, and the form that a browser sends."""

from __future__ import annotations

import http.client
import json
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIMEOUT_SECONDS = 30.0
BOUNDARY = "----WebKitFormBoundaryq3Zt0aWcYb7LkD2v"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, read to its end."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        """Return the body's value."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a form; with a file name it is a file."""

    name: str
    value: bytes
    filename: str | None = None
    content_type: str = "application/octet-stream"

    def encode(self) -> bytes:
        """Return the part as browsers write it."""
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{self.name}"'
        if self.filename is not None:
            head += f'; filename="{self.filename}"\r\nContent-Type: {self.content_type}'
        return head.encode() + b"\r\n\r\n" + self.value + b"\r\n"


def send_browser_form(url: str, parts: Sequence[Part], origin: str) -> Answer:
    """POST a form from a page of another origin."""
    body = b"".join(part.encode() for part in parts) + f"--{BOUNDARY}--\r\n".encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}", "Origin": origin}
    return send(url, "POST", body, headers)


def send(url: str, method: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
    """Send one request; an iterable body goes in chunks."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, body, dict(headers or {}))
        return _read(connection.getresponse())
    finally:
        connection.close()


class Wire:
    """A connection that says exactly what it is told."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def say(self, *lines: str, body: bytes = b"") -> None:
        """Send a request's head, or a part of a body where there are no lines."""
        head = "".join(f"{line}\r\n" for line in (*lines, "")) if lines else ""
        self._socket.sendall(head.encode() + body)

    def hear(self, method: str = "GET") -> Answer:
        """Read one answer to its end."""
        answer = http.client.HTTPResponse(self._socket, method=method)
        answer.begin()
        return _read(answer)

    def hear_line(self) -> bytes:
        """Read up to the end of a head without a body, such as ``100 Continue``."""
        found = b""
        while not found.endswith(b"\r\n\r\n"):
            found += self._socket.recv(1)
        return found

    def hear_end(self) -> bytes:
        """Read until the other side closes."""
        found = b""
        while block := self._socket.recv(65_536):
            found += block
        return found


def _read(answer: http.client.HTTPResponse) -> Answer:
    return Answer(answer.status, answer.headers, answer.read())
