"""The plan of a join: which stretches of the sources become which part of the joined object.

S3 joins on the server by ``UploadPartCopy``; every part but the last must have 5 MiB, none may be over 5
GiB, and there are at most 10,000 (https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html).
Sources that are too small for a part are merged: read, and uploaded together as one part. A run of small
ones before a large one borrows the large one's head, so that only a few MiB go through our memory, never a
large source.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PART_MIN_BYTES = 5 << 20
PART_MAX_BYTES = 5 << 30
PARTS_MAX = 10_000
OBJECT_MAX_BYTES = 5 << 40


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes ``start`` (included) to ``end`` (excluded) of the source at ``index``."""

    index: int
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        """Length of the stretch."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class JoinedPart:
    """One part of the joined object: the store can copy a single stretch; several are merged by us."""

    stretches: tuple[Stretch, ...]

    @property
    def size_bytes(self) -> int:
        """Length of the part."""
        return sum(stretch.size_bytes for stretch in self.stretches)

    @property
    def is_copy(self) -> bool:
        """Whether the store can make the part without us."""
        return len(self.stretches) == 1


def plan_join(sizes: Sequence[int]) -> list[JoinedPart]:
    """Plan the join of sources of these sizes (bytes, 0 allowed) in order.

    All parts but the last have at least m bytes, a merged one less than 3 m, where m is 5 MiB, doubled as
    often as it takes to need at most 10,000 parts. Raises ``ValueError`` over 5 TiB, the largest object
    there is.
    """
    if sum(sizes) > OBJECT_MAX_BYTES:
        raise ValueError(f"{sum(sizes)} bytes are over the largest object of {OBJECT_MAX_BYTES}")
    minimum_bytes = PART_MIN_BYTES
    while True:
        parts = _Planner(minimum_bytes).plan(sizes)
        if len(parts) <= PARTS_MAX:
            return parts
        minimum_bytes *= 2


class _Planner:
    """One walk over the sources; ``_run`` holds the stretches that wait to be merged."""

    def __init__(self, minimum_bytes: int) -> None:
        self._minimum_bytes = minimum_bytes
        self._parts: list[JoinedPart] = []
        self._run: list[Stretch] = []
        self._run_bytes = 0

    def plan(self, sizes: Sequence[int]) -> list[JoinedPart]:
        for index, size_bytes in enumerate(sizes):
            if size_bytes:
                self._add(Stretch(index, 0, size_bytes))
        self._flush()
        return self._parts

    def _add(self, source: Stretch) -> None:
        if self._run:
            source = self._fill_run(source)
        if source.size_bytes >= self._minimum_bytes:
            self._copy(source)
        elif source.size_bytes:
            self._extend(source)

    def _fill_run(self, source: Stretch) -> Stretch:
        """Give the run what it lacks from ``source``, or all of it where the rest would be too small."""
        lacking_bytes = self._minimum_bytes - self._run_bytes
        cut = (
            source.start + lacking_bytes
            if source.size_bytes - lacking_bytes >= self._minimum_bytes
            else source.end
        )
        self._extend(Stretch(source.index, source.start, cut))
        return Stretch(source.index, cut, source.end)

    def _extend(self, stretch: Stretch) -> None:
        self._run.append(stretch)
        self._run_bytes += stretch.size_bytes
        if self._run_bytes >= self._minimum_bytes:
            self._flush()

    def _flush(self) -> None:
        if self._run:
            self._parts.append(JoinedPart(tuple(self._run)))
        self._run, self._run_bytes = [], 0

    def _copy(self, source: Stretch) -> None:
        """Copy a source whole, or in even pieces where it is over the largest part."""
        pieces = -(-source.size_bytes // PART_MAX_BYTES)
        cuts = [source.start + source.size_bytes * piece // pieces for piece in range(pieces + 1)]
        self._parts.extend(JoinedPart((Stretch(source.index, start, end),)) for start, end in pairwise(cuts))
