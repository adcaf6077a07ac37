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
        self._alone: int | None = None
        """The thread that has the engine to itself."""
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

        def take() -> None:
            self._rows += rows
            self._bytes += size_bytes

        return self._wait_for_turn(lambda: self._fits(size_bytes, rows), take, meanwhile)

    def acquire_alone(self, meanwhile: Callable[[], bool] | None = None) -> bool:
        """Wait until nothing is in flight, then let nobody but this thread in until ``release_alone``; otherwise as ``acquire``."""
        me = threading.get_ident()

        def take() -> None:
            self._alone = me

        return self._wait_for_turn(lambda: self._rows == 0, take, meanwhile)

    def release_alone(self) -> None:
        """Let everybody in again."""
        with self._changed:
            self._alone = None
            self._changed.notify_all()

    def _wait_for_turn(
        self, fits: Callable[[], bool], take: Callable[[], None], meanwhile: Callable[[], bool] | None
    ) -> bool:
        """Take what is wanted once it is this caller's turn and it fits; False when ``meanwhile`` gave up."""
        me, ticket = threading.get_ident(), object()

        def has_turn() -> bool:
            is_first = self._alone == me or (self._alone is None and self._queue[0] is ticket)
            return self._closed or (is_first and fits())

        with self._changed:
            self._queue.append(ticket)
        try:
            while not self._try_turn(has_turn, take, None if meanwhile is None else LOOK_SECONDS):
                if meanwhile is not None and meanwhile():
                    return False
            return True
        finally:
            with self._changed:
                self._queue.remove(ticket)
                self._changed.notify_all()

    def _try_turn(
        self, has_turn: Callable[[], bool], take: Callable[[], None], wait_seconds: float | None
    ) -> bool:
        with self._changed:
            found = self._changed.wait_for(has_turn, wait_seconds)
            if self._closed:
                raise BudgetClosed
            if found:
                take()
            return found

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
