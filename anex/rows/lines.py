"""Where the lines of a block lie, found for the whole block at once.

All of it is numpy over the block's bytes: a loop in Python over ten million lines would cost more than
decoding them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from anex.rows.jsonl import LineBlock

NESTING_MAX = 128

_LF, _CR, _OPEN_BRACE, _CLOSE_BRACE = 0x0A, 0x0D, 0x7B, 0x7D


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
    return LineIndex(starts, ends, numbers, regular)


def may_be_deep(block: LineBlock, index: LineIndex) -> bool:
    """Whether one line holds over ``NESTING_MAX`` opening brackets, in strings or not: no deep line passes this look."""
    if len(index) == 0 or int((index.ends - index.starts).max()) <= 2 * NESTING_MAX:
        return False
    # 0x5B '[' and 0x7B '{' differ in one bit.
    opening = np.flatnonzero((np.frombuffer(block.data, np.uint8) | 0x20) == _OPEN_BRACE)
    line_of = np.searchsorted(index.starts, opening, side="right")
    return bool((line_of[NESTING_MAX:] == line_of[:-NESTING_MAX]).any())


def nests_deeper(value: Any, levels: int = NESTING_MAX) -> bool:
    """Whether objects and arrays of a parsed value nest deeper than ``levels``; what a duplicate key replaced is not there."""
    layer = [value]
    for _ in range(levels):
        inner = (each.values() if isinstance(each, dict) else each for each in layer)
        layer = [each for values in inner for each in values if isinstance(each, dict | list)]
    return bool(layer)
