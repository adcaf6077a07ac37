"""Time as a value: Python code takes a ``Clock``, SQL reads ``anex_now()``; nothing else reads the time of day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time of day."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        return datetime.now(UTC)


@dataclass
class FixedClock:
    """A clock that stands where it was put."""

    at: datetime

    def now(self) -> datetime:
        """Return the time it was set to."""
        return self.at
