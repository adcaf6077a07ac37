"""Lines to rows: the one decoder, used where an input is checked and where it is run.

A block is first decoded whole by the fast way of its ``LineFormat``; a block in which anything is out of the
ordinary is read again line by line.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

import msgspec
import numpy as np

from anex.errors import NotBuiltYet, RowsInvalid
from anex.rows.chat import ChatFormat, ChatLine, ChatRow
from anex.rows.envelope import LineT
from anex.rows.faults import RowRefused, describe_line
from anex.rows.jsonl import LINE_MAX_BYTES, LineBlock, OversizeLine, cut_line_blocks
from anex.rows.lines import LineIndex, index_lines
from anex.rows.parse import parse_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from anex.catalog import ModelSpec
    from anex.rows.envelope import LineFormat


@dataclass(frozen=True, slots=True)
class DecodedBlock(Generic[LineT]):
    """The good lines of a block and their places in the file; the others' faults as (line, message)."""

    lines: list[LineT]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    numbers: NDArray[np.int64]
    faults: list[tuple[int, str]]


def line_format(spec: ModelSpec) -> LineFormat[Any]:
    """Return how the lines of a job for this model are read. Raises ``NotBuiltYet``."""
    if spec.kind == "chat":
        return ChatFormat(spec)
    raise NotBuiltYet(f"jobs for model '{spec.id}' ({spec.kind}) are not served by this version yet")


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


def decode_block(block: LineBlock, line_reader: LineFormat[LineT]) -> DecodedBlock[LineT]:
    """Decode all lines of a block."""
    index = index_lines(block)
    lines = _decode_ordinary(block, index, line_reader)
    if lines is None:
        return _decode_carefully(block, index, line_reader)
    offset = block.start_byte
    return DecodedBlock(lines, index.starts + offset, index.ends + offset, index.numbers, [])


def oversize_fault(line: int, line_max_bytes: int) -> tuple[int, str]:
    """Return the fault of a line that is over the size limit."""
    return line, f"the line is over {line_max_bytes >> 20} MiB"


def iterate_rows(
    blocks: Iterable[bytes],
    spec: ModelSpec,
    *,
    start_byte: int,
    first_line: int,
    first_row: int,
    line_max_bytes: int = LINE_MAX_BYTES,
) -> Iterator[ChatRow]:
    """Yield the rows of a byte range of a checked input, as a worker runs them.

    The range begins at ``start_byte``, which is the start of line ``first_line`` and holds row ``first_row``
    (both from 1). Raises ``RowsInvalid`` where a line is not what the check let pass: the range or the object
    is another.
    """
    reader = ChatFormat(spec)
    row_number = first_row
    for block in cut_line_blocks(
        blocks, start_byte=start_byte, first_line=first_line, line_max_bytes=line_max_bytes
    ):
        if isinstance(block, OversizeLine):
            raise RowsInvalid([describe_line(*oversize_fault(block.line, line_max_bytes))])
        decoded = decode_block(block, reader)
        if decoded.faults:
            raise RowsInvalid([describe_line(*fault) for fault in decoded.faults[:1]])
        for number, line in enumerate(decoded.lines, start=row_number):
            yield _make_row(number, line)
        row_number += len(decoded.lines)


def _make_row(row_number: int, line: ChatLine) -> ChatRow:
    body = line.body
    return ChatRow(
        row_number=row_number,
        custom_id=line.custom_id,
        messages=body.messages,
        chat_template_kwargs=body.chat_template_kwargs,
        response_format=body.response_format,
    )


def _decode_ordinary(
    block: LineBlock, index: LineIndex, line_reader: LineFormat[LineT]
) -> list[LineT] | None:
    """Return one line a row, None when the block must be read carefully."""
    if not index.regular or index.maybe_deep:
        return None
    try:
        with collector_off():
            lines = line_reader.decode_lines(block.data)
    except (msgspec.MsgspecError, RecursionError):
        return None
    # decode_lines reads values, not lines: only the count tells of two on one line (see LineIndex).
    return lines if len(lines) == len(index) else None


def _decode_carefully(
    block: LineBlock, index: LineIndex, line_reader: LineFormat[LineT]
) -> DecodedBlock[LineT]:
    lines: list[LineT] = []
    good: list[int] = []
    faults: list[tuple[int, str]] = []
    for place in range(len(index)):
        start, end = int(index.starts[place]), int(index.ends[place])
        try:
            value = parse_line(block.data[start:end], block.start_byte + start)
            if value is not None:
                lines.append(line_reader.read_line(value))
                good.append(place)
        except RowRefused as refusal:
            faults.append((int(index.numbers[place]), refusal.message))
    kept = np.array(good, dtype=np.int64)
    offset = block.start_byte
    return DecodedBlock(
        lines, index.starts[kept] + offset, index.ends[kept] + offset, index.numbers[kept], faults
    )
