"""The bound on what one worker process has in flight at its engine: rows and request bytes.

Memory must not grow with the job, and an engine gains nothing from more waiting requests than twice what it
decodes at once. Places are given in the order of asking, so that a large row is not overtaken for ever by
small ones that would still fit.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_SECONDS = 0.5
"""How often somebody who waits may look at something else."""


class BudgetClosed(Exception):
    """The budget was closed while somebody waited for it."""


class Budget:
    """Counts rows and bytes in flight; ``acquire`` blocks while either is used up. Safe from any thread."""

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._rows = 0
        self._bytes = 0
        self._closed = False
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    @property
    def rows(self) -> int:
        """Rows in flight."""
        return self._rows

    def acquire(self, size_bytes: int, meanwhile: Callable[[], bool] | None = None, *, rows: int = 1) -> bool:
        """Take the places of a request's ``rows``; one larger than a whole budget runs alone. Raises ``BudgetClosed``.

        ``meanwhile`` is called now and then while there is none, and its True gives up: then there is no place, and False is
        returned. Whoever looks keeps the turn.
        """
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
        try:
            while not self._take(ticket, (size_bytes, rows), None if meanwhile is None else LOOK_SECONDS):
                if meanwhile is not None and meanwhile():
                    return False
            return True
        finally:
            with self._changed:
                self._queue.remove(ticket)
                self._changed.notify_all()

    def _take(self, ticket: object, wanted: tuple[int, int], wait_seconds: float | None) -> bool:
        size_bytes, rows = wanted
        with self._changed:
            has_turn = self._changed.wait_for(
                lambda: self._closed or (self._queue[0] is ticket and self._fits(size_bytes, rows)),
                wait_seconds,
            )
            if self._closed:
                raise BudgetClosed
            if has_turn:
                self._rows += rows
                self._bytes += size_bytes
            return has_turn

    def release(self, size_bytes: int, *, rows: int = 1) -> None:
        """Give the places of a request back."""
        with self._changed:
            self._rows -= rows
            self._bytes -= size_bytes
            self._changed.notify_all()

    def close(self) -> None:
        """Let everybody who waits, and everybody who comes, fail."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _fits(self, size_bytes: int, rows: int) -> bool:
        return self._rows == 0 or (
            self._rows + rows <= self._rows_max and self._bytes + size_bytes <= self._bytes_max
        )
