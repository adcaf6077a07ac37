"""Keep the leases of a unit's chunks alive for as long as its engine gets on with them.

One thread for all slots of a worker, one UPDATE for all leases; the quick worker holds none, and watches the engine all the
same: a sample too must not wait for ever. An engine that has rows in flight and makes no progress is killed after the
catalog's ``stall_seconds``: its rows come back as ``EngineGone``, the slots give their chunks back, and the parent starts it
anew. Should even that fail, the leases are no longer extended and run out.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from anex.errors import DatabaseUnavailable
from anex.units.store import extend_leases, list_stopped_jobs
from workers.engine_mark import find_mark, kill_marked

if TYPE_CHECKING:
    from workers.slots import Slots

TICK_SECONDS = 1.0
"""How soon a slot hears that its job runs no more."""

PAUSE_SECONDS = 5.0
"""After a longer gap between two looks this process stood still, not the engine: it is judged anew from here."""

log = structlog.get_logger(__name__)


def watch_engine(slots: Slots) -> None:
    """Watch a worker's engine, and keep its slots' leases, in a thread of its own for as long as the process lives."""
    keeper = LeaseKeeper(slots)
    threading.Thread(target=keeper.run, args=(threading.Event(),), name="lease-keeper", daemon=True).start()


@dataclass(slots=True)
class LeaseKeeper:
    """The state of the keeper: when leases were extended, and when the engine was last seen to move."""

    slots: Slots
    _progress: int = -1
    _moved_at: float = field(default_factory=time.monotonic)
    _extended_at: float = float("-inf")
    _looked_at: float = field(default_factory=time.monotonic)

    def run(self, ended: threading.Event) -> None:
        """Tick until ``ended``. A worker whose keeper failed would lose every lease unawares: it ends, and is replaced."""
        try:
            while not ended.wait(TICK_SECONDS):
                self._look()
        except BaseException:
            log.exception("lease_keeper_failed", unit=self.slots.unit.id)
            os._exit(1)

    def _look(self) -> None:
        now = time.monotonic()
        paused = now - self._looked_at > PAUSE_SECONDS
        self._looked_at = now
        if paused or not self.slots.is_busy():
            self._moved_at = now
        elif self._has_stalled(now):
            self._kill_engine()
        else:
            self._keep_leases(now)

    def _keep_leases(self, now: float) -> None:
        services, unit_id = self.slots.services, self.slots.unit.id
        try:
            with services.database.transaction() as transaction:
                leases = self.slots.leases.all()
                self.slots.stop.note_stopped(list_stopped_jobs(transaction, leases))
                if now - self._extended_at >= services.timings.heartbeat_seconds:
                    extend_leases(transaction, unit_id, leases, services.timings.lease_seconds)
                    self._extended_at = now
        except DatabaseUnavailable:
            log.warning("leases_not_extended", unit=unit_id)

    def _has_stalled(self, now: float) -> bool:
        progress = self.slots.engine.progress()
        if progress != self._progress or self.slots.engine.in_flight() == 0:
            self._progress = progress
            self._moved_at = now
        stall_seconds = self.slots.services.catalog.get(self.slots.unit.model).engine.stall_seconds
        return now - self._moved_at >= stall_seconds

    def _kill_engine(self) -> None:
        self._moved_at = time.monotonic()
        mark = find_mark(self.slots.socket_path)
        if mark is not None and kill_marked(self.slots.socket_path, mark.generation):
            log.error("engine_stalled", unit=self.slots.unit.id, generation=mark.generation)
