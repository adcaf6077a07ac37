"""Keep the leases of a unit's chunks alive for as long as its engine gets on with them.

One thread for all slots, one UPDATE for all leases. An engine that has rows in flight and makes no progress is killed after the
catalog's ``stall_seconds``: its rows come back as ``EngineGone``, the slots give their chunks back, and the parent starts it
anew. Should even that fail, the leases are no longer extended and run out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from anex.errors import DatabaseUnavailable
from anex.units.store import extend_leases, list_cancelling_jobs
from workers.engine_mark import find_mark, kill_marked

if TYPE_CHECKING:
    import threading

    from workers.slots import Slots

TICK_SECONDS = 1.0
"""How soon a slot hears that its job is being cancelled."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class LeaseKeeper:
    """The state of the keeper: when leases were extended, and when the engine was last seen to move."""

    slots: Slots
    stall_seconds: float
    _progress: int = -1
    _moved_at: float = field(default_factory=time.monotonic)
    _extended_at: float = 0.0

    def run(self, ended: threading.Event) -> None:
        """Tick until ``ended``."""
        while not ended.wait(TICK_SECONDS):
            if not self.slots.is_busy():
                self._moved_at = time.monotonic()
                continue
            try:
                self._tick(time.monotonic())
            except DatabaseUnavailable:
                log.warning("leases_not_extended", unit=self.slots.unit.id)

    def _tick(self, now: float) -> None:
        services = self.slots.services
        if self._has_stalled(now):
            self._kill_engine()
            return
        with services.database.transaction() as transaction:
            self.slots.stop.note_cancelling(list_cancelling_jobs(transaction, self.slots.unit.id))
            if now - self._extended_at >= services.timings.heartbeat_seconds:
                extend_leases(transaction, self.slots.unit.id, services.timings.lease_seconds)
                self._extended_at = now

    def _has_stalled(self, now: float) -> bool:
        progress = self.slots.engine.progress()
        if progress != self._progress or self.slots.engine.in_flight() == 0:
            self._progress = progress
            self._moved_at = now
        return now - self._moved_at >= self.stall_seconds

    def _kill_engine(self) -> None:
        self._moved_at = time.monotonic()
        mark = find_mark(self.slots.socket_path)
        if mark is not None and kill_marked(self.slots.socket_path, mark.generation):
            log.error("engine_stalled", unit=self.slots.unit.id, generation=mark.generation)
