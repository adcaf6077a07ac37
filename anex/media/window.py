"""Reading a stranger's container within bounds: every reader below takes bytes through a window, and no loop outlasts it.

A reader's loops each take something on every turn, so the bound on takes is the bound on all of them, whatever
counts and sizes a file claims; the bound on reads is that on what is decoded, or asked of a host.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anex.media.model import ByteSource

READ_MAX_BYTES = 64 << 10
READS_MAX = 256
"""Reads of one item: 16 MiB at most, a quarter of a second in the slowest reader. Those of a host's file need a smaller bound."""
TAKES_MAX = 40_000
"""Parts of one item that a reader looks at: a tenth of a second of parsing. The blocks of three minutes of WebM fit in."""

_BLOCKS_KEPT = 4


class Unreached(Exception):
    """What a reader wants lies past the end of the bytes, or past the bounds."""


class Window:
    """The bytes of one item, seen through few reads of bounded size; the last blocks read are kept."""

    def __init__(self, source: ByteSource, reads_max: int = READS_MAX) -> None:
        self.size_bytes = source.size_bytes
        self._source = source
        self._reads_max = reads_max
        self._reads_left = reads_max
        self._takes_left = TAKES_MAX
        self._blocks: deque[tuple[int, bytes]] = deque(maxlen=_BLOCKS_KEPT)

    def again(self) -> Window:
        """Return a fresh window on the same bytes, with a quarter of the reads: for one look at the end after these are spent."""
        return Window(self._source, self._reads_max // 4)

    def take(self, offset: int, count: int) -> bytes:
        """Return exactly the ``count`` bytes from ``offset`` on. Raises ``Unreached``."""
        found = self.peek(offset, count)
        if len(found) < count:
            raise Unreached
        return found

    def peek(self, offset: int, count: int) -> bytes:
        """Return the bytes from ``offset`` on, fewer than ``count`` at the end alone. Raises ``Unreached``."""
        self._takes_left -= 1
        if self._takes_left < 0:
            raise Unreached
        count = min(count, READ_MAX_BYTES, self.size_bytes - offset)
        if offset < 0 or count <= 0:
            return b""
        for start, block in self._blocks:
            if start <= offset and offset + count <= start + len(block):
                return block[offset - start : offset - start + count]
        found = self._read(offset)[:count]
        if len(found) < count:  # the source has more, and doesn't give it: that says nothing about the bytes
            raise Unreached
        return found

    def _read(self, offset: int) -> bytes:
        self._reads_left -= 1
        if self._reads_left < 0:
            raise Unreached
        block = self._source.read(offset, min(READ_MAX_BYTES, self.size_bytes - offset))
        self._blocks.append((offset, block))
        return block
