"""Cut a job's rows into chunks: the pieces that workers claim.

A chunk is about two minutes of the model's measured throughput, so that what a dead worker loses is small and
a barrier is rare, and it is bounded by what a worker holds: input bytes, expected output bytes, rows. Chunks
are runs of sub-cuts (64 rows, less at a span's end), over the borders of spans. A sub-cut is never split: one
that exceeds a bound by itself is a chunk by itself, so the bounds hold for every chunk of more than one
sub-cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SUB_CUT_ROWS = 64
CHUNK_SECONDS = 120.0
CHUNK_INPUT_MAX_BYTES = 64 << 20
CHUNK_OUTPUT_MAX_BYTES = 64 << 20
CHUNK_MAX_ROWS = 8192

OUTPUT_BYTES_PER_TOKEN = 6
"""A result's bytes for a token: English takes 4 to 5, JSON escapes and other scripts more."""
RESULT_LINE_BYTES = 600
"""A result line's bytes beside its text or its vector: the envelope and the body's own fields."""
OUTPUT_BYTES_PER_DIMENSION = 13
"""A result's bytes for a number of a vector: a float32 in its shortest form, and a comma."""


@dataclass(frozen=True, slots=True)
class SpanCuts:
    """A span as it was checked and counted; ``cut_bytes``, ``cut_lines``: where row 0, 64, … begins."""

    first_row: int
    rows: int
    end_byte: int
    cut_bytes: Sequence[int]
    cut_lines: Sequence[int]
    input_tokens: int


@dataclass(frozen=True, slots=True)
class Rates:
    """What a model makes of a row: throughput in tokens a second, and output tokens expected a row."""

    prefill_tokens_per_second: float
    decode_tokens_per_second: float
    output_tokens_per_row: float
    """min(cap, the sample's mean); the cap where nothing was sampled."""
    vector_width: int = 0
    """Of an embedding job."""

    @property
    def output_bytes_per_row(self) -> float:
        """How long a line of the result is expected to be."""
        text_bytes = self.output_tokens_per_row * OUTPUT_BYTES_PER_TOKEN
        return text_bytes + self.vector_width * OUTPUT_BYTES_PER_DIMENSION + RESULT_LINE_BYTES


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """One chunk: the bytes up to ``end_byte``, from row ``first_row`` in line ``first_line`` on."""

    first_row: int
    rows: int
    start_byte: int
    end_byte: int
    first_line: int
    expected_tokens: int
    """Input and output."""
    expected_seconds: float


@dataclass(frozen=True, slots=True)
class ChunkBounds:
    """The bounds of a chunk."""

    seconds: float = CHUNK_SECONDS
    input_bytes: int = CHUNK_INPUT_MAX_BYTES
    output_bytes: int = CHUNK_OUTPUT_MAX_BYTES
    rows: int = CHUNK_MAX_ROWS


@dataclass(slots=True)
class _Piece:
    """A sub-cut, or the sub-cuts of the open chunk added up."""

    first_row: int
    rows: int
    start_byte: int
    end_byte: int
    first_line: int
    input_tokens: float

    def joined(self, after: _Piece) -> _Piece:
        return _Piece(
            self.first_row,
            self.rows + after.rows,
            self.start_byte,
            after.end_byte,
            self.first_line,
            self.input_tokens + after.input_tokens,
        )


def cut_chunks(spans: Sequence[SpanCuts], rates: Rates, bounds: ChunkBounds | None = None) -> list[ChunkPlan]:
    """Return the chunks of ``spans`` (in order, no gaps in rows): each row in exactly one, in order."""
    limits = bounds or ChunkBounds()
    chunks: list[ChunkPlan] = []
    chunk: _Piece | None = None
    for piece in (piece for span in spans for piece in _iterate_sub_cuts(span)):
        if chunk is None:
            chunk = piece
            continue
        longer = chunk.joined(piece)
        if _fits(longer, rates, limits):
            chunk = longer
        else:
            chunks.append(_plan(chunk, rates))
            chunk = piece
    return [*chunks, _plan(chunk, rates)] if chunk is not None else chunks


def _iterate_sub_cuts(span: SpanCuts) -> Iterator[_Piece]:
    """Yield a span's sub-cuts; its input tokens are shared out by bytes."""
    ends = [*span.cut_bytes[1:], span.end_byte]
    span_bytes = span.end_byte - span.cut_bytes[0]
    for place, (start, end, line) in enumerate(zip(span.cut_bytes, ends, span.cut_lines, strict=True)):
        rows = min(SUB_CUT_ROWS, span.rows - place * SUB_CUT_ROWS)
        tokens = span.input_tokens * (end - start) / span_bytes
        yield _Piece(span.first_row + place * SUB_CUT_ROWS, rows, start, end, line, tokens)


def _fits(piece: _Piece, rates: Rates, limits: ChunkBounds) -> bool:
    return (
        piece.rows <= limits.rows
        and piece.end_byte - piece.start_byte <= limits.input_bytes
        and piece.rows * rates.output_bytes_per_row <= limits.output_bytes
        and _seconds(piece, rates) <= limits.seconds
    )


def _seconds(piece: _Piece, rates: Rates) -> float:
    output_tokens = piece.rows * rates.output_tokens_per_row
    return (
        piece.input_tokens / rates.prefill_tokens_per_second + output_tokens / rates.decode_tokens_per_second
    )


def _plan(piece: _Piece, rates: Rates) -> ChunkPlan:
    tokens = piece.input_tokens + piece.rows * rates.output_tokens_per_row
    return ChunkPlan(
        piece.first_row,
        piece.rows,
        piece.start_byte,
        piece.end_byte,
        piece.first_line,
        round(tokens),
        _seconds(piece, rates),
    )
