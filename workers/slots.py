"""What a Celery worker of a GPU unit shares between its slots: who it is, its engine, and when to stop.

The worker is a child of ``workers.main``. Celery's threads pool can't drain, so signals are the parent's business: it writes
``drain`` or ``now`` to this process's standard input, and the end of that input says that the parent is gone. A slot that is
told to stop gives its chunk back; a doorbell that comes meanwhile is answered by nobody, and rung again by the sweeper.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from anex.units.model import StopSignals, Unit
from tasks.process import process_services
from workers.engine_client import EngineClient

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from anex.services import Services

ROWS_IN_FLIGHT_FACTOR = 2
"""Rows given to the engine for each sequence that it runs at once: enough that none of its places waits for us."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Slots:
    """One worker process's share of a unit."""

    unit: Unit
    socket_path: Path
    engine: EngineClient
    stop: StopSignals = field(default_factory=StopSignals)
    _busy: int = 0
    _idle: threading.Condition = field(default_factory=threading.Condition)

    @property
    def services(self) -> Services:
        """The process's services, made at the first use."""
        return process_services()

    def can_work(self) -> bool:
        """Whether a slot may begin something: not while the unit stops, nor without an engine."""
        return not self.stop.draining.is_set() and self.engine.is_ready()

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Count a slot as busy for the length of the block."""
        with self._idle:
            self._busy += 1
        try:
            yield
        finally:
            with self._idle:
                self._busy -= 1
                self._idle.notify_all()

    def is_busy(self) -> bool:
        """Whether any slot works."""
        return self._busy > 0

    def obey(self) -> None:
        """Read the parent's words until the slots are idle and this process ends. Runs in a thread of its own."""
        for line in sys.stdin:
            self.stop.draining.set()
            if line.strip() == "now":
                self.stop.at_once.set()
            threading.Thread(target=self._leave, name="leave", daemon=True).start()
        self.stop.draining.set()
        self.stop.at_once.set()
        self._leave()

    def _leave(self) -> None:
        """Wait for the slots to have given everything back, then end. What Celery holds are doorbells: they may be lost."""
        with self._idle:
            self._idle.wait_for(lambda: self._busy == 0)
        log.info("worker_drained", unit=self.unit.id)
        os.kill(os.getpid(), signal.SIGKILL)


def parse_slots(arguments: Sequence[str]) -> Slots:
    """Return the slots that the parent's command line describes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--unit", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--model-queue", required=True)
    parser.add_argument("--model-revision", required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--max-num-seqs", type=int, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    options = parser.parse_args(arguments)
    unit = Unit(options.unit, options.model, options.model_queue, options.model_revision, options.slots)
    engine = EngineClient(options.socket, ROWS_IN_FLIGHT_FACTOR * options.max_num_seqs)
    return Slots(unit, options.socket, engine)


def slots_arguments(unit: Unit, socket_path: Path, max_num_seqs: int) -> list[str]:
    """Return the command line that ``parse_slots`` reads."""
    return [
        *("--unit", unit.id, "--model", unit.model, "--model-queue", unit.model_queue),
        *("--model-revision", unit.model_revision, "--slots", str(unit.slots)),
        *("--max-num-seqs", str(max_num_seqs), "--socket", str(socket_path)),
    ]


def celery_arguments(queue: str, concurrency: int, name: str) -> list[str]:
    """Return the arguments of ``celery worker`` for one queue on a pool of threads."""
    return [
        *("worker", "--queues", queue, "--pool", "threads", "--concurrency", str(concurrency)),
        *("--hostname", f"{name}@%h", "--without-gossip", "--without-mingle", "--loglevel", "INFO"),
    ]
