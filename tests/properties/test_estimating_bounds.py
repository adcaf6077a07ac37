"""Bounds hold, shares add up, chunks cover each row once."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anex.estimating.bound import StratumOutput, estimate_output_tokens, mean_output_tokens, room_for_output
from anex.estimating.cap import tolerance_rank
from anex.estimating.chunks import (
    OUTPUT_BYTES_PER_TOKEN,
    RESULT_LINE_BYTES,
    SUB_CUT_ROWS,
    ChunkBounds,
    Rates,
    SpanCuts,
    cut_chunks,
)
from anex.estimating.sample import allocate_rows, band_cells, merge_strata


@given(rows=st.integers(1, 3000), data=st.data())
def test_a_rank_keeps_its_promise_and_is_the_smallest_that_does(rows: int, data: st.DataObject) -> None:
    sampled = data.draw(st.integers(1, min(rows, 200)))
    rank = tolerance_rank(sampled, rows)
    below = -(-95 * rows // 100) - 1

    def chance_too_low(rank: int) -> float:
        """P(at least ``rank`` of the sample lie below the 95 % point), by multiplying out the draws."""
        chances = [1.0]
        for drawn in range(sampled):
            grown = [0.0] * (drawn + 2)
            for hits, chance in enumerate(chances):
                low = max(0, below - hits) / (rows - drawn)
                grown[hits] += chance * (1 - low)
                grown[hits + 1] += chance * low
            chances = grown
        return sum(chances[rank:])

    if rank is None:
        assert chance_too_low(sampled) > 0.05 - 1e-9
        return
    assert chance_too_low(rank) <= 0.05 + 1e-9
    assert rank == 1 or chance_too_low(rank - 1) > 0.05 - 1e-9


@given(sizes=st.lists(st.integers(1, 100_000), min_size=1, max_size=160), wanted=st.integers(160, 400))
def test_shares_are_in_proportion_and_at_least_one(sizes: list[int], wanted: int) -> None:
    shares = allocate_rows(sizes, wanted)
    total = sum(sizes)
    assert sum(shares) == min(wanted, total)
    assert all(1 <= share <= size for share, size in zip(shares, sizes, strict=True))
    raised = sum(1 for size in sizes if wanted * size < total)
    for share, size in zip(shares, sizes, strict=True):
        assert share < wanted * size / total + 2 or share == 1
        assert share > wanted * size / total - 1 - raised or share == size


def test_a_sample_smaller_than_the_strata_is_refused() -> None:
    with pytest.raises(ValueError, match="can't take one of each"):
        allocate_rows([5, 5, 5], 2)


@given(counts=st.lists(st.integers(0, 1000), min_size=1, max_size=60))
def test_bands_rise_with_length_and_none_is_overfull(counts: list[int]) -> None:
    bands = band_cells(counts)
    assert all(0 <= before <= after <= 7 for before, after in pairwise([0, *bands]))
    total = sum(counts)
    for band in set(bands):
        members = [count for count, place in zip(counts, bands, strict=True) if place == band]
        assert sum(members) <= total / 8 + max(members)


@given(
    counts=st.integers(1, 12).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(0, 50), min_size=width, max_size=width), min_size=1, max_size=30
        )
    )
)
def test_strata_hold_every_row_and_are_few_enough_for_a_sample(counts: list[list[int]]) -> None:
    places, strata = merge_strata(counts)
    flat = [count for row in counts for count in row]
    assert sum(stratum.rows for stratum in strata) == sum(flat)
    for place, stratum in enumerate(strata):
        assert stratum.rows == sum(n for n, p in zip(flat, places, strict=True) if p == place) > 0
    assert all((place == -1) == (count == 0) for count, place in zip(flat, places, strict=True))
    assert len(strata) <= 160


STRATA = st.lists(
    st.tuples(st.integers(0, 10_000), st.lists(st.integers(0, 600), min_size=1, max_size=40)).map(
        lambda pair: StratumOutput(pair[0] + len(pair[1]), tuple(pair[1]))
    ),
    min_size=1,
    max_size=8,
)


@given(strata=STRATA, cap=st.integers(1, 500))
def test_the_output_bound_lies_between_mean_and_cap(strata: list[StratumOutput], cap: int) -> None:
    rows = sum(stratum.rows for stratum in strata)
    bound = estimate_output_tokens(strata, cap)
    assert rows * mean_output_tokens(strata, cap) <= bound + 1e-6 * rows + 1
    assert bound <= rows * cap


def test_a_census_is_its_own_sum_and_one_row_of_many_says_nothing() -> None:
    assert estimate_output_tokens([StratumOutput(2, (5, 900)), StratumOutput(1, (7,))], 100) == 112
    assert estimate_output_tokens([StratumOutput(50, (5,))], 100) == 5000
    assert mean_output_tokens([], 10) == 0


def test_strata_count_by_their_rows_not_by_their_samples() -> None:
    strata = [StratumOutput(900, (10,) * 10), StratumOutput(100, (110,) * 10)]
    assert mean_output_tokens(strata, 1000) == pytest.approx(20)


def test_the_bound_covers_the_truth_at_least_as_often_as_it_says() -> None:
    generator = random.Random(7)  # noqa: S311 - a reproducible population
    short = [generator.randrange(1, 60) for _ in range(4000)]
    long = [generator.randrange(1, 400) if generator.random() < 0.8 else 400 for _ in range(1000)]
    truth = sum(short) + sum(long)
    missed = 0
    for _ in range(300):
        strata = [
            StratumOutput(4000, tuple(generator.sample(short, 160))),
            StratumOutput(1000, tuple(generator.sample(long, 40))),
        ]
        missed += estimate_output_tokens(strata, 400) < truth
    assert missed <= 15


@given(cap=st.integers(1, 1000), tokens=st.integers(0, 2000))
def test_room_is_never_over_the_cap_nor_the_context(cap: int, tokens: int) -> None:
    room = room_for_output(cap, tokens, 1000)
    assert room == cap or room == max(0, 1000 - tokens) < cap


@st.composite
def make_spans(draw: st.DrawFn) -> list[SpanCuts]:
    spans = []
    row, byte, line = 1, 3, 1
    for rows in draw(st.lists(st.integers(1, 300), min_size=1, max_size=6)):
        cut_bytes, cut_lines = [], []
        for begin in range(0, rows, SUB_CUT_ROWS):
            cut_bytes.append(byte)
            cut_lines.append(line)
            count = min(SUB_CUT_ROWS, rows - begin)
            byte += count * draw(st.integers(50, 20_000))
            line += count
        spans.append(SpanCuts(row, rows, byte - 1, cut_bytes, cut_lines, draw(st.integers(1, 10**6))))
        row += rows
        byte += draw(st.integers(0, 5))
    return spans


@given(
    spans=make_spans(),
    output_tokens=st.floats(0, 2000),
    bounds=st.builds(
        ChunkBounds,
        seconds=st.floats(0.1, 200),
        input_bytes=st.integers(1000, 10**7),
        output_bytes=st.integers(1000, 10**7),
        rows=st.integers(1, 8192),
    ),
)
def test_chunks_cover_each_row_once_in_order_within_their_bounds(
    spans: list[SpanCuts], output_tokens: float, bounds: ChunkBounds
) -> None:
    rates = Rates(5000, 500, output_tokens)
    chunks = cut_chunks(spans, rates, bounds)
    next_row = 1
    for chunk in chunks:
        assert chunk.first_row == next_row
        assert chunk.rows >= 1
        next_row += chunk.rows
    assert next_row == 1 + sum(span.rows for span in spans)
    assert all(before.end_byte <= after.start_byte for before, after in pairwise(chunks))
    assert (chunks[0].start_byte, chunks[-1].end_byte) == (spans[0].cut_bytes[0], spans[-1].end_byte)
    starts = {
        span.first_row + place * SUB_CUT_ROWS: (byte, line)
        for span in spans
        for place, (byte, line) in enumerate(zip(span.cut_bytes, span.cut_lines, strict=True))
    }
    assert all(starts[chunk.first_row] == (chunk.start_byte, chunk.first_line) for chunk in chunks)
    for chunk in chunks:
        sub_cuts = sum(chunk.first_row <= row < chunk.first_row + chunk.rows for row in starts)
        if sub_cuts > 1:
            assert chunk.rows <= bounds.rows
            assert chunk.end_byte - chunk.start_byte <= bounds.input_bytes
            written = chunk.rows * (output_tokens * OUTPUT_BYTES_PER_TOKEN + RESULT_LINE_BYTES)
            assert written <= bounds.output_bytes
            assert chunk.expected_seconds <= bounds.seconds
    expected = sum(span.input_tokens + span.rows * output_tokens for span in spans)
    assert sum(chunk.expected_tokens for chunk in chunks) == pytest.approx(expected, abs=len(chunks))


def test_without_rows_there_are_no_chunks() -> None:
    assert cut_chunks([], Rates(1, 1, 1)) == []
