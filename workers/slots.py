"""What a Celery worker of a GPU unit shares between its slots: who it is, its engine, and when to stop.

The worker is a child of ``workers.main``, which describes it on the command line.
"""

from __future__ import annotations

import argparse
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from anex.units.model import HeldLeases, StopSignals, Unit
from tasks.app import app
from tasks.process import process_services
from workers.drain import obey
from workers.engine_client import EngineClient

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from anex.services import Services

ROWS_IN_FLIGHT_FACTOR = 2
"""Rows given to the engine for each sequence that it runs at once: enough that none of its places waits for us."""


@dataclass(slots=True)
class Slots:
    """One worker process's share of a unit."""

    unit: Unit
    socket_path: Path
    engine: EngineClient
    stop: StopSignals = field(default_factory=StopSignals)
    leases: HeldLeases = field(default_factory=HeldLeases)
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

    def wait_until_idle(self, timeout_seconds: float | None = None) -> bool:
        """Wait until no slot works; False when the time is up first."""
        with self._idle:
            return self._idle.wait_for(lambda: self._busy == 0, timeout_seconds)


def parse_slots(arguments: Sequence[str]) -> Slots:
    """Return the slots that the parent's command line describes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--unit", required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--model-queue", required=True)
    parser.add_argument("--model-revision", required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--max-num-seqs", type=int, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    options = parser.parse_args(arguments)
    unit = Unit(
        options.unit,
        options.region,
        options.model,
        options.model_queue,
        options.model_revision,
        options.slots,
    )
    engine = EngineClient(options.socket, ROWS_IN_FLIGHT_FACTOR * options.max_num_seqs)
    return Slots(unit, options.socket, engine)


def slots_arguments(unit: Unit, socket_path: Path, max_num_seqs: int) -> list[str]:
    """Return the command line that ``parse_slots`` reads."""
    return [
        *("--unit", unit.id, "--region", unit.region),
        *("--model", unit.model, "--model-queue", unit.model_queue),
        *("--model-revision", unit.model_revision, "--slots", str(unit.slots)),
        *("--max-num-seqs", str(max_num_seqs), "--socket", str(socket_path)),
    ]


def serve_queue(slots: Slots, queue: str, concurrency: int, role: str) -> None:
    """Consume one queue on a pool of threads until the parent says otherwise."""
    node = f"{role}-{slots.unit.id}@anex"
    threading.Thread(target=obey, args=(slots, sys.stdin, queue, node), name="parent", daemon=True).start()
    app.worker_main(
        [
            *("worker", "--queues", queue, "--pool", "threads", "--concurrency", str(concurrency)),
            *("--hostname", node, "--without-gossip", "--without-mingle", "--loglevel", "INFO"),
        ]
    )
