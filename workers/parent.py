"""The loop of a GPU unit's parent: look at the engine and the workers, start what ended, say how things are, stop when told."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import structlog

from anex.errors import DatabaseUnavailable
from anex.units.model import EngineState
from anex.units.store import delete_unit, has_waiting_work, note_heartbeat, return_leases
from workers.engine_child import ChildState
from workers.slots import slots_arguments
from workers.unit_worker import UnitWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from anex.db import Transaction
    from anex.services import Services
    from anex.units.model import Unit
    from workers.engine_child import EngineChild

TICK_SECONDS = 0.2
HEARTBEAT_SECONDS = 5.0
IDLE_LOOK_SECONDS = 1.0
STOP_SLACK_SECONDS = 15.0
"""Beyond ``drain_seconds``: for writing checkpoints and ending processes."""

log = structlog.get_logger(__name__)


class Parent:
    """One unit from its start to its end."""

    def __init__(
        self,
        services: Services,
        unit: Unit,
        engine: EngineChild,
        socket_path: Path,
        environment: Mapping[str, str],
        *,
        idle_seconds: float,
    ) -> None:
        self._services = services
        self._unit = unit
        self._engine = engine
        self._idle_seconds = idle_seconds
        spec = services.catalog.get(unit.model)
        arguments = slots_arguments(unit, socket_path, spec.engine.max_num_seqs)
        self._run_worker = UnitWorker("workers.run", arguments, environment)
        self._workers = (self._run_worker, UnitWorker("workers.quick", arguments, environment))
        self._stops = 0
        self._woken = threading.Event()
        self._was_ready = False
        self._heartbeat_at = 0.0
        self._said: tuple[EngineState, str] | None = None
        self._idle_looked_at = 0.0
        self._worked_at = time.monotonic()

    def run(self) -> int:
        """Serve until told to stop, or idle for ``idle_seconds`` (0: never)."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        log.info("unit_started", unit=self._unit.id, model=self._unit.model)
        self._engine.start()
        try:
            while not self._stops and not self._is_idle():
                self._tick()
                self._woken.wait(TICK_SECONDS)
        finally:
            self._stop()
        return 0

    def _on_signal(self, number: int, _frame: Any) -> None:
        self._stops += 1
        self._woken.set()
        log.info(
            "unit_told_to_stop", unit=self._unit.id, signal=signal.Signals(number).name, times=self._stops
        )

    def _tick(self) -> None:
        ready = self._engine.poll() is ChildState.READY
        if ready and not self._was_ready:
            self._begin_serving()
        self._was_ready = ready
        for worker in self._workers:
            if worker.has_died():
                self._replace(worker)
        self._say_how_it_is()

    def _begin_serving(self) -> None:
        """Start the workers when the engine is ready for the first time; ring whenever it is ready again."""
        log.info("engine_ready", unit=self._unit.id, generation=self._engine.generation)
        for worker in self._workers:
            if not worker.is_running():
                worker.start()
        self._services.dispatcher.ring_model(self._unit.model_queue, self._unit.slots)

    def _replace(self, worker: UnitWorker) -> None:
        """Start a worker that died anew. What its slots held is nobody's now: it need not wait for the leases to end."""
        log.error("worker_died", unit=self._unit.id, worker=worker.module)
        worker.end()
        if worker is self._run_worker:
            self._tell_database(lambda transaction: return_leases(transaction, self._unit.id))
        worker.start()
        self._services.dispatcher.ring_model(self._unit.model_queue, self._unit.slots)

    def _say_how_it_is(self) -> None:
        states = {
            ChildState.STARTING: EngineState.STARTING,
            ChildState.READY: EngineState.READY,
        }
        state = (
            EngineState.SICK
            if self._engine.is_sick()
            else states.get(self._engine.state, EngineState.STARTING)
        )
        now = time.monotonic()
        if self._said is not None and self._said[0] == state and now - self._heartbeat_at < HEARTBEAT_SECONDS:
            return
        detail = self._engine.describe()
        self._tell_database(lambda transaction: note_heartbeat(transaction, self._unit, state, detail))
        self._heartbeat_at, self._said = now, (state, detail)
        if state is not EngineState.READY:
            log.info("engine_waited_for", unit=self._unit.id, state=state.value, detail=detail)

    def _is_idle(self) -> bool:
        now = time.monotonic()
        if self._idle_seconds <= 0 or now - self._idle_looked_at < IDLE_LOOK_SECONDS:
            return False
        self._idle_looked_at = now
        try:
            with self._services.database.transaction() as transaction:
                waiting = has_waiting_work(transaction, self._unit.model_queue)
        except DatabaseUnavailable:
            waiting = True
        if waiting:
            self._worked_at = now
        return now - self._worked_at >= self._idle_seconds

    def _stop(self) -> None:
        """Drain the workers, then end the engine, then forget the unit. A second signal shortens the wait."""
        self._tell_database(
            lambda transaction: note_heartbeat(
                transaction, self._unit, EngineState.DRAINING, "the unit is stopping"
            )
        )
        told = self._stops
        self._tell_workers("drain" if told < 2 else "now")  # noqa: PLR2004 - the second signal
        limit = time.monotonic() + self._services.timings.drain_seconds + STOP_SLACK_SECONDS
        self._woken.clear()
        while any(worker.is_running() for worker in self._workers) and time.monotonic() < limit:
            self._woken.wait(TICK_SECONDS)
            self._woken.clear()
            if self._stops > max(told, 1):
                told = self._stops
                self._tell_workers("now")
        for worker in self._workers:
            worker.end()
        self._engine.stop()
        self._tell_database(lambda transaction: return_leases(transaction, self._unit.id))
        self._tell_database(lambda transaction: delete_unit(transaction, self._unit.id))
        self._services.database.close()
        log.info("unit_stopped", unit=self._unit.id)

    def _tell_workers(self, word: str) -> None:
        for worker in self._workers:
            worker.tell(word)

    def _tell_database(self, act: Callable[[Transaction], object]) -> None:
        try:
            with self._services.database.transaction() as transaction:
                act(transaction)
        except DatabaseUnavailable:
            log.warning("unit_state_not_told", unit=self._unit.id)
