"""The legal moves of a job. ``job_moves`` in the database is the same table; a test compares the two."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """What a job is doing, as the API tells it."""

    SUBMITTED = "submitted"
    ESTIMATING = "estimating"
    COST_READY = "cost_ready"
    IN_PROGRESS = "in_progress"
    CANCELLING = "cancelling"
    FINALIZING = "finalizing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL = frozenset({Status.DONE, Status.FAILED, Status.CANCELLED})
AWAITING_APPROVAL = frozenset({Status.SUBMITTED, Status.ESTIMATING, Status.COST_READY})
RUNNING = frozenset({Status.IN_PROGRESS, Status.CANCELLING, Status.FINALIZING})
"""The states in which a job's hold is open."""

MOVES: dict[Status, frozenset[Status]] = {
    Status.SUBMITTED: frozenset({Status.ESTIMATING, Status.COST_READY, Status.FAILED, Status.CANCELLED}),
    Status.ESTIMATING: frozenset({Status.COST_READY, Status.FAILED, Status.CANCELLED}),
    Status.COST_READY: frozenset({Status.IN_PROGRESS, Status.CANCELLED}),
    Status.IN_PROGRESS: frozenset({Status.FINALIZING, Status.CANCELLING, Status.CANCELLED, Status.FAILED}),
    Status.CANCELLING: frozenset({Status.CANCELLED, Status.FAILED}),
    Status.FINALIZING: frozenset({Status.DONE, Status.FAILED}),
    Status.DONE: frozenset(),
    Status.FAILED: frozenset(),
    Status.CANCELLED: frozenset(),
}


def sources_of(target: Status) -> list[str]:
    """Return the states from which a job may move to ``target``; the guard of that UPDATE."""
    return [source.value for source, targets in MOVES.items() if target in targets]
