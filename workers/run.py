"""The run worker of a GPU unit: its slots claim chunks of the unit's model and run them on its engine."""

from __future__ import annotations

import sys

from anex.jobs.run_chunk import run_next_chunk
from anex.units.store import note_claim
from tasks import names
from tasks.app import task
from workers.leases import watch_engine
from workers.slots import Slots, parse_slots, serve_queue


def define_task(slots: Slots) -> None:
    """Make ``anex.run_chunk`` this process's: a doorbell says that there is work, who hears it claims until none is left."""

    @task(names.RUN_CHUNK)
    def run_chunk(model_queue: str) -> None:  # noqa: ARG001 - the doorbell names the model whose queue it came on
        with slots.occupied():
            while slots.can_work() and _claim_and_run(slots):
                pass


def _claim_and_run(slots: Slots) -> bool:
    """Run the next chunk; False when there is none to be had."""
    with slots.services.database.transaction() as transaction:
        note_claim(transaction, slots.unit.id)
    return run_next_chunk(slots.services, slots.engine, slots.unit, slots.stop, slots.leases)


def main(arguments: list[str]) -> None:
    """Serve the unit's run queue until the parent says otherwise."""
    slots = parse_slots(arguments)
    define_task(slots)
    watch_engine(slots)
    serve_queue(slots, names.run_queue(slots.unit.model_queue), slots.unit.slots, "run")


if __name__ == "__main__":
    main(sys.argv[1:])
