"""Cut a byte stream into blocks of whole lines, in bounded memory.

A line ends at byte 0x0A and nowhere else: U+2028, U+2029 and U+0085 are ordinary characters, and a carriage
return alone is white space. Blocks are what is decoded at once: 256 KiB keeps the decoded rows in the
processor's cache (blocks of 8 MiB took twice the time for the same rows).

Memory: one incoming block, one outgoing block, and at most ``line_max_bytes`` of an unfinished line. A longer
line is reported as such and passed over without being held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BLOCK_BYTES = 256 << 10
LINE_MAX_BYTES = 400 << 20

_NEWLINE = b"\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Whole lines: ``data`` begins at byte ``start_byte`` of the file and with line ``first_line``.

    Lines count from 1. Only the last block of a stream may lack the final newline.
    """

    data: bytes
    start_byte: int
    first_line: int


@dataclass(frozen=True, slots=True)
class OversizeLine:
    """A line over the limit, of which nothing was kept."""

    start_byte: int
    line: int


def cut_line_blocks(
    blocks: Iterable[bytes],
    *,
    start_byte: int = 0,
    first_line: int = 1,
    block_bytes: int = BLOCK_BYTES,
    line_max_bytes: int = LINE_MAX_BYTES,
) -> Iterator[LineBlock | OversizeLine]:
    """Yield the lines of a stream in order, in blocks of about ``block_bytes``.

    ``blocks`` are the file's bytes from ``start_byte`` on, cut anywhere; ``start_byte`` is the start of line
    ``first_line``. A byte-order mark at byte 0 is dropped; offsets keep counting it.
    """
    cutter = _Cutter(start_byte, first_line, line_max_bytes)
    for block in blocks:
        for begin in range(0, len(block), block_bytes):
            yield from cutter.feed(block[begin : begin + block_bytes])
    yield from cutter.finish()


class _Cutter:
    """The unfinished line between two pieces of a stream."""

    def __init__(self, start_byte: int, first_line: int, line_max_bytes: int) -> None:
        self._start_byte = start_byte
        self._line = first_line
        self._line_max_bytes = line_max_bytes
        self._pending = bytearray()
        self._skipped_bytes = 0

    def feed(self, piece: bytes) -> Iterator[LineBlock | OversizeLine]:
        """Take the next piece and yield the lines that it completes."""
        if self._skipped_bytes or len(self._pending) + len(piece) > self._line_max_bytes:
            piece, oversize = self._pass_over(piece)
            if oversize is not None:
                yield oversize
        end = piece.rfind(_NEWLINE) + 1
        if end:
            data = bytes(self._pending) + piece[:end] if self._pending else piece[:end]
            self._pending.clear()
            yield self._block(data)
        self._pending += piece[end:] if end else piece

    def finish(self) -> Iterator[LineBlock | OversizeLine]:
        """Yield what stands after the last newline."""
        if self._skipped_bytes:
            yield OversizeLine(self._start_byte, self._line)
        elif self._pending:
            yield self._block(bytes(self._pending))

    def _pass_over(self, piece: bytes) -> tuple[bytes, OversizeLine | None]:
        """Drop an unfinished line over the limit; return what follows it, and the line once it ends."""
        newline = piece.find(_NEWLINE)
        tail_bytes = len(piece) if newline < 0 else newline
        if not self._skipped_bytes and len(self._pending) + tail_bytes <= self._line_max_bytes:
            return piece, None
        self._skipped_bytes += len(self._pending) + tail_bytes
        self._pending = bytearray()
        if newline < 0:
            return b"", None
        oversize = OversizeLine(self._start_byte, self._line)
        self._start_byte += self._skipped_bytes + 1
        self._line += 1
        self._skipped_bytes = 0
        return piece[newline + 1 :], oversize

    def _block(self, data: bytes) -> LineBlock:
        marked = self._start_byte == 0 and data.startswith(_BYTE_ORDER_MARK)
        skip = len(_BYTE_ORDER_MARK) if marked else 0
        block = LineBlock(data[skip:] if skip else data, self._start_byte + skip, self._line)
        self._start_byte += len(data)
        self._line += data.count(_NEWLINE)
        return block
