"""Feed the rows of one chunk to the engine and gather what becomes of them.

One slot's thread does both: it asks for rows in input order as fast as the engine's budget admits them, and between two requests
takes the answers that came. Answers arrive in any order; each is matched to its row by its future, never by place.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

from anex.errors import EngineGone, WaitEnded
from anex.jobs.asking import Settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from anex.jobs.asking import Asked, Asker, Prepared
    from anex.rows.result import RowOutcome
    from anex.services import Engine, EngineAnswer, Services
    from anex.units.model import StopSignals

POLL_SECONDS = 0.5
"""How often a slot that waits for answers looks whether it shall stop."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Pending:
    """A request that the engine works on."""

    asked: Asked
    future: Future[EngineAnswer]


@dataclass(slots=True)
class ChunkRows:
    """The rows of a claimed chunk: those finished, and those in flight."""

    services: Services
    engine: Engine
    asker: Asker
    job_id: str
    stop: StopSignals
    outcomes: dict[int, RowOutcome]
    """By row number; filled with a checkpoint's rows to begin with."""
    write_checkpoint: Callable[[], None]
    """Called every ``checkpoint_seconds`` of work."""
    engine_died: bool = False
    stopped: bool = False
    _due: float = 0.0
    _pending: dict[int, _Pending] = field(default_factory=dict)
    """By the first of a request's rows."""
    _again: deque[Asked] = field(default_factory=deque)
    """Rows that were asked for together and have to be asked for one by one."""
    _answered: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)

    def run(self, rows: Iterable[Any]) -> None:
        """Run every row that is not finished yet, until all are, the engine dies, or the unit or the job shall stop."""
        self._due = time.monotonic() + self.services.timings.checkpoint_seconds
        try:
            prepared = self.asker.ask(row for row in rows if row.row_number not in self.outcomes)
            for each in prepared:
                if self._look_around():
                    break
                self._begin(each)
                self._send_again()
            self._wait_for_answers()
        finally:
            self.engine.abort([pending.future for pending in self._pending.values()])

    def _look_around(self) -> bool:
        """Take what has been answered, write a checkpoint that is due; return whether the run shall stop."""
        self._take_answers()
        if time.monotonic() >= self._due:
            self.write_checkpoint()
            self._due = time.monotonic() + self.services.timings.checkpoint_seconds
        return self._shall_stop()

    def _shall_stop(self) -> bool:
        if self.stop.draining.is_set() or self.stop.is_stopped(self.job_id):
            self.stopped = True
        return self.stopped or self.engine_died

    def _begin(self, prepared: Prepared | None) -> None:
        if isinstance(prepared, Settled):
            self.outcomes[prepared.row_number] = prepared.outcome
        elif prepared is not None:
            self._send(prepared)

    def _send(self, asked: Asked) -> None:
        try:
            # The engine may be full of another chunk's rows for long: a stop is heard all the same.
            future = self.engine.submit(asked.request, self._look_around)
        except WaitEnded:
            return
        except EngineGone:
            self.engine_died = True
            return
        number = asked.row_numbers[0]
        self._pending[number] = _Pending(asked, future)
        future.add_done_callback(lambda _: self._answered.put(number))

    def _send_again(self) -> None:
        while self._again:
            if self._shall_stop():
                self._again.clear()
                return
            self._send(self._again.popleft())

    def _take_answers(self, wait_seconds: float = 0.0) -> None:
        """Take what has been answered; with nothing there, wait up to ``wait_seconds`` for one answer."""
        try:
            number = self._answered.get(timeout=wait_seconds) if wait_seconds else self._answered.get_nowait()
            while True:
                self._take(self._pending.pop(number))
                number = self._answered.get_nowait()
        except queue.Empty:
            return

    def _take(self, pending: _Pending) -> None:
        try:
            answer = pending.future.result()
        except EngineGone:
            self.engine_died = True
        except CancelledError:
            return
        else:
            outcomes = pending.asked.read(answer)
            if outcomes is None:
                self._again.extend(pending.asked.split())
            else:
                self.outcomes.update(zip(pending.asked.row_numbers, outcomes, strict=True))

    def _wait_for_answers(self) -> None:
        """Wait for the rows in flight: as long as it takes, or ``drain_seconds`` from when the run shall stop."""
        limit: float | None = None
        while (self._pending or self._again) and not self.stop.at_once.is_set():
            self._take_answers(POLL_SECONDS)
            self._send_again()
            if self._look_around() and limit is None:
                limit = time.monotonic() + self.services.timings.drain_seconds
            if limit is not None and time.monotonic() >= limit:
                log.info("rows_aborted", job_id=self.job_id, rows=len(self._pending))
                return
        if self._pending:
            self.stopped = True
