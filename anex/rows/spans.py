"""Cut an input into spans, and spans into sub-cuts, while its rows pass by.

A span is what one message counts tokens of: at most 8 MiB or 8,192 rows, whichever comes first (a single
larger row is a span by itself). Within a span the start of each 64th row is noted; these sub-cuts are what
chunks are later made of, so that ten million rows leave some thousand spans and never a table row each.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from anex.estimating.chunks import SUB_CUT_ROWS

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPAN_MAX_BYTES = 8 << 20
SPAN_MAX_ROWS = 8192


@dataclass(frozen=True, slots=True)
class Span:
    """A run of rows: the bytes up to ``end_byte`` (exclusive), where its last line ends."""

    first_row: int
    rows: int
    first_line: int
    start_byte: int
    end_byte: int
    cut_bytes: array[int]
    """Where row 0, 64, 128, … of the span begins. Ten million rows have 156,000 of these: as objects they would take 6 MB."""
    cut_lines: array[int]
    """The line numbers of those rows; blank lines keep them from following from ``first_line``."""


@dataclass(slots=True)
class SpanCutter:
    """Takes the places of rows block by block and cuts the spans."""

    max_bytes: int = SPAN_MAX_BYTES
    max_rows: int = SPAN_MAX_ROWS
    spans: list[Span] = field(default_factory=list)
    _first_row: int = 1
    _rows: int = 0
    _end_byte: int = 0
    _cut_bytes: array[int] = field(default_factory=lambda: array("q"))
    _cut_lines: array[int] = field(default_factory=lambda: array("q"))

    def add_rows(
        self, starts: NDArray[np.int64], ends: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> None:
        """Take the next rows: where they begin and end in the file, and their lines."""
        done = 0
        while done < len(starts):
            take = self._count_fitting(int(starts[done]), ends[done:])
            if take == 0:
                self.close()
                continue
            self._extend(starts[done : done + take], int(ends[done + take - 1]), numbers[done : done + take])
            done += take

    def close(self) -> None:
        """End the open span."""
        if self._rows == 0:
            return
        cut_bytes, cut_lines = self._cut_bytes, self._cut_lines
        self.spans.append(
            Span(
                self._first_row, self._rows, cut_lines[0], cut_bytes[0], self._end_byte, cut_bytes, cut_lines
            )
        )
        self._first_row += self._rows
        self._rows = 0
        self._cut_bytes, self._cut_lines = array("q"), array("q")

    def _count_fitting(self, next_start: int, ends: NDArray[np.int64]) -> int:
        """Return how many of the next rows the open span can take; an empty span takes at least one."""
        begin = self._cut_bytes[0] if self._rows else next_start
        by_bytes = int(np.searchsorted(ends, begin + self.max_bytes, side="right"))
        fitting = min(by_bytes, self.max_rows - self._rows)
        return max(fitting, 1) if self._rows == 0 else fitting

    def _extend(self, starts: NDArray[np.int64], end_byte: int, numbers: NDArray[np.int64]) -> None:
        first_cut = -self._rows % SUB_CUT_ROWS
        self._cut_bytes.frombytes(starts[first_cut::SUB_CUT_ROWS].tobytes())
        self._cut_lines.frombytes(numbers[first_cut::SUB_CUT_ROWS].tobytes())
        self._rows += len(starts)
        self._end_byte = end_byte
