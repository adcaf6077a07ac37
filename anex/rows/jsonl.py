"""Cut a byte stream into blocks of whole lines, in bounded memory.

A line ends at byte 0x0A and nowhere else: U+2028, U+2029 and U+0085 are ordinary characters, and a carriage
return alone is white space. Blocks are what is decoded at once: 256 KiB keeps the decoded rows in the
processor's cache (blocks of 8 MiB took twice the time for the same rows).

Memory: one incoming block, one outgoing block, and at most ``line_max_bytes`` of an unfinished line. A long line is handed on in
the buffer that it was gathered in, never copied; one over the limit is reported as such and passed over without being held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

BLOCK_BYTES = 256 << 10
FAT_BLOCK_FACTOR = 4
"""By so much larger are blocks of long lines: what a block costs by itself is shared by few of them."""
FAT_BLOCK_LINES = 256
LINE_MAX_BYTES = 400 << 20
LONG_LINE_BYTES = 8 << 20
"""A longer line is handed on by itself, to be read another way: decoding it as others are would take several times its size."""

RARE_BYTES = 512
"""With this many bytes between them, on average, newlines are found faster one by one."""
_RARE_SLACK_BYTES = 32 << 10

_NEWLINE = b"\n"
_NEWLINE_CODE = 0x0A
_CARRIAGE_RETURN = b"\r"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Whole lines: ``data`` begins at byte ``start_byte`` of the file and with line ``first_line``.

    Lines count from 1. Only the last block of a stream may lack the final newline. ``data`` is a view of what was read.
    """

    data: memoryview
    start_byte: int
    first_line: int
    newlines: NDArray[np.int64]
    """Where newlines stand in ``data``."""


@dataclass(frozen=True, slots=True)
class LongLine:
    """One line of over ``LONG_LINE_BYTES``, without its end."""

    data: bytearray
    start_byte: int
    line: int


@dataclass(frozen=True, slots=True)
class OversizeLine:
    """A line over the limit, of which nothing was kept."""

    start_byte: int
    line: int


Cut = LineBlock | LongLine | OversizeLine


def cut_line_blocks(
    blocks: Iterable[bytes],
    *,
    start_byte: int = 0,
    first_line: int = 1,
    block_bytes: int = BLOCK_BYTES,
    line_max_bytes: int = LINE_MAX_BYTES,
    long_line_bytes: int = LONG_LINE_BYTES,
) -> Iterator[Cut]:
    """Yield the lines of a stream in order, in blocks of about ``block_bytes``.

    ``blocks`` are the file's bytes from ``start_byte`` on, cut anywhere; ``start_byte`` is the start of line
    ``first_line``. A byte-order mark at byte 0 is dropped; offsets keep counting it.
    """
    cutter = _Cutter(start_byte, first_line, block_bytes, line_max_bytes, long_line_bytes)
    for block in blocks:
        yield from cutter.feed(block)
    yield from cutter.finish()


class _Cutter:
    """The unfinished line between two blocks of a stream. What is whole is looked at where it lies."""

    def __init__(
        self, start_byte: int, first_line: int, block_bytes: int, line_max_bytes: int, long_line_bytes: int
    ) -> None:
        self._start_byte = start_byte
        self._line = first_line
        self._block_bytes = self._reach_bytes = block_bytes
        self._line_max_bytes = line_max_bytes
        self._long_line_bytes = long_line_bytes
        self._pending = bytearray()
        self._skipped_bytes = 0

    def feed(self, block: bytes) -> Iterator[Cut]:
        """Take the next block and yield the lines that it completes."""
        at = 0
        while at < len(block):
            at, found = self._step(block, at, min(at + self._reach_bytes, len(block)))
            if found is not None:
                yield found

    def finish(self) -> Iterator[Cut]:
        """Yield what stands after the last newline."""
        if self._skipped_bytes:
            yield OversizeLine(self._start_byte, self._line)
        elif len(self._pending) > self._long_line_bytes:
            yield self._cut_long()
        elif self._pending:
            yield self._cut(bytes(self._pending), 0, len(self._pending))

    def _step(self, block: bytes, at: int, end: int) -> tuple[int, Cut | None]:
        """Take what lies between ``at`` and ``end``; return where to go on, and what was completed."""
        if self._skipped_bytes or len(self._pending) + end - at > self._line_max_bytes:
            newline = block.find(_NEWLINE, at, end)
            if self._is_oversize((end if newline < 0 else newline) - at):
                return self._pass_over(at, end, newline)
        if len(self._pending) > self._long_line_bytes:
            return self._step_long(block, at, end)
        whole = block.rfind(_NEWLINE, at, end) + 1
        if whole == 0:
            self._pending += block[at:end]
            return end, None
        if not self._pending:
            return whole, self._cut(block, at, whole)
        data = bytes(self._pending) + block[at:whole]
        self._pending.clear()
        return whole, self._cut(data, 0, len(data))

    def _step_long(self, block: bytes, at: int, end: int) -> tuple[int, LongLine | None]:
        """Gather a long line; it is handed on alone, so that no other line has to be moved with it."""
        newline = block.find(_NEWLINE, at, end)
        self._pending += memoryview(block)[at : end if newline < 0 else newline]
        return (end, None) if newline < 0 else (newline + 1, self._cut_long())

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

    def _cut_long(self) -> LongLine:
        data, start_byte, line = self._pending, self._start_byte, self._line
        self._pending = bytearray()
        self._start_byte += len(data) + 1
        self._line += 1
        if start_byte == 0 and data.startswith(_BYTE_ORDER_MARK):
            del data[: len(_BYTE_ORDER_MARK)]
            start_byte = len(_BYTE_ORDER_MARK)
        if data.endswith(_CARRIAGE_RETURN):
            del data[-1:]
        return LongLine(data, start_byte, line)

    def _cut(self, data: bytes, begin: int, end: int) -> LineBlock:
        marked = self._start_byte == 0 and data.startswith(_BYTE_ORDER_MARK)
        skip = len(_BYTE_ORDER_MARK) if marked else 0
        newlines = _find_newlines(data, begin + skip, end)
        block = LineBlock(memoryview(data)[begin + skip : end], self._start_byte + skip, self._line, newlines)
        self._start_byte += end - begin
        self._line += len(block.newlines)
        is_fat = len(block.newlines) < FAT_BLOCK_LINES
        self._reach_bytes = self._block_bytes * (FAT_BLOCK_FACTOR if is_fat else 1)
        return block


def _find_newlines(data: bytes, begin: int, end: int) -> NDArray[np.int64]:
    """Return where newlines stand between two places, counted from the first."""
    places = _find_rare_newlines(data, begin, end)
    if places is None:
        return np.flatnonzero(np.frombuffer(data, np.uint8, end - begin, begin) == _NEWLINE_CODE)
    return np.array(places, dtype=np.int64) - begin


def _find_rare_newlines(data: bytes, begin: int, end: int) -> list[int] | None:
    """Return where newlines stand, jumping from one to the next; None as soon as looking at all bytes at once is faster."""
    places: list[int] = []
    at = data.find(_NEWLINE, begin, end)
    while at >= 0:
        places.append(at)
        if len(places) * RARE_BYTES > at - begin + _RARE_SLACK_BYTES:
            return None
        at = data.find(_NEWLINE, at + 1, end)
    return places
