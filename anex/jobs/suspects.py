"""Rows that may have killed their engine: found by trying ever smaller groups of them alone.

When an engine dies, each row that it had in flight is a suspect. The chunk's other rows are finished first. Then a group of
suspects runs with nothing else in flight: if the engine lives, they are done; if it dies, those that were in flight are halved. A
row that was alone in flight at two deaths is guilty and ends as an error row. So a poison row among n costs its job log2(n) + 2
deaths of the engine and no other row, and what was found is kept with the chunk, whoever claims it next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

GUILTY_DEATHS = 2
UNWITNESSED_DEATHS = 5
"""An engine under which nothing of the chunk was ever finished may die of everything: then a row alone is believed guilty later."""


@dataclass(frozen=True, slots=True)
class Suspects:
    """Rows that were in flight together when an engine died, by number."""

    rows: tuple[int, ...]
    deaths_alone: int = 0
    """Of a single row: how often the engine died with nothing but it in flight."""

    def is_guilty(self, *, others_finished: bool) -> bool:
        """Whether this is one row that is proved to kill engines which finish others."""
        return self.deaths_alone >= (GUILTY_DEATHS if others_finished else UNWITNESSED_DEATHS)

    def narrow(self, in_flight: Sequence[int]) -> list[Suspects]:
        """Return who is suspected after a death at which these rows of the group were alone in flight."""
        if not in_flight:
            return [self]
        if len(in_flight) == 1:
            return [Suspects((in_flight[0],), self.deaths_alone + 1)]
        half = len(in_flight) // 2
        return [Suspects(tuple(in_flight[:half])), Suspects(tuple(in_flight[half:]))]


def load_suspects(stored: Sequence[Sequence[Any]] | None) -> list[Suspects]:
    """Return the groups that ``store_suspects`` gave."""
    return [Suspects(tuple(rows), deaths_alone) for rows, deaths_alone in stored or ()]


def store_suspects(groups: Sequence[Suspects]) -> list[list[Any]] | None:
    """Return groups as JSON has them, None for none."""
    return [[list(group.rows), group.deaths_alone] for group in groups] or None
