"""One guarded TLS connection: to judged addresses only, and bounded in time and bytes at each receive.

Where it bites: urllib3 and ``http.client`` read through the socket's ``recv_into``, whatever they are reading
(status, headers, chunk sizes, body), so a limit there holds in the middle of a header line too.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, cast

from urllib3.connection import HTTPSConnection
from urllib3.exceptions import HTTPError
from urllib3.util.response import assert_header_parsing

from anex.outbound_errors import AnswerTooLarge, OutboundFailed, OutboundTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from _typeshed import ReadableBuffer, WriteableBuffer

    from anex.outbound_addresses import Address, HostGuard, Target

HEADER_BYTES_MAX = 64 << 10
"""Of all answers to one request, interim ones included. The count of lines is bounded by ``http.client``, at 100."""

CONNECT_SECONDS_MAX = 10.0
"""For one address; a host's next one has its turn then."""

LOOK_UP_SECONDS = 1.0
"""How long a silent server is waited for at a time, where the caller wants to look up in between."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a call may take in all, and how long the other side may be silent."""

    ends_at: float
    idle_seconds: float
    meanwhile: Callable[[], None] | None = None

    @classmethod
    def begin(
        cls, deadline_seconds: float, idle_seconds: float, meanwhile: Callable[[], None] | None = None
    ) -> Limits:
        """Start the clock."""
        return cls(time.monotonic() + deadline_seconds, idle_seconds, meanwhile)

    def wait_seconds(self) -> float:
        """Return how long one wait may take. Raises ``OutboundTimeout`` when the deadline has passed."""
        left_seconds = self.ends_at - time.monotonic()
        if left_seconds <= 0:
            raise self.passed()
        return min(left_seconds, self.idle_seconds)

    def look_up(self) -> float:
        """Let the caller look up; return how long to wait before the next time. Raises what it raises, too."""
        seconds = self.wait_seconds()
        if self.meanwhile is None:
            return seconds
        self.meanwhile()
        return min(seconds, LOOK_UP_SECONDS)

    def passed(self) -> OutboundTimeout:
        """Return the limit that a socket's time-out means."""
        if time.monotonic() >= self.ends_at:
            return OutboundTimeout("the other server did not finish in the time that it has")
        return OutboundTimeout("the other server was silent for too long")


class GuardedSocket(ssl.SSLSocket):
    """A TLS socket that keeps ``Limits`` and an allowance of bytes; without ``guard`` it receives nothing."""

    _limits: Limits
    _allowance_bytes = 0
    _is_in_headers = True

    def guard(self, limits: Limits) -> None:
        """Begin to receive headers. From here on an end without TLS's own goodbye is an error: it could be a cut."""
        self.suppress_ragged_eofs = False
        self._limits = limits
        self._allowance_bytes = HEADER_BYTES_MAX

    def allow(self, size_bytes: int) -> None:
        """Set how many bytes of the body may come from now on; the last read of a buffer may run over by its size."""
        self._is_in_headers = False
        self._allowance_bytes = size_bytes

    def recv_into(self, buffer: WriteableBuffer, nbytes: int | None = None, flags: int = 0) -> int:
        """Receive within the limits; one TLS record counts as one receive."""
        if self._allowance_bytes <= 0:
            raise AnswerTooLarge("the other server's answer has more headers or framing than we take")
        count = self._wait_for_bytes(buffer, nbytes, flags)
        if count == 0 and self._is_in_headers:
            raise ConnectionError(
                "the answer ended within its headers, which http.client takes for their end"
            )
        self._allowance_bytes -= count
        return count

    def _wait_for_bytes(self, buffer: WriteableBuffer, nbytes: int | None, flags: int) -> int:
        silent_until = time.monotonic() + self._limits.idle_seconds
        while True:
            self._wait_at_most(self._limits.look_up())
            try:
                return super().recv_into(buffer, nbytes, flags)
            except TimeoutError as error:
                if time.monotonic() >= silent_until:
                    raise self._limits.passed() from error

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:
        """Send within the limits; ``sendall`` comes here too."""
        self._wait_at_most(self._limits.wait_seconds())
        try:
            return super().send(data, flags)
        except TimeoutError as error:
            raise self._limits.passed() from error

    def _wait_at_most(self, seconds: float) -> None:
        # Far from the deadline it is the same idle limit again, and setting it would be a system call a record.
        if seconds != self.gettimeout():
            self.settimeout(seconds)


class StrictResponse(http.client.HTTPResponse):
    """An answer whose header lines can all be read.

    The parser stops at a line that is none and drops those behind it, among them perhaps the body's length. urllib3
    would log that, with the URL's query, and go on.
    """

    def begin(self) -> None:
        """Read the headers."""
        super().begin()
        assert_header_parsing(self.headers)


class GuardedConnection(HTTPSConnection):
    """urllib3's connection, resolving and connecting through the guard. No pool, so no proxies and no retries."""

    response_class = StrictResponse

    guarded: GuardedSocket
    """The socket, also when http.client has let go of its own reference to it after ``Connection: close``."""

    def __init__(self, target: Target, hosts: HostGuard, limits: Limits, context: ssl.SSLContext) -> None:
        super().__init__(target.host, target.port, ssl_context=context)
        self._target = target
        self._hosts = hosts
        self._limits = limits

    def _new_conn(self) -> socket.socket:
        addresses = self._hosts.judge(self._target.host, self._limits.wait_seconds())
        return _connect_to_one(addresses, self._target, self._limits)

    def connect(self) -> None:
        """Connect and shake hands; name, SNI and certificate check stay those of the host."""
        super().connect()
        self.guarded = cast("GuardedSocket", self.sock)
        self.guarded.guard(self._limits)


def make_context(ca_file: Path | None) -> ssl.SSLContext:
    """Return a client's TLS context (1.2 or newer, names checked) that makes guarded sockets."""
    context = ssl.create_default_context(cafile=ca_file)
    context.sslsocket_class = GuardedSocket
    return context


def _connect_to_one(addresses: Sequence[Address], target: Target, limits: Limits) -> socket.socket:
    """Return a connection to the first of ``addresses`` that takes one; it has the handshake's time limit."""
    failure: OSError | None = None
    for address in addresses:
        try:
            connection = _connect(address, target.port, min(CONNECT_SECONDS_MAX, limits.wait_seconds()))
        except OSError as error:
            failure = error
            continue
        connection.settimeout(limits.wait_seconds())
        return connection
    if isinstance(failure, TimeoutError):
        raise limits.passed() from failure
    raise OutboundFailed(f"{target.host} takes no connection on port {target.port}") from failure


def _connect(address: Address, port: int, timeout_seconds: float) -> socket.socket:
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_seconds)
        # A request is two small writes, and the second must not wait for the first one's acknowledgement.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.connect((str(address), port))
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def outbound_errors(host: str, limits: Limits) -> Iterator[None]:
    """Turn what ssl, http.client and urllib3 raise into the facts of ``anex.outbound_errors``."""
    try:
        yield
    except TimeoutError as error:
        raise limits.passed() from error
    except ssl.SSLCertVerificationError as error:
        raise OutboundFailed(f"the certificate of {host} is not accepted: {error.verify_message}") from error
    except (OSError, http.client.HTTPException, HTTPError) as error:
        if _is_about_size(error):
            raise AnswerTooLarge(f"{host} sent more headers than we take") from error
        raise OutboundFailed(f"{host} did not give a complete answer over HTTPS") from error


def _is_about_size(error: Exception) -> bool:
    return isinstance(error, http.client.LineTooLong) or str(error).startswith("got more than")
