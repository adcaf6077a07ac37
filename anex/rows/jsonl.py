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

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

BLOCK_BYTES = 256 << 10
LINE_MAX_BYTES = 400 << 20

_NEWLINE = b"\n"
_NEWLINE_CODE = 0x0A
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Whole lines: ``data`` begins at byte ``start_byte`` of the file and with line ``first_line``.

    Lines count from 1. Only the last block of a stream may lack the final newline.
    """

    data: bytes
    start_byte: int
    first_line: int
    newlines: NDArray[np.int64]
    """Where newlines stand in ``data``."""


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
    cutter = _Cutter(start_byte, first_line, block_bytes, line_max_bytes)
    for block in blocks:
        yield from cutter.feed(block)
    yield from cutter.finish()


class _Cutter:
    """The unfinished line between two blocks of a stream. What is whole is copied once, out of the block that it came in."""

    def __init__(self, start_byte: int, first_line: int, block_bytes: int, line_max_bytes: int) -> None:
        self._start_byte = start_byte
        self._line = first_line
        self._block_bytes = block_bytes
        self._line_max_bytes = line_max_bytes
        self._pending = bytearray()
        self._skipped_bytes = 0

    def feed(self, block: bytes) -> Iterator[LineBlock | OversizeLine]:
        """Take the next block and yield the lines that it completes."""
        at = 0
        while at < len(block):
            at, found = self._step(block, at, min(at + self._block_bytes, len(block)))
            if found is not None:
                yield found

    def finish(self) -> Iterator[LineBlock | OversizeLine]:
        """Yield what stands after the last newline."""
        if self._skipped_bytes:
            yield OversizeLine(self._start_byte, self._line)
        elif self._pending:
            yield self._cut(bytes(self._pending))

    def _step(self, block: bytes, at: int, end: int) -> tuple[int, LineBlock | OversizeLine | None]:
        """Take what lies between ``at`` and ``end``; return where to go on, and what was completed."""
        if self._skipped_bytes or len(self._pending) + end - at > self._line_max_bytes:
            newline = block.find(_NEWLINE, at, end)
            if self._is_oversize((end if newline < 0 else newline) - at):
                return self._pass_over(at, end, newline)
        whole = block.rfind(_NEWLINE, at, end) + 1
        if whole == 0:
            self._pending += block[at:end]
            return end, None
        data = bytes(self._pending) + block[at:whole] if self._pending else block[at:whole]
        self._pending.clear()
        return whole, self._cut(data)

    def _is_oversize(self, more_bytes: int) -> bool:
        return self._skipped_bytes > 0 or len(self._pending) + more_bytes > self._line_max_bytes

    def _pass_over(self, at: int, end: int, newline: int) -> tuple[int, OversizeLine | None]:
        """Drop an unfinished line over the limit; report it once it ends."""
        self._skipped_bytes += len(self._pending) + (end if newline < 0 else newline) - at
        self._pending = bytearray()
        if newline < 0:
            return end, None
        oversize = OversizeLine(self._start_byte, self._line)
        self._start_byte += self._skipped_bytes + 1
        self._line += 1
        self._skipped_bytes = 0
        return newline + 1, oversize

    def _cut(self, data: bytes) -> LineBlock:
        marked = self._start_byte == 0 and data.startswith(_BYTE_ORDER_MARK)
        skip = len(_BYTE_ORDER_MARK) if marked else 0
        block = make_block(data[skip:] if skip else data, self._start_byte + skip, self._line)
        self._start_byte += len(data)
        self._line += len(block.newlines)
        return block


def make_block(data: bytes, start_byte: int, first_line: int) -> LineBlock:
    """Return a block of whole lines. Looking at all bytes at once finds newlines faster than ``bytes.count`` counts them."""
    newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE_CODE)
    return LineBlock(data, start_byte, first_line, newlines)
