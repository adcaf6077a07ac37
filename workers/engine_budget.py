"""The bound on what one worker process has in flight at its engine: rows and request bytes.

Memory must not grow with the job, and an engine gains nothing from more waiting requests than twice what it
decodes at once. Places are given in the order of asking, so that a large row is not overtaken for ever by
small ones that would still fit.
"""

from __future__ import annotations

import threading
from collections import deque


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

    def acquire(self, size_bytes: int) -> None:
        """Take a place; a row larger than the whole byte budget runs alone. Raises ``BudgetClosed``."""
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                self._changed.wait_for(
                    lambda: self._closed or (self._queue[0] is ticket and self._fits(size_bytes))
                )
                if self._closed:
                    raise BudgetClosed
                self._rows += 1
                self._bytes += size_bytes
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()

    def release(self, size_bytes: int) -> None:
        """Give a place back."""
        with self._changed:
            self._rows -= 1
            self._bytes -= size_bytes
            self._changed.notify_all()

    def close(self) -> None:
        """Let everybody who waits, and everybody who comes, fail."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _fits(self, size_bytes: int) -> bool:
        return self._rows == 0 or (
            self._rows < self._rows_max and self._bytes + size_bytes <= self._bytes_max
        )
