"""Messages between a process and its grammar children: a length of four bytes, then that many bytes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

MESSAGE_MAX_BYTES = 1 << 20
"""Above what a schema of 64 KiB becomes when each of its characters is escaped."""

_LENGTH = struct.Struct("!I")


def pack(message: bytes) -> bytes:
    """Return the message as it is sent."""
    return _LENGTH.pack(len(message)) + message


def receive(connection: socket.socket, before_wait: Callable[[], None] = lambda: None) -> bytes | None:
    """Return the next message, None at the end of the connection; ``before_wait`` may set a timeout, or raise.

    A message over the bound ends the connection too.
    """
    head = _receive_exactly(connection, _LENGTH.size, before_wait)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    return None if length > MESSAGE_MAX_BYTES else _receive_exactly(connection, length, before_wait)


def _receive_exactly(
    connection: socket.socket, size_bytes: int, before_wait: Callable[[], None]
) -> bytes | None:
    received = bytearray()
    while len(received) < size_bytes:
        before_wait()
        piece = connection.recv(size_bytes - len(received))
        if not piece:
            return None
        received += piece
    return bytes(received)
