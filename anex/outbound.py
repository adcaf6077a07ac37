"""The one door to servers that are not ours: source URLs, webhooks, callbacks and media (rulings 10).

    with outbound.request("GET", url, deadline_seconds=600, redirects_max=3) as answer:
        for block in answer.iterate():
            ...

The deadline is wall-clock time over everything, the caller's own work between two blocks included. Proxies, netrc,
cookies, retries and decoding of bodies don't exist here.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from urllib3 import HTTPHeaderDict

from anex import __version__
from anex.outbound_addresses import HostGuard, Network, Resolve, Target, read_target, system_resolve
from anex.outbound_connection import (
    HEADER_BYTES_MAX,
    GuardedConnection,
    GuardedSocket,
    Limits,
    make_context,
    outbound_errors,
)
from anex.outbound_errors import AnswerTooLarge, OutboundFailed, OutboundRefused, OutboundTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from urllib3 import BaseHTTPResponse

__all__ = [
    "AnswerTooLarge",
    "Outbound",
    "OutboundAnswer",
    "OutboundFailed",
    "OutboundPolicy",
    "OutboundRefused",
    "OutboundTimeout",
    "Resolve",
]

BLOCK_BYTES = 1 << 20
PIECE_BYTES = 1 << 16
"""What one read waits for, and what is lost of a body that is cut."""

CHECK_SECONDS = 1.0
"""For names to resolve while a request to our API waits for the judgement."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_REPEATABLE = frozenset({"GET", "HEAD"})
_KEPT_ELSEWHERE = frozenset({"accept", "accept-language", "if-match", "if-range", "range", "user-agent"})
"""What another origin may see of the caller's headers. Secrets have many names, so the harmless ones are listed."""


@dataclass(frozen=True, slots=True)
class OutboundPolicy:
    """Networks that may be called beside the public internet, and a CA bundle in place of the system's."""

    allowed_networks: tuple[Network, ...] = ()
    ca_file: Path | None = None


class OutboundAnswer:
    """An answer whose headers have come; its body is read once, as it comes, never decoded."""

    def __init__(
        self, response: BaseHTTPResponse, connection: GuardedSocket, target: Target, limits: Limits
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.url = target.url
        self._response = response
        self._connection = connection
        self._host = target.host
        self._limits = limits

    def iterate(self, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Yield the body in blocks of exactly ``block_bytes``, the last one shorter. Memory: two blocks.

        Raises ``OutboundFailed`` when the body ends before it is complete, ``OutboundTimeout``. What had come until
        then is yielded first, but for a piece, so that a caller may go on from there with a range.
        """
        pieces: list[bytes] = []
        left_bytes = block_bytes
        try:
            while piece := self._read_piece(min(left_bytes, PIECE_BYTES)):
                pieces.append(piece)
                left_bytes -= len(piece)
                if left_bytes == 0:
                    yield b"".join(pieces)
                    pieces, left_bytes = [], block_bytes
        except OutboundFailed:
            if pieces:
                yield b"".join(pieces)
            raise
        if pieces:
            yield b"".join(pieces)

    def _read_piece(self, size_bytes: int) -> bytes:
        # Framing that outweighs the data is no way to send a file, and each tiny chunk costs dearly in memory.
        self._connection.allow(2 * size_bytes + HEADER_BYTES_MAX)
        try:
            with outbound_errors(self._host, self._limits):
                return self._response.read(size_bytes)
        except ValueError as error:  # http.client reads a chunk of a negative size as if it were one
            raise OutboundFailed(f"{self._host} did not give a complete answer over HTTPS") from error

    def read(self, bytes_max: int) -> bytes:
        """Return the whole body. Raises ``AnswerTooLarge`` as soon as it is known to exceed ``bytes_max``."""
        body = bytearray()
        for block in self.iterate(min(bytes_max + 1, BLOCK_BYTES)):
            body += block
            if len(body) > bytes_max:
                raise AnswerTooLarge(f"{self._host} sent more than the {bytes_max} bytes that we take")
        return bytes(body)


class Outbound:
    """The guarded HTTPS client. Thread-safe; make it after a fork. Each request has a connection of its own."""

    def __init__(self, policy: OutboundPolicy, *, resolve: Resolve = system_resolve) -> None:
        self._hosts = HostGuard(resolve, policy.allowed_networks)
        self._context = make_context(policy.ca_file)

    def check(self, url: str, timeout_seconds: float = CHECK_SECONDS) -> bool:
        """Raise ``OutboundRefused`` for a URL that would not be called, without calling it; return whether its host is known.

        A name that doesn't resolve, or not in time, passes: it fails when it is called. What passes is judged
        again then, since names change. Without time, no name is looked up.
        """
        target = read_target(url)
        with suppress(OutboundFailed):
            self._hosts.judge(target.host, timeout_seconds)
            return True
        return False

    @contextmanager
    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        deadline_seconds: float,
        idle_seconds: float = 30.0,
        redirects_max: int = 0,
        meanwhile: Callable[[], None] | None = None,
    ) -> Iterator[OutboundAnswer]:
        """Send a request and yield the answer, of whatever status; the connection ends with the context.

        Up to ``redirects_max`` redirects are followed, for GET and HEAD alone, each judged like the first URL;
        with 0 a redirect is an answer like others. ``meanwhile`` is called at each receive, and every second or so of
        silence; what it raises ends the request. Raises ``OutboundRefused``, ``OutboundFailed`` and its kinds.
        """
        if redirects_max and (method not in _REPEATABLE or body is not None):
            raise ValueError(f"redirects of a {method} with a body or an effect are never followed")
        limits = Limits.begin(deadline_seconds, idle_seconds, meanwhile)
        target = read_target(url)
        sent = dict(headers or {})
        for _ in range(redirects_max + 1):
            with self._exchange(method, target, sent, body, limits) as answer:
                location = _find_redirect(answer) if redirects_max else None
                if location is None:
                    yield answer
                    return
            target, sent = _follow(target, location, sent)
        raise OutboundFailed(f"the URL redirects more than {redirects_max} times: use the one it ends at")

    @contextmanager
    def _exchange(
        self, method: str, target: Target, headers: Mapping[str, str], body: bytes | None, limits: Limits
    ) -> Iterator[OutboundAnswer]:
        connection = GuardedConnection(target, self._hosts, limits, self._context)
        try:
            with outbound_errors(target.host, limits):
                connection.request(
                    method,
                    target.path,
                    body,
                    _complete(headers),
                    preload_content=False,
                    decode_content=False,
                )
                response = connection.getresponse()
            try:
                _check_framing(response.headers, target.host)
                yield OutboundAnswer(response, connection.guarded, target, limits)
            finally:
                response.close()
        finally:
            connection.close()


def _complete(headers: Mapping[str, str]) -> Mapping[str, str]:
    complete = HTTPHeaderDict({"User-Agent": f"anex/{__version__}"})
    complete.update({**headers, "Accept-Encoding": "identity", "Connection": "close"})
    return complete


def _check_framing(headers: Mapping[str, str], host: str) -> None:
    """Refuse an answer whose end http.client would not know, and so could not tell from a cut."""
    encoding = headers.get("Transfer-Encoding")
    lengths = {each.strip() for each in headers.get("Content-Length", "0").split(",")}
    is_length = len(lengths) == 1 and all(each.isascii() and each.isdigit() for each in lengths)
    if not is_length or (encoding is not None and encoding.lower() != "chunked"):
        raise OutboundFailed(f"{host} does not say in a usable way where its answer ends")


def _find_redirect(answer: OutboundAnswer) -> str | None:
    return answer.headers.get("Location") if answer.status in _REDIRECTS else None


def _follow(target: Target, location: str, headers: dict[str, str]) -> tuple[Target, dict[str, str]]:
    """Return where a redirect leads, and the headers that may go there."""
    try:
        following = read_target(urljoin(target.url, location))
    except (OutboundRefused, ValueError) as error:
        raise OutboundRefused(f"the URL redirects to one that is not allowed: {error}") from error
    if following.origin != target.origin:
        headers = {name: value for name, value in headers.items() if name.lower() in _KEPT_ELSEWHERE}
    return following, headers
