"""The run worker of a GPU unit: its slots claim chunks of the unit's model and run them on its engine."""

from __future__ import annotations

import sys
import threading

from anex.jobs.run_chunk import run_next_chunk
from anex.units.store import note_claim
from tasks import names
from tasks.app import app, task
from workers.leases import LeaseKeeper
from workers.slots import Slots, celery_arguments, parse_slots


def define_task(slots: Slots) -> None:
    """Make ``anex.run_chunk`` this process's: a doorbell says that there is work, who hears it claims until none is left."""

    @task(names.RUN_CHUNK)
    def run_chunk(model_queue: str) -> None:  # noqa: ARG001 - the doorbell names the model whose queue it came on
        with slots.occupied():
            while slots.can_work() and run_next_chunk(slots.services, slots.engine, slots.unit, slots.stop):
                with slots.services.database.transaction() as transaction:
                    note_claim(transaction, slots.unit.id)


def main(arguments: list[str]) -> None:
    """Serve the unit's run queue until the parent says otherwise."""
    slots = parse_slots(arguments)
    define_task(slots)
    stall_seconds = slots.services.catalog.get(slots.unit.model).engine.stall_seconds
    keeper = LeaseKeeper(slots, stall_seconds)
    threading.Thread(target=keeper.run, args=(threading.Event(),), name="lease-keeper", daemon=True).start()
    threading.Thread(target=slots.obey, name="parent", daemon=True).start()
    queue = names.run_queue(slots.unit.model_queue)
    app.worker_main(celery_arguments(queue, slots.unit.slots, f"run-{slots.unit.id}"))


if __name__ == "__main__":
    main(sys.argv[1:])
