"""The quick worker of a GPU unit: samples, beside the chunks and before them in the engine."""

from __future__ import annotations

import sys

from anex.errors import EngineGone
from anex.jobs.sample import sample_job
from tasks import names
from tasks.app import task
from workers.leases import watch_engine
from workers.slots import Slots, parse_slots, serve_queue

CONCURRENCY = 8


def define_task(slots: Slots) -> None:
    """Make ``anex.sample`` this process's. Where it can't be done now it raises, so that its chain ends here."""

    @task(names.SAMPLE)
    def sample(job_id: str) -> None:
        with slots.occupied():
            if not slots.can_work():
                raise EngineGone("the unit has no engine to sample with now")
            sample_job(slots.services, slots.engine, job_id)


def main(arguments: list[str]) -> None:
    """Serve the unit's quick queue until the parent says otherwise."""
    slots = parse_slots(arguments)
    define_task(slots)
    watch_engine(slots)
    serve_queue(slots, names.quick_queue(slots.unit.model_queue), CONCURRENCY, "quick")


if __name__ == "__main__":
    main(sys.argv[1:])
