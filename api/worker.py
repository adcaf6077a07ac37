"""gunicorn's threaded worker, but for one thing: a thread gets a request when all of it is here, and never waits for a client.

gunicorn reads a request in the thread that answers it, for as long as the client likes: as many connections that stop half-way as
there are threads shut out everybody else. Here the loop that accepts connections also collects what they send. A request has
``request_seconds`` to arrive, an answer ``SEND_SECONDS`` to be taken. A connection that ends is waited for in the loop too, where
gunicorn would stand still for two seconds.

Everything is bounded: connections (``worker_connections``), bytes held, time. Who comes when the worker is full takes the place of
the connection that has been idle for longest.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from contextlib import suppress
from fcntl import ioctl
from functools import partial
from selectors import EVENT_READ
from struct import Struct
from termios import TIOCOUTQ
from typing import TYPE_CHECKING, Any

from gunicorn.http import get_parser
from gunicorn.workers.gthread import TConn, ThreadWorker

from api.raw_errors import write_error
from api.request_frame import HeadTooLarge, RequestFrame

if TYPE_CHECKING:
    from concurrent.futures import Future

SEND_BUFFER_BYTES = 256 << 10
"""What the kernel keeps for a client that reads slowly: any answer (the largest is the document, of some 100 KiB), so that a thread
waits only for who asks again before it has read."""

SEND_SECONDS = 5.0
"""How long a thread waits for that."""

LINGER_SECONDS = 2.0
"""For a client to read the last answer and close. Closed at once, what it still sends would reset the answer away."""

HELD_BYTES_MAX = 64 << 20
"""Of all requests that are not answered yet. Beyond it the oldest that is still arriving is dropped."""

UNREAD_BYTES_MAX = 64 << 10
"""Of earlier answers, when a client asks again: beyond it the next answer is its last, so that none waits for room."""

RECEIVE_BYTES = 64 << 10

PARSED_BYTES = 8 << 10
"""What gunicorn's parser is given at a time: for each chunk of a chunked body it copies all of it that it has not read."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_INT = Struct("i")


class Connection(TConn):  # type: ignore[misc] # the library ships no types
    """A connection, and what it has sent so far."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.data_ready = True  # gunicorn's thread would wait for it
        self.frame = RequestFrame(self.cfg, self.client)
        self.held_bytes = 0
        self.is_ending = False


class BufferingWorker(ThreadWorker):  # type: ignore[misc] # see above
    """Collects requests in its loop. Only ``handle`` and ``handle_request`` run in other threads."""

    request_seconds = 30.0
    """For a request to arrive, from its first byte on, or from the connection's begin."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ending: deque[Connection] = deque()
        self._held_bytes = 0

    def accept(self, listener: socket.socket) -> None:
        """Take a connection, and make room for it where there is none."""
        try:
            sock, client = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.nr_conns += 1
        while self.nr_conns >= self.worker_connections:
            idle = next(filter(None, (self._ending, self.keepalived_conns, self.pending_conns)), None)
            if idle is None:
                break
            self._drop(idle[0])
        self.enqueue_req(Connection(self.cfg, sock, client, listener.getsockname()))

    def enqueue_req(self, conn: Connection) -> None:
        """Wait for a request: of a new connection, or the next one of a kept one."""
        conn.timeout = time.monotonic() + self.request_seconds
        self._watch(conn, self.pending_conns)
        self._look(conn)

    def on_client_socket_readable(self, conn: Connection, client: socket.socket) -> None:
        """Go on with a kept connection, unless it was dropped while this event waited for its turn."""
        if client.fileno() >= 0:
            super().on_client_socket_readable(conn, client)

    def on_pending_socket_readable(self, conn: Connection, client: socket.socket) -> None:
        """Take what a client sends."""
        if client.fileno() < 0:  # dropped while this event waited for its turn
            return
        try:
            data = client.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(conn)
        elif not conn.is_ending:
            conn.frame.received += data
            conn.held_bytes += len(data)
            self._held_bytes += len(data)
            self._look(conn)
            while self._held_bytes > HELD_BYTES_MAX and self.pending_conns:
                self._drop(self.pending_conns[0])

    def _look(self, conn: Connection) -> None:
        """Hand a request that is whole to a thread."""
        try:
            request = conn.frame.take()
        except HeadTooLarge:
            self._refuse(conn, 431, "Request Header Fields Too Large")
            return
        if request is not None:
            self._leave(conn)
            pieces = (request[at : at + PARSED_BYTES] for at in range(0, len(request), PARSED_BYTES))
            conn.parser = get_parser(self.cfg, pieces, conn.client)
            super().enqueue_req(conn)
        elif conn.frame.awaits_continue:
            conn.frame.awaits_continue = False
            with suppress(OSError):
                conn.sock.send(_CONTINUE)

    def handle_request(self, req: Any, conn: Connection) -> bool:
        """Answer a request whose client may take only so long to read the answer."""
        req._expected_100_continue = False  # noqa: SLF001 - it was told already, or the body is not wanted
        if conn.frame.is_last or _count_unread(conn.sock) > UNREAD_BYTES_MAX:
            req.force_close()
        conn.sock.settimeout(SEND_SECONDS)
        try:
            keeps: bool = super().handle_request(req, conn)
        except TimeoutError:
            self.log.info("a client did not take its answer in time")
            return False
        return keeps

    def finish_request(self, conn: Connection, fs: Future[Any]) -> None:
        """Keep a connection that was answered, or end it."""
        self._held_bytes -= conn.held_bytes - len(conn.frame.received)
        conn.held_bytes = len(conn.frame.received)
        if fs.cancelled() or fs.exception() is not None or not fs.result():
            self._end(conn)
        elif conn.frame.received:
            self.enqueue_req(conn)
        else:
            super().finish_request(conn, fs)

    def murder_pending(self) -> None:
        """End what took too long to ask, and close what took too long to go."""
        now = time.monotonic()
        while self.pending_conns and self.pending_conns[0].timeout <= now:
            conn = self.pending_conns[0]
            if conn.frame.received:
                self._refuse(conn, 408, "Request Timeout")
            else:
                self._drop(conn)
        while self._ending and self._ending[0].timeout <= now:
            self._drop(self._ending[0])

    def _cap_keepalive(self, deadline: float) -> None:
        """Wait for requests of kept and of new connections only so long; called when the worker stops."""
        super()._cap_keepalive(deadline)
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, deadline)

    def _refuse(self, conn: Connection, status: int, reason: str) -> None:
        self._leave(conn)
        with suppress(OSError):
            write_error(conn.sock, status, reason, "")
        self._end(conn)

    def _end(self, conn: Connection) -> None:
        """Say that no more comes, and wait for the client to close."""
        conn.is_ending = True
        conn.timeout = time.monotonic() + LINGER_SECONDS
        try:
            conn.sock.shutdown(socket.SHUT_WR)
            self._watch(conn, self._ending)
        except (OSError, ValueError):  # the client is gone, or gunicorn closed the socket itself
            self._drop(conn)

    def _watch(self, conn: Connection, waiting: deque[Connection]) -> None:
        conn.sock.settimeout(0)
        self.poller.register(conn.sock, EVENT_READ, partial(self.on_pending_socket_readable, conn))
        waiting.append(conn)

    def _leave(self, conn: Connection) -> None:
        """Stop waiting for a connection, in whatever way it is waited for."""
        for waiting in (self.pending_conns, self.keepalived_conns, self._ending):
            with suppress(ValueError):
                waiting.remove(conn)
        with suppress(OSError, KeyError, ValueError):
            self.poller.unregister(conn.sock)

    def _drop(self, conn: Connection) -> None:
        self._leave(conn)
        self._held_bytes -= conn.held_bytes
        self.nr_conns -= 1
        conn.close()


def _count_unread(sock: socket.socket) -> int:
    """Return how many bytes of what was sent the other side has not taken (``SIOCOUTQ``, tcp(7))."""
    (count,) = _INT.unpack(ioctl(sock, TIOCOUTQ, bytes(_INT.size)))
    return int(count)
