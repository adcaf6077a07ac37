"""A small TLS server on loopback that answers as a test says, byte by byte if need be; certificates by trustme.

    with run_tls_server(tmp_path, lambda exchange: exchange.respond(200, b"hello")) as server:
        outbound = Outbound(server.policy)
        with outbound.request("GET", server.url("/file"), deadline_seconds=10) as answer:
            ...

Each connection is one request. The certificate is for ``localhost`` and for ``names``; ``server.resolve`` gives
the server's address for every name.
"""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import TYPE_CHECKING

import trustme

from anex.outbound import OutboundPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

LOOPBACK = "127.0.0.1"
_PAUSE_SECONDS = 0.02
_GIVE_UP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class TlsRequest:
    """What came: the request line's parts, headers under lower-case names, and the body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Exchange:
    """One request and the connection on which a test's answer is written."""

    def __init__(self, request: TlsRequest, connection: ssl.SSLSocket, stopping: threading.Event) -> None:
        self.request = request
        self._connection = connection
        self._stopping = stopping

    def send(self, data: bytes) -> None:
        """Write raw bytes."""
        self._connection.sendall(data)

    def respond(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Write a whole answer with its length."""
        lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.send("\r\n".join([*lines, "", ""]).encode() + body)

    def drip(self, data: bytes) -> None:
        """Write byte by byte, with a pause after each, until the client leaves or the server stops."""
        for at in range(len(data)):
            self.send(data[at : at + 1])
            if self._stopping.wait(_PAUSE_SECONDS):
                return

    def repeat(self, data: bytes) -> None:
        """Write the same without an end, as fast as the client takes it."""
        while not self._stopping.is_set():
            self.send(data)

    def stay_silent(self) -> None:
        """Write nothing until the server stops."""
        self._stopping.wait(_GIVE_UP_SECONDS)

    def say_goodbye(self) -> None:
        """End the TLS session in order, which a server does that means its answer to end here."""
        self._connection.unwrap()


@dataclass
class TlsServer:
    """A running server, and what it has been asked."""

    port: int
    ca_file: Path
    requests: list[TlsRequest] = field(default_factory=list)
    server_names: list[str | None] = field(default_factory=list)
    """What clients named in the handshake (SNI)."""

    @property
    def policy(self) -> OutboundPolicy:
        """A policy that lets this server be called and trusts its certificate."""
        return OutboundPolicy(allowed_networks=(ip_network("127.0.0.0/8"),), ca_file=self.ca_file)

    def url(self, path: str = "/", host: str = "localhost") -> str:
        """Return a URL that leads here."""
        return f"https://{host}:{self.port}{path}"

    @staticmethod
    def resolve(_host: str) -> Sequence[str]:
        """Give the server's address for every name."""
        return [LOOPBACK]


@contextmanager
def run_tls_server(
    folder: Path, answer: Callable[[Exchange], None], names: Sequence[str] = (), *, reads_bodies: bool = True
) -> Iterator[TlsServer]:
    """Run a server until the context ends; an answer that the client doesn't wait for is no fault.

    With ``reads_bodies=False`` it leaves the body of a request where it is.
    """
    authority = trustme.CA()
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        server = TlsServer(port, folder / f"ca-{port}.pem")
        authority.cert_pem.write_to_path(str(server.ca_file))
        stopping = threading.Event()
        host = _Host(
            server, listener, _make_context(authority, names, server), answer, stopping, reads_bodies
        )
        accepting = threading.Thread(target=host.accept, name="tls-server")
        accepting.start()
        try:
            yield server
        finally:
            stopping.set()
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join(_GIVE_UP_SECONDS)
            host.end()


@contextmanager
def run_mute_server() -> Iterator[int]:
    """Listen without a word, not even a handshake, and yield the port."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        yield listener.getsockname()[1]


def _make_context(authority: trustme.CA, names: Sequence[str], server: TlsServer) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", *names).configure_cert(context)

    def note_name(_: ssl.SSLObject | ssl.SSLSocket, name: str | None, __: ssl.SSLContext) -> None:
        server.server_names.append(name)

    context.sni_callback = note_name
    return context


@dataclass
class _Host:
    """Accepts connections and gives each a thread."""

    server: TlsServer
    listener: socket.socket
    context: ssl.SSLContext
    answer: Callable[[Exchange], None]
    stopping: threading.Event
    reads_bodies: bool
    threads: list[threading.Thread] = field(default_factory=list)
    open: list[ssl.SSLSocket] = field(default_factory=list)

    def accept(self) -> None:
        """Accept until the listener is shut down."""
        with suppress(OSError):
            while not self.stopping.is_set():
                accepted, _ = self.listener.accept()
                accepted.settimeout(_GIVE_UP_SECONDS)
                connection = self.context.wrap_socket(
                    accepted, server_side=True, do_handshake_on_connect=False
                )
                self.open.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,), name="tls-connection")
                self.threads.append(thread)
                thread.start()

    def end(self) -> None:
        """Cut what is open, beneath TLS, and wait for its threads."""
        for connection in self.open:
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(_GIVE_UP_SECONDS)

    def _serve(self, connection: ssl.SSLSocket) -> None:
        with connection, suppress(OSError):
            connection.do_handshake()
            request = _read_request(connection, self.reads_bodies)
            self.server.requests.append(request)
            self.answer(Exchange(request, connection, self.stopping))


def _read_request(connection: ssl.SSLSocket, reads_body: bool) -> TlsRequest:
    """Read a whole request; raises ConnectionError where the client left instead."""
    with connection.makefile("rb") as stream:
        line = stream.readline().decode("ascii")
        if not line:
            raise ConnectionError("the client left")
        method, path, _ = line.split()
        headers = {}
        while line := stream.readline().decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", "0"))) if reads_body else b""
    return TlsRequest(method, path, headers, body)
