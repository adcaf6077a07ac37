"""Lines to rows: the one decoder, used where an input is checked and where it is run.

A block is first decoded whole by the fast way of its ``LineFormat``; a block in which anything is out of the
ordinary is read again line by line. A long line is read in a way of its own.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

import msgspec
import numpy as np

from anex.errors import RowsInvalid
from anex.rows.chat import ChatFormat
from anex.rows.decide import DecideFormat
from anex.rows.embed import EmbedFormat
from anex.rows.envelope import LineT, RowT_co
from anex.rows.faults import RowRefused, describe_line
from anex.rows.jsonl import LINE_MAX_BYTES, LineBlock, LongLine, cut_line_blocks
from anex.rows.lines import LineIndex, index_lines, may_be_deep
from anex.rows.long_lines import parse_long_line
from anex.rows.parse import parse_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from anex.catalog import Kind, ModelSpec
    from anex.rows.envelope import LineFormat
    from anex.rows.jsonl import Cut


_FORMATS: dict[Kind, Callable[[ModelSpec], LineFormat[Any, Any]]] = {
    "chat": ChatFormat,
    "embed": EmbedFormat,
    "decide": DecideFormat,
}
_NOWHERE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class DecodedBlock(Generic[LineT]):
    """The good lines of a block and their places in the file; the others' faults as (line, sentence)."""

    lines: list[LineT]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    numbers: NDArray[np.int64]
    faults: list[tuple[int, str]]


def line_format(spec: ModelSpec) -> LineFormat[Any, Any]:
    """Return how the lines of a job for this model are read."""
    return _FORMATS[spec.kind](spec)


@contextmanager
def collector_off() -> Iterator[None]:
    """Hold the garbage collector off: it would walk thousands of fresh objects that can't form cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def decode_cut(
    cut: Cut, reader: LineFormat[LineT, RowT_co], line_max_bytes: int = LINE_MAX_BYTES
) -> DecodedBlock[LineT]:
    """Decode what ``cut_line_blocks`` yields: many lines, or a long one. One over ``line_max_bytes`` is a fault."""
    if isinstance(cut, LineBlock):
        return decode_block(cut, reader)
    if isinstance(cut, LongLine):
        return _decode_long(cut, reader)
    sentence = describe_line(cut.line, f"the line is over {line_max_bytes >> 20} MiB")
    return DecodedBlock([], _NOWHERE, _NOWHERE, _NOWHERE, [(cut.line, sentence)])


def decode_block(block: LineBlock, reader: LineFormat[LineT, RowT_co]) -> DecodedBlock[LineT]:
    """Decode all lines of a block."""
    index = index_lines(block)
    lines = _decode_ordinary(block, index, reader)
    if lines is None:
        return _decode_carefully(block, index, reader)
    offset = block.start_byte
    starts, ends = index.starts + offset, index.ends + offset
    return DecodedBlock(lines, starts, ends, index.numbers, [])


def iterate_rows(
    blocks: Iterable[bytes],
    reader: LineFormat[LineT, RowT_co],
    *,
    start_byte: int,
    first_line: int,
    first_row: int,
    line_max_bytes: int = LINE_MAX_BYTES,
) -> Iterator[RowT_co]:
    """Yield the rows of a byte range of a checked input, as a worker runs them.

    The range begins at ``start_byte``, which is the start of line ``first_line`` and holds row ``first_row``
    (both from 1). Raises ``RowsInvalid`` where a line is not what the check let pass: the range or the object
    is another.
    """
    row_number = first_row
    for cut in cut_line_blocks(
        blocks, start_byte=start_byte, first_line=first_line, line_max_bytes=line_max_bytes
    ):
        decoded = decode_cut(cut, reader, line_max_bytes)
        if decoded.faults:
            raise RowsInvalid([sentence for _, sentence in decoded.faults[:1]])
        for number, line in enumerate(decoded.lines, start=row_number):
            yield reader.make_row(number, line)
        row_number += len(decoded.lines)


def _decode_long(long: LongLine, reader: LineFormat[LineT, RowT_co]) -> DecodedBlock[LineT]:
    try:
        value = parse_long_line(long.data, long.start_byte)
        lines = [] if value is None else [reader.read_line(value)]
    except RowRefused as refusal:
        return DecodedBlock([], _NOWHERE, _NOWHERE, _NOWHERE, [(long.line, refusal.describe(long.line))])
    places = (
        [place] * len(lines) for place in (long.start_byte, long.start_byte + len(long.data), long.line)
    )
    starts, ends, numbers = (np.array(each, dtype=np.int64) for each in places)
    return DecodedBlock(lines, starts, ends, numbers, [])


def _decode_ordinary(
    block: LineBlock, index: LineIndex, reader: LineFormat[LineT, RowT_co]
) -> list[LineT] | None:
    """Return one line a row, None when the block must be read carefully."""
    if not index.regular:
        return None
    try:
        with collector_off():
            lines = reader.decode_lines(block.data)
    except (msgspec.MsgspecError, RecursionError):
        return None
    # decode_lines reads values, not lines: only the count tells of two on one line (see LineIndex).
    if len(lines) != len(index):
        return None
    return None if reader.may_nest(lines) and may_be_deep(block, index) else lines


def _decode_carefully(
    block: LineBlock, index: LineIndex, reader: LineFormat[LineT, RowT_co]
) -> DecodedBlock[LineT]:
    lines: list[LineT] = []
    good: list[int] = []
    faults: list[tuple[int, str]] = []
    for place in range(len(index)):
        start, end = int(index.starts[place]), int(index.ends[place])
        try:
            value = parse_line(bytes(block.data[start:end]), block.start_byte + start)
            if value is not None:
                lines.append(reader.read_line(value))
                good.append(place)
        except RowRefused as refusal:
            number = int(index.numbers[place])
            faults.append((number, refusal.describe(number)))
    kept = np.array(good, dtype=np.int64)
    offset = block.start_byte
    starts, ends = index.starts[kept] + offset, index.ends[kept] + offset
    return DecodedBlock(lines, starts, ends, index.numbers[kept], faults)
