"""Where the lines of a block lie, found for the whole block at once.

All of it is numpy over the block's bytes: a loop in Python over ten million lines would cost more than
decoding them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from anex.rows.jsonl import find_rare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from anex.rows.jsonl import LineBlock

NESTING_MAX = 128

_LF, _CR, _OPEN_BRACE, _CLOSE_BRACE = 0x0A, 0x0D, 0x7B, 0x7D
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A string, or what begins like one and never ends: a pattern that refused that would be tried again at each quote in it."""


@dataclass(frozen=True, slots=True)
class LineIndex:
    """The lines of one block that hold at least one byte.

    ``starts`` and ``ends`` are offsets into the block, line ends excluded; ``numbers`` are line numbers of
    the file. ``regular`` says that each line begins with ``{`` and ends with ``}``. Inside a JSON value ``}``
    is never followed by ``{``, and no string holds a bare newline; so if a regular block decodes as a series
    of values, no value spans two lines, and as many values as lines means one value a line.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    numbers: NDArray[np.int64]
    regular: bool
    maybe_deep: bool
    """Some line holds more than ``NESTING_MAX`` opening brackets, in strings or not."""

    def __len__(self) -> int:
        return len(self.starts)


def index_lines(block: LineBlock) -> LineIndex:
    """Return where the block's non-empty lines lie; one trailing carriage return is not part of a line."""
    codes = np.frombuffer(block.data, np.uint8)
    newlines = block.newlines
    open_ended = len(codes) > 0 and codes[-1] != _LF
    ends = np.append(newlines, len(codes)) if open_ended else newlines
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1] + 1
    ends = ends - ((ends > starts) & (codes[ends - 1] == _CR))
    numbers = np.arange(block.first_line, block.first_line + len(ends), dtype=np.int64)
    filled = ends > starts
    if not filled.all():
        starts, ends, numbers = starts[filled], ends[filled], numbers[filled]
    regular = bool((codes[starts] == _OPEN_BRACE).all() and (codes[ends - 1] == _CLOSE_BRACE).all())
    return LineIndex(starts, ends, numbers, regular, _may_be_deep(block, codes, starts, ends))


def _may_be_deep(
    block: LineBlock, codes: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> bool:
    """Whether one line holds over ``NESTING_MAX`` opening brackets: a cheap look that no deep line passes."""
    if len(starts) == 0 or int((ends - starts).max()) <= 2 * NESTING_MAX:
        return False
    opening = _find_opening(block.data, codes)
    if len(opening) <= NESTING_MAX:
        return False
    line_of = np.searchsorted(starts, opening, side="right")
    return bool((line_of[NESTING_MAX:] == line_of[:-NESTING_MAX]).any())


def _find_opening(data: bytes, codes: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return where opening brackets stand, in order."""
    braces, brackets = find_rare(data, b"{"), find_rare(data, b"[")
    if braces is None or brackets is None:
        # 0x5B '[' and 0x7B '{' differ in one bit.
        return np.flatnonzero((codes | 0x20) == _OPEN_BRACE)
    return np.array(sorted(braces + brackets), dtype=np.int64)


def nesting_depth(line: bytes) -> int:
    """Return how deep objects and arrays nest in a line, brackets inside strings not counted."""
    codes = np.frombuffer(_STRING.sub(b"", line), np.uint8)
    opening = (codes | 0x20) == _OPEN_BRACE
    closing = (codes | 0x20) == _CLOSE_BRACE
    depths = np.cumsum(opening.astype(np.int64) - closing.astype(np.int64))
    return int(depths.max(initial=0))
