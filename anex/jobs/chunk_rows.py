"""Feed the rows of one chunk to the engine and gather what becomes of them.

One slot's thread does both: it asks for rows in input order as fast as the engine's budget admits them, and between two requests
takes the answers that came. Answers arrive in any order; each is matched to its row by its future, never by place. Rows that may
have killed an engine come last, alone (``anex.jobs.suspects``).
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
from anex.ids import suffix_of
from anex.jobs.asking import Settled
from anex.jobs.retries import RETRIES_MAX, is_transient, pause_seconds
from anex.jobs.suspects import Suspects
from anex.rows.result import RowKey, fail_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from anex.jobs.asking import Asked, Asker, Prepared
    from anex.rows.result import RowOutcome
    from anex.services import Engine, EngineAnswer, Services
    from anex.units.model import StopSignals

POLL_SECONDS = 0.5
"""How often a slot that waits for answers looks whether it shall stop."""

GUILTY = "the engine died again and again while it worked on this row alone"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Pending:
    """A request that the engine works on, for the ``tries``-th time."""

    asked: Asked
    future: Future[EngineAnswer]
    tries: int


@dataclass(frozen=True, slots=True)
class _Again:
    """A request that is to be sent again, not before ``due`` (a monotonic time)."""

    asked: Asked
    tries: int
    due: float = 0.0


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
    suspects: list[Suspects] = field(default_factory=list)
    """Rows that may have killed an engine: those known, and afterwards those that still are."""
    engine_died: bool = False
    stopped: bool = False
    _due: float = 0.0
    _pending: dict[int, _Pending] = field(default_factory=dict)
    """By the first of a request's rows."""
    _again: deque[_Again] = field(default_factory=deque)
    """Rows that were asked for together and have to be asked for one by one, and rows that the engine failed."""
    _answered: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)
    _killed: list[int] = field(default_factory=list)
    """Rows in flight when the engine died."""

    def run(self, rows: Iterable[Any]) -> None:
        """Run every row that is not finished yet, until all are, the engine dies, or the unit or the job shall stop."""
        self._due = time.monotonic() + self.services.timings.checkpoint_seconds
        held: dict[int, Any] = {}
        self._feed(self._hold_suspects(rows, held))
        if self._killed and not self.stop.draining.is_set():
            self.suspects.append(Suspects(tuple(self._killed)))
        if not self._shall_stop():
            self._try_suspects(held)

    def _hold_suspects(self, rows: Iterable[Any], held: dict[int, Any]) -> Iterator[Any]:
        """Yield the rows that are not finished and not suspected; put those that are suspected into ``held``."""
        suspected = {number for group in self.suspects for number in group.rows}
        for row in rows:
            if row.row_number in self.outcomes:
                continue
            if row.row_number in suspected:
                held[row.row_number] = row
            else:
                yield row

    def _try_suspects(self, held: dict[int, Any]) -> None:
        """Run each group of suspects with nothing else in flight, until one kills the engine."""
        groups, self.suspects = self.suspects, []
        for place, group in enumerate(groups):
            rows = [held[number] for number in group.rows if number in held]
            if group.is_guilty(others_finished=bool(self.outcomes)):
                self.outcomes.update((row.row_number, self._condemn(row)) for row in rows)
            elif rows:
                self._try_alone(rows)
            if self._shall_stop():
                left = group.narrow(self._killed) if len(rows) > 0 else []
                self.suspects = [*left, *groups[place + 1 :]]
                return

    def _try_alone(self, rows: list[Any]) -> None:
        try:
            with self.engine.alone(self._look_around):
                self._feed(rows)
        except WaitEnded:
            return
        except EngineGone:
            self.engine_died = True

    def _condemn(self, row: Any) -> RowOutcome:
        log.warning("row_kills_engines", job_id=self.job_id, row=row.row_number)
        return fail_row(RowKey(suffix_of(self.job_id), row.row_number, row.custom_id), GUILTY, "engine_error")

    def _feed(self, rows: Iterable[Any]) -> None:
        """Ask for rows and wait for their answers."""
        try:
            for each in self.asker.ask(rows):
                if self._look_around():
                    break
                self._begin(each)
                self._send_again()
            self._wait_for_answers()
        finally:
            if self.engine_died:
                self._killed += [
                    number for each in self._pending.values() for number in each.asked.row_numbers
                ]
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

    def _send(self, asked: Asked, tries: int = 1) -> None:
        try:
            # The engine may be full of another chunk's rows for long: a stop is heard all the same.
            future = self.engine.submit(asked.request, self._look_around)
        except WaitEnded:
            return
        except EngineGone:
            self.engine_died = True
            return
        number = asked.row_numbers[0]
        self._pending[number] = _Pending(asked, future, tries)
        future.add_done_callback(lambda _: self._answered.put(number))

    def _send_again(self) -> None:
        """Send what is due to be sent again."""
        for _ in range(len(self._again)):
            if self._shall_stop():
                self._again.clear()
                return
            again = self._again.popleft()
            if again.due > time.monotonic():
                self._again.append(again)
            else:
                self._send(again.asked, again.tries)

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
            self._killed += pending.asked.row_numbers
        except CancelledError:
            return
        else:
            self._take_answer(pending, answer)

    def _take_answer(self, pending: _Pending, answer: EngineAnswer) -> None:
        asked, is_single = pending.asked, len(pending.asked.row_numbers) == 1
        if is_transient(answer.status) and is_single and pending.tries <= RETRIES_MAX:
            pause = pause_seconds(self.services.timings.row_retry_seconds, pending.tries)
            self._again.append(_Again(asked, pending.tries + 1, time.monotonic() + pause))
            return
        outcomes = asked.read(answer)
        if outcomes is None:
            self._again.extend(_Again(each, tries=1) for each in asked.split())
        else:
            self.outcomes.update(zip(asked.row_numbers, outcomes, strict=True))

    def _wait_for_answers(self) -> None:
        """Wait for the rows in flight: as long as it takes, or ``drain_seconds`` from when the run shall stop."""
        limit: float | None = None
        while (self._pending or self._again) and not self.stop.at_once.is_set():
            self._take_answers(self._wait_seconds())
            self._send_again()
            if self._look_around() and limit is None:
                limit = time.monotonic() + self.services.timings.drain_seconds
            if limit is not None and time.monotonic() >= limit:
                log.info("rows_aborted", job_id=self.job_id, rows=len(self._pending))
                return
        if self._pending:
            self.stopped = True

    def _wait_seconds(self) -> float:
        """Return how long to wait for an answer: not past what is to be sent again."""
        due = min((again.due - time.monotonic() for again in self._again), default=POLL_SECONDS)
        return min(max(due, 0.001), POLL_SECONDS)
