"""Endpoints, deliveries and attempts as the database holds them, and which transitions are told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from anex.jobs.transitions import Status

if TYPE_CHECKING:
    from datetime import datetime


class EventType(StrEnum):
    """What an event's envelope names."""

    SUBMITTED = "submitted"
    ESTIMATING = "estimating"
    COST_READY = "cost_ready"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TEST = "test"
    INPUT_READY = "input.ready"
    INPUT_FAILED = "input.failed"


JOB_EVENTS: dict[Status, EventType] = {
    Status.SUBMITTED: EventType.SUBMITTED,
    Status.ESTIMATING: EventType.ESTIMATING,
    Status.COST_READY: EventType.COST_READY,
    Status.IN_PROGRESS: EventType.IN_PROGRESS,
    Status.DONE: EventType.COMPLETED,
    Status.FAILED: EventType.FAILED,
    Status.CANCELLED: EventType.CANCELLED,
}
"""What is told of a job that comes into a state. Of ``cancelling`` and ``finalizing`` nothing is: nobody can act on them."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of ``webhook_endpoints``, without its secrets."""

    org_id: str
    url: str
    created_at: datetime
    previous_until: datetime | None
    """Until when the secret before the present one signs too."""
    failing_since: datetime | None
    last_success_at: datetime | None
    disabled_at: datetime | None
    disabled_reason: str | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery under this process's lease; ``fence`` proves it. ``claimed_at`` is the database's time."""

    event_id: str
    org_id: str
    type: EventType
    job_id: str | None
    input_id: str | None
    occurred_at: datetime
    attempts: int
    fence: int
    claimed_at: datetime
    url: str
    sealed_secrets: tuple[bytes, ...]
    """What signs it, the present secret first."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of one try."""

    duration_milliseconds: int
    status: int | None = None
    answer: str = ""
    error: str | None = None

    @property
    def delivered(self) -> bool:
        """Whether the receiver took the event: 2xx and nothing else."""
        return self.status is not None and 200 <= self.status <= 299  # noqa: PLR2004 - what HTTP calls successful
