"""The one-pass sample: fair, seeded, bounded."""

from __future__ import annotations

from collections import Counter

import numpy as np

from anex.rows.reservoir import Reservoir, Sample


def draw(
    lengths: list[int], *, seed: int, size: int, block: int = 1000, classes: list[int] | None = None
) -> Sample:
    reservoir = Reservoir(seed, size)
    ends = np.cumsum(np.array(lengths, dtype=np.int64))
    starts = ends - np.array(lengths, dtype=np.int64)
    for begin in range(0, len(lengths), block):
        part = slice(begin, begin + block)
        kinds = np.array(classes[part] if classes else [0] * len(ends[part]), dtype=np.int64)
        reservoir.add_rows(begin + 1, starts[part], ends[part], kinds)
    return reservoir.draw(size)


def test_every_row_of_a_stratum_is_as_likely_as_the_next() -> None:
    hits = Counter(
        row.row_number for seed in range(1000) for row in draw([100] * 20, seed=seed * 7919, size=5).rows
    )
    # 1,000 draws of 5 in 20: each row is expected 250 times with a standard deviation of 14.
    assert all(abs(hits[row] - 250) < 5 * 14 for row in range(1, 21))


def test_long_rows_are_represented_in_proportion() -> None:
    lengths = [50] * 7000 + [5000] * 2000 + [100_000] * 1000
    sample = draw(lengths, seed=1, size=200)
    by_length = Counter(lengths[row.row_number - 1] for row in sample.rows)
    assert by_length == {50: 140, 5000: 40, 100_000: 20}


def test_a_class_over_five_percent_stands_alone_and_smaller_ones_are_pooled() -> None:
    classes = ([0] * 90 + [1] * 6 + [2] * 2 + [3] * 2) * 20
    sample = draw([100] * 2000, seed=3, size=200, classes=classes)
    assert {(stratum.class_index, stratum.rows) for stratum in sample.strata} == {
        (0, 1800),
        (1, 120),
        (None, 80),
    }
    drawn = Counter(classes[row.row_number - 1] for row in sample.rows)
    assert (drawn[0], drawn[1], drawn[2] + drawn[3]) == (180, 12, 8)


def test_what_was_thrown_away_on_the_way_was_not_needed() -> None:
    lengths = [50 + (n * 7919) % 5000 for n in range(300_000)]
    early = Reservoir(9, 50)
    sample = draw(lengths, seed=9, size=50, block=1000)
    ends = np.cumsum(np.array(lengths, dtype=np.int64))
    early.add_rows(1, ends - np.array(lengths, dtype=np.int64), ends, np.zeros(len(ends), dtype=np.int64))
    assert early.draw(50) == sample


def test_candidates_stay_bounded() -> None:
    reservoir = Reservoir(5, 200)
    for begin in range(0, 2_000_000, 100_000):
        starts = np.arange(begin, begin + 100_000, dtype=np.int64) * 100
        reservoir.add_rows(begin + 1, starts, starts + 100, np.zeros(len(starts), dtype=np.int64))
    assert len(reservoir.draw(200).rows) == 200
    assert reservoir._pool.shape[1] == 200


def test_another_seed_draws_another_sample() -> None:
    assert draw([100] * 1000, seed=1, size=50).rows != draw([100] * 1000, seed=2, size=50).rows
