"""Sources for copies: TLS servers that answer like a store that knows ranges, or as badly as a test says."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from anex.inputs.settle import get_input
from anex.outbound import Outbound
from tests.support.tls_server import run_tls_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from anex.inputs.model import Input
    from tests.support.spine import Spine
    from tests.support.tls_server import Exchange, TlsServer

    Answer = Callable[[Exchange], None]

ETAG = '"one"'


class Serve(Protocol):
    """Runs a source while its context lasts; ``timings`` and what else is named change the spine's timings and limits."""

    def __call__(self, answer: Answer, **changes: Any) -> AbstractContextManager[TlsServer]:
        """Run it."""


def make_serve(spine: Spine, folder: Path) -> Serve:
    """Return what runs a source that the spine's copies reach."""

    @contextmanager
    def run(answer: Answer, **changes: Any) -> Iterator[TlsServer]:
        with run_tls_server(folder, answer) as server:
            outbound = Outbound(server.policy)
            timings = {"copy_retry_seconds": 0.01, **changes.pop("timings", {})}
            services = spine.services
            made: dict[str, Any] = {
                "outbound": outbound,
                "timings": replace(services.timings, **timings),
                "limits": replace(services.limits, **changes),
            }
            spine.services = replace(services, **made)
            spine.api = replace(spine.api, **made)
            yield server

    return run


def say(exchange: Exchange, status: int, headers: Mapping[str, object], body: bytes = b"") -> None:
    """Write an answer with these headers and no others; returning cuts the connection, without TLS's goodbye."""
    lines = [f"HTTP/1.1 {int(status)} Said", *(f"{name}: {value}" for name, value in headers.items())]
    exchange.send("\r\n".join([*lines, "", ""]).encode() + body)


def chunked(body: bytes, *, ends: bool = True) -> bytes:
    """Return a body as chunks; without ``ends`` the last one, which says that it was the last, is missing."""
    pieces = [body[at : at + 50_000] for at in range(0, len(body), 50_000)]
    sent = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return sent + b"0\r\n\r\n" if ends else sent


def read_start(exchange: Exchange) -> int:
    """Return from which byte on the rest is asked for."""
    return int(exchange.request.headers["range"].removeprefix("bytes=").partition("-")[0])


def serve_ranges(
    exchange: Exchange, data: bytes, *, cut_at: int | None = None, headers: Mapping[str, str] | None = None
) -> None:
    """Answer like a store that knows ranges; with ``cut_at`` break off behind that many bytes of the body."""
    asked = exchange.request.headers.get("range")
    told = {"ETag": ETAG, **(headers or {})}
    if asked is None:
        status, body = HTTPStatus.OK, data
    else:
        start, _, end = asked.removeprefix("bytes=").partition("-")
        body = data[int(start) : int(end) + 1 if end else len(data)]
        status = HTTPStatus.PARTIAL_CONTENT
        told["Content-Range"] = f"bytes {start}-{int(start) + len(body) - 1}/{len(data)}"
    say(exchange, status, {**told, "Content-Length": len(body)}, body[:cut_at])


def is_copy(exchange: Exchange) -> bool:
    """Whether this is the copy, not the look at the source's size."""
    return exchange.request.headers.get("range") != "bytes=0-0"


def in_turn(*answers: Answer) -> Answer:
    """Answer the copy's requests one after the other, the last one for ever; the look at the size finds the source busy."""
    waiting = list(answers)

    def answer(exchange: Exchange) -> None:
        if not is_copy(exchange):
            exchange.respond(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        (waiting.pop(0) if len(waiting) > 1 else waiting[0])(exchange)

    return answer


def look(spine: Spine, input_id: str) -> Input:
    """Read an input as its owner does."""
    return get_input(spine.api, spine.caller, input_id)


def read_object(spine: Spine, found: Input) -> bytes:
    """Return what the bucket holds of an input."""
    return b"".join(spine.services.objects.stream(found.object_key, 0, found.size_bytes or 0, None))


def read_columns(spine: Spine, input_id: str) -> dict[str, Any]:
    """Return an input's row."""
    with spine.services.database.transaction() as transaction:
        row = transaction.fetch_dict("SELECT * FROM inputs WHERE id = %(id)s", {"id": input_id})
    assert row is not None
    return row
