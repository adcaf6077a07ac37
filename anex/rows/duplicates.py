"""Find duplicates among up to ten million custom_ids without keeping the ids.

The first pass keeps 8 bytes an id: its xxh3-64, in an array that is sorted in place at the end (10,000,000
ids: 80 MB; as a set of strings they take over 1 GB). Equal neighbours are suspects. Two different ids share a
hash once in some 370,000 files of that size (n^2 / 2^65), so suspects are looked up in a second pass over the
file, which also gives their lines. At most ``SUSPECTS_MAX`` distinct suspects are looked up; a file with more
duplicates than that is told of some, and the rest is counted.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from anex.rows.faults import FaultList, describe_line, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

SUSPECTS_MAX = 1000
_PIECE = 1 << 18

_hash_id = xxhash.xxh3_64_intdigest


@dataclass(frozen=True, slots=True)
class Suspects:
    """Up to ``SUSPECTS_MAX`` hashes that occurred more than once, and the number of repetitions."""

    hashes: frozenset[int]
    repetitions: int
    """Rows beyond the first of each hash, those of hashes that are not listed included."""
    all_listed: bool


@dataclass(slots=True)
class IdHashes:
    """Collects the hash of each row's custom_id, in one array that grows in place: joining blocks would take twice the memory."""

    _hashes: array[int] = field(default_factory=lambda: array("Q"))

    def add_ids(self, custom_ids: Sequence[str]) -> None:
        """Take the next rows' ids."""
        self._hashes.extend(map(_hash_id, map(str.encode, custom_ids)))

    def find_suspects(self) -> Suspects:
        """Sort what was collected and return the repeated hashes. Nothing is added afterwards."""
        hashes = np.frombuffer(self._hashes, np.uint64)
        hashes.sort()
        repeated = _list_repeated(hashes)
        distinct = np.unique(repeated)
        listed = frozenset(distinct[:SUSPECTS_MAX].tolist())
        return Suspects(listed, len(repeated), len(listed) == len(distinct))


def _list_repeated(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return what equals its neighbour before it, in a sorted array; looked at in pieces, to stay small."""
    found = [
        (piece := hashes[at : at + _PIECE + 1])[1:][piece[1:] == piece[:-1]]
        for at in range(0, len(hashes), _PIECE)
    ]
    return np.concatenate([np.empty(0, np.uint64), *found])


def find_duplicates(suspects: Suspects, ids_with_lines: Iterable[tuple[str, int]], faults: FaultList) -> None:
    """Add a fault for each duplicate, naming both lines. ``ids_with_lines`` are all rows again, in order."""
    first_lines: dict[str, int] = {}
    named = 0
    for custom_id, line in ids_with_lines:
        if _hash_id(custom_id.encode()) not in suspects.hashes:
            continue
        first_line = first_lines.setdefault(custom_id, line)
        if first_line != line:
            named += 1
            faults.add(
                describe_line(line, f"custom_id {quote(custom_id)} was already used in line {first_line}")
            )
    if not suspects.all_listed:
        faults.add_unnamed(max(0, suspects.repetitions - named))
