"""Which strata a sample is drawn from, and how many rows of each.

Rows are stratified by eight bands of input length, since what a model writes grows or shrinks with what it
reads, and by class (thinking, effort, response format) where a class holds over 5 % of the rows; the other
classes are pooled. A stratified sample in proportion to the strata varies less than a simple one by exactly
the variance between strata (Cochran, "Sampling Techniques", 3rd ed. 1977, section 5.6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLE_ROWS = 200
LENGTH_BANDS = 8
CLASS_MIN_PERCENT = 5


@dataclass(frozen=True, slots=True)
class Stratum:
    """A part of the rows. ``class_index`` is None for the classes too small to stand alone."""

    class_index: int | None
    band: int
    rows: int


def merge_strata(counts: Sequence[Sequence[int]]) -> tuple[list[int], list[Stratum]]:
    """Merge cells into strata: ``counts[class][length cell]`` are rows.

    Returns the stratum's place for each cell in row-major order (-1 for an empty cell), and the strata that
    hold rows.
    """
    bands = band_cells([sum(column) for column in zip(*counts, strict=True)])
    large = _large_classes([sum(row) for row in counts])
    places: dict[tuple[int | None, int], int] = {}
    sizes: list[int] = []
    stratum_of_cell: list[int] = []
    for class_index, row in enumerate(counts):
        for cell, rows in enumerate(row):
            if rows == 0:
                stratum_of_cell.append(-1)
                continue
            place = places.setdefault(
                (class_index if class_index in large else None, bands[cell]), len(sizes)
            )
            if place == len(sizes):
                sizes.append(0)
            sizes[place] += rows
            stratum_of_cell.append(place)
    strata = [Stratum(*key, rows=sizes[place]) for key, place in places.items()]
    return stratum_of_cell, strata


def band_cells(counts: Sequence[int], bands: int = LENGTH_BANDS) -> list[int]:
    """Return the band of each length cell: bands hold about equally many rows, and no cell is split.

    A cell goes to the band in which its middle row falls. Where one cell holds over 1/8 of the rows, its
    lengths are within a factor 2^(1/4) anyway and there are fewer bands.
    """
    total = sum(counts)
    before = 0
    result = []
    for count in counts:
        result.append(min(bands - 1, bands * (2 * before + count) // (2 * total)) if total else 0)
        before += count
    return result


def allocate_rows(sizes: Sequence[int], sample_rows: int) -> list[int]:
    """Split a sample over strata of ``sizes`` rows: in proportion, but at least one row of each.

    No share is more than its stratum holds, and the sum is min(``sample_rows``, rows). Quotas are rounded
    down, and what is left goes to the shares farthest below their quota (what was lifted to one row comes
    from those farthest above). Raises ``ValueError`` for a sample of fewer rows than strata.
    """
    total = sum(sizes)
    wanted = min(sample_rows, total)
    if wanted < len(sizes):
        raise ValueError(f"a sample of {wanted} rows can't take one of each of {len(sizes)} strata")
    shares = [max(1, wanted * size // total) for size in sizes]
    while (missing := wanted - sum(shares)) != 0:
        step = 1 if missing > 0 else -1
        movable = [
            place for place, share in enumerate(shares) if (share < sizes[place] if step > 0 else share > 1)
        ]
        # wanted * size - share * total: how far a share lies below its quota, in units of 1/total rows.
        shares[max(movable, key=lambda place: step * (wanted * sizes[place] - shares[place] * total))] += step
    return shares


def _large_classes(class_sizes: Sequence[int]) -> frozenset[int]:
    total = sum(class_sizes)
    return frozenset(
        place for place, size in enumerate(class_sizes) if 100 * size > CLASS_MIN_PERCENT * total
    )
