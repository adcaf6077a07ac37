"""The loop of a GPU unit's parent: look at the engine and the workers, start what ended, say how things are, stop when told."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import structlog

from anex.units.model import EngineState
from workers.engine_child import ChildState

if TYPE_CHECKING:
    from anex.services import Services
    from anex.units.model import Unit
    from workers.engine_child import EngineChild
    from workers.unit_record import UnitRecord
    from workers.unit_worker import UnitWorker

TICK_SECONDS = 0.2
LOOKS_WHILE_ALIVE = 12
"""How often the database is told and asked within ``worker_alive_seconds``: a few lost beats don't make a unit look dead."""

IDLE_LOOK_SECONDS = 1.0
STOP_SLACK_SECONDS = 15.0
"""Beyond ``drain_seconds``: for writing checkpoints and ending processes."""

log = structlog.get_logger(__name__)


class Parent:
    """One unit from its start to its end. Its engine's own parent is the thread that calls ``run``."""

    def __init__(
        self,
        services: Services,
        unit: Unit,
        record: UnitRecord,
        engine: EngineChild,
        *,
        run_worker: UnitWorker,
        quick_worker: UnitWorker,
        idle_seconds: float,
    ) -> None:
        self._services = services
        self._unit = unit
        self._record = record
        self._engine = engine
        self._run_worker = run_worker
        self._workers = (run_worker, quick_worker)
        self._idle_seconds = idle_seconds
        self._look_seconds = services.timings.worker_alive_seconds / LOOKS_WHILE_ALIVE
        self._signals: list[signal.Signals] = []
        self._woken = threading.Event()
        self._has_served = False
        self._ready_at: float | None = None
        self._told: tuple[float, EngineState] | None = None
        self._listened_at = 0.0
        self._idle_looked_at = 0.0
        self._worked_at = time.monotonic()

    def run(self) -> int:
        """Serve until told to stop, or idle for ``idle_seconds`` (0: never). Returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        log.info("unit_started", unit=self._unit.id, model=self._unit.model)
        self._record.begin("the engine is about to start")
        self._engine.start()
        try:
            while not self._signals and not self._is_idle():
                self._tick()
                self._woken.wait(TICK_SECONDS)
        finally:
            self._stop()
        return 0

    def _on_signal(self, number: int, _frame: Any) -> None:
        """Note it and no more: whatever this interrupts may hold a lock."""
        self._signals.append(signal.Signals(number))
        self._woken.set()

    def _tick(self) -> None:
        self._watch_engine()
        self._watch_workers()
        self._tell_state()

    def _watch_engine(self) -> None:
        if self._engine.poll() is not ChildState.READY:
            self._ready_at = None
        elif self._ready_at is None:
            self._ready_at = time.monotonic()
            log.info("engine_ready", unit=self._unit.id, generation=self._engine.generation)
            self._record.note_start(self._engine.start_seconds)
            if self._has_served:
                self._ring()
            self._has_served = True

    def _watch_workers(self) -> None:
        """Replace a worker that died or went deaf. None is started before the engine was ready once: no claim without an engine."""
        for worker in self._workers:
            if worker.has_died():
                self._end_worker(worker, "it died")
            elif worker is self._run_worker and self._is_deaf():
                self._end_worker(worker, "chunks are ready and it claims none")
            if self._has_served and worker.is_due():
                worker.start()
                if worker is self._run_worker:
                    self._ring()

    def _end_worker(self, worker: UnitWorker, reason: str) -> None:
        log.error("worker_replaced", unit=self._unit.id, worker=worker.module, reason=reason)
        worker.end()
        if worker is self._run_worker:
            self._record.return_leases()

    def _is_deaf(self) -> bool:
        """Whether the run worker stopped consuming; it has ``worker_alive_seconds`` from its start and the engine's."""
        now = time.monotonic()
        if self._ready_at is None or not self._run_worker.is_running():
            return False
        listens_since = max(self._ready_at, self._run_worker.started_at)
        alive_seconds = self._services.timings.worker_alive_seconds
        if now - listens_since < alive_seconds or now - self._listened_at < self._look_seconds:
            return False
        self._listened_at = now
        return self._record.is_deaf()

    def _ring(self) -> None:
        """Wake every slot: a doorbell that came while there was no engine or no worker was heard by nobody."""
        self._services.dispatcher.ring_model(self._unit.model_queue, self._unit.slots)

    def _tell_state(self) -> None:
        """Tell the database at every change of state and now and then."""
        state = self._engine_state()
        now = time.monotonic()
        if self._told is not None and self._told[1] is state and now - self._told[0] < self._look_seconds:
            return
        self._told = (now, state)
        detail = self._engine.describe()
        self._record.tell(state, detail)
        if state is not EngineState.READY:
            log.info("engine_waited_for", unit=self._unit.id, state=state.value, detail=detail)

    def _engine_state(self) -> EngineState:
        if self._engine.is_sick():
            return EngineState.SICK
        return EngineState.READY if self._ready_at is not None else EngineState.STARTING

    def _is_idle(self) -> bool:
        now = time.monotonic()
        if self._idle_seconds <= 0 or now - self._idle_looked_at < IDLE_LOOK_SECONDS:
            return False
        self._idle_looked_at = now
        if self._record.has_work():
            self._worked_at = now
        return now - self._worked_at >= self._idle_seconds

    def _stop(self) -> None:
        """Drain the workers, then end the engine, then forget the unit."""
        log.info("unit_stopping", unit=self._unit.id, signals=[number.name for number in self._signals])
        self._record.tell(EngineState.DRAINING, "the unit is stopping")
        self._drain_workers()
        for worker in self._workers:
            worker.end()
        self._engine.stop()
        self._record.end()
        self._services.database.close()
        log.info("unit_stopped", unit=self._unit.id)

    def _drain_workers(self) -> None:
        """Tell the workers to drain and wait for their end; a second signal tells them to go at once."""
        limit = time.monotonic() + self._services.timings.drain_seconds + STOP_SLACK_SECONDS
        hurried = False
        self._tell_workers("drain")
        while any(worker.is_running() for worker in self._workers) and time.monotonic() < limit:
            if len(self._signals) > 1 and not hurried:
                hurried = True
                limit = min(limit, time.monotonic() + STOP_SLACK_SECONDS)
                self._tell_workers("now")
            self._woken.clear()
            self._woken.wait(TICK_SECONDS)

    def _tell_workers(self, word: str) -> None:
        for worker in self._workers:
            worker.tell(word)
