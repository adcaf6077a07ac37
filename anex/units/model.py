"""A GPU unit as the database and its own slots know it, and the signals that tell its slots to stop."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime


class EngineState(StrEnum):
    """What a unit's engine is doing."""

    STARTING = "starting"
    READY = "ready"
    SICK = "sick"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Unit:
    """Who claims: ``id`` is fresh for every start, so that a dead unit's leases are nobody's."""

    id: str
    region: str
    model: str
    model_queue: str
    model_revision: str
    slots: int


class Lease(NamedTuple):
    """What proves a claim: the chunk, and the fence that it was claimed with."""

    job_id: str
    chunk_index: int
    fence: int


@dataclass(frozen=True, slots=True)
class UnitRow:
    """One row of ``units``, for people who look."""

    id: str
    region: str
    model: str
    model_queue: str
    model_revision: str
    slots: int
    engine_state: str
    detail: str
    started_at: datetime
    heartbeat_at: datetime
    claimed_at: datetime | None


@dataclass(slots=True)
class StopSignals:
    """What tells a running chunk to stop. Shared by the threads of one worker."""

    draining: threading.Event = field(default_factory=threading.Event)
    """Feed no more rows; those in flight have ``drain_seconds``."""
    at_once: threading.Event = field(default_factory=threading.Event)
    """Give back without waiting."""
    _stopped: frozenset[str] = frozenset()

    def note_stopped(self, job_ids: frozenset[str]) -> None:
        """Say which of the jobs being run have been stopped; the lease keeper looks every second or so."""
        self._stopped = job_ids

    def is_stopped(self, job_id: str) -> bool:
        """Whether a job was stopped. Of one that is being cancelled, what is finished of a chunk becomes the chunk's part."""
        return job_id in self._stopped


@dataclass(slots=True)
class HeldLeases:
    """The chunks that a worker's slots hold now: only these are extended.

    A chunk that a slot let go of without saying so (the database was away, the claim's answer was lost) must run out, however
    busy the unit is.
    """

    _held: set[Lease] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def holding(self, lease: Lease) -> Iterator[None]:
        """Hold a lease for the length of the block."""
        with self._lock:
            self._held.add(lease)
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(lease)

    def all(self) -> list[Lease]:
        """Return what is held."""
        with self._lock:
            return list(self._held)
