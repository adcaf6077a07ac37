"""Draw a stratified random sample in one pass over rows whose number and lengths are not known beforehand.

Each row gets a pseudo-random 64-bit priority, a hash of the seed and its row number. Rows fall into cells:
their class (thinking, effort, format) by their length on a scale of four cells an octave. Of each cell the
``capacity`` rows of lowest priority are kept, nothing else. When the pass is over the cells' counts are known
exactly; cells are merged into strata (``anex.estimating.sample``) and of each stratum its allotted number of
rows with the lowest priorities is taken.

What that guarantees. How cells merge depends on the rows' lengths and classes alone, never on priorities, and
a stratum is a union of whole cells. The lowest n of a union are among the lowest n of its parts, so nothing
that is taken was ever thrown away as long as n <= capacity. Given priorities that are independent and
uniform, the lowest n of a stratum are a simple random sample of it without replacement; strata are
independent. With no more than ``capacity`` rows in all, every row is taken. Equal seeds and rows give equal
samples, wherever blocks were cut.

Memory: at most classes * cells * capacity candidates of 32 bytes, plus those of two blocks; in practice some
tens of cells hold rows. Classes beyond ``CLASSES_MAX`` share the last one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from anex.estimating.sample import Stratum, allocate_rows, merge_strata

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLASSES_MAX = 64
LENGTH_CELLS = 128
CELLS_PER_OCTAVE = 4

_POOL_SLACK = 1 << 16
_HIGHEST = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@dataclass(frozen=True, slots=True)
class SampledRow:
    """A row of the sample: number, the line's bytes up to ``end_byte``, and its stratum's place."""

    row_number: int
    start_byte: int
    end_byte: int
    stratum: int


@dataclass(frozen=True, slots=True)
class Sample:
    """The drawn rows in input order, and the strata that they stand for."""

    rows: tuple[SampledRow, ...]
    strata: tuple[Stratum, ...]


@dataclass(slots=True)
class Reservoir:
    """Keeps the candidates of a sample while rows pass by."""

    seed: int
    capacity: int
    _counts: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(CLASSES_MAX * LENGTH_CELLS, dtype=np.int64)
    )
    _thresholds: NDArray[np.uint64] = field(
        default_factory=lambda: np.full(CLASSES_MAX * LENGTH_CELLS, _HIGHEST, dtype=np.uint64)
    )
    _pool: NDArray[np.uint64] = field(default_factory=lambda: np.empty((5, 0), dtype=np.uint64))
    """Columns of candidates: cell, priority, row number, start byte, end byte."""
    _fresh: list[NDArray[np.uint64]] = field(default_factory=list)
    _fresh_count: int = 0

    def add_rows(
        self,
        first_row: int,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        classes: NDArray[np.int64],
    ) -> None:
        """Take the rows from ``first_row`` on: their places in the file, and the places of their classes."""
        cells = _length_cells(ends - starts) + np.minimum(classes, CLASSES_MAX - 1) * LENGTH_CELLS
        np.add.at(self._counts, cells, 1)
        numbers = np.arange(first_row, first_row + len(starts), dtype=np.uint64)
        priorities = hash_rows(self.seed, numbers)
        low = np.flatnonzero(priorities < self._thresholds[cells])
        columns = (cells[low], priorities[low], numbers[low], starts[low], ends[low])
        self._fresh.append(np.stack([column.astype(np.uint64) for column in columns]))
        self._fresh_count += len(low)
        if self._fresh_count > _POOL_SLACK:
            self._compact()

    def draw(self, size: int) -> Sample:
        """Return the sample of min(``size``, rows) rows. ``size`` is at most ``capacity``."""
        self._compact()
        counts = self._counts.reshape(CLASSES_MAX, LENGTH_CELLS)
        classes = 1 + int(np.flatnonzero(counts.any(axis=1)).max(initial=0))
        stratum_of_cell, strata = merge_strata(counts[:classes].tolist())
        shares = allocate_rows([stratum.rows for stratum in strata], size)
        places = np.array(stratum_of_cell, dtype=np.int64)[self._pool[0].astype(np.int64)]
        kept = _rank_in_groups(places, self._pool[1]) < np.array(shares, dtype=np.int64)[places]
        drawn = sorted(zip(*self._pool[2:, kept].tolist(), places[kept].tolist(), strict=True))
        return Sample(tuple(SampledRow(*row) for row in drawn), tuple(strata))

    def _compact(self) -> None:
        """Throw away what can't be drawn any more, and learn below which priority a row still can be."""
        pool = np.concatenate([self._pool, *self._fresh], axis=1)
        self._fresh.clear()
        self._fresh_count = 0
        ranks = _rank_in_groups(pool[0].astype(np.int64), pool[1])
        last = ranks == self.capacity - 1
        self._thresholds[pool[0, last].astype(np.int64)] = pool[1, last]
        self._pool = pool[:, ranks < self.capacity]


def hash_rows(seed: int, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a priority for each row number: SplitMix64's finaliser over a Weyl sequence from the seed.

    Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. Each step is a
    bijection of 64-bit numbers, so no two rows share a priority.
    """
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed & 0xFFFF_FFFF_FFFF_FFFF)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _length_cells(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    cells = (np.log2(lengths) * CELLS_PER_OCTAVE).astype(np.int64)
    return np.minimum(cells, LENGTH_CELLS - 1)


def _rank_in_groups(groups: NDArray[np.int64], priorities: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return each entry's rank, from 0, by priority within its group."""
    order = np.lexsort((priorities, groups))
    ordered = groups[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    lengths = np.diff(np.append(begins, len(ordered)))
    ranks = np.empty(len(groups), dtype=np.int64)
    ranks[order] = np.arange(len(ordered)) - np.repeat(begins, lengths)
    return ranks
