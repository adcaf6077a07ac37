"""The quick worker of a GPU unit: samples, beside the chunks and before them in the engine."""

from __future__ import annotations

import sys
import threading

import structlog

from anex.errors import EngineGone
from anex.jobs.sample import sample_job
from tasks import names
from tasks.app import app, task
from workers.slots import Slots, celery_arguments, parse_slots

CONCURRENCY = 8

log = structlog.get_logger(__name__)


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
    threading.Thread(target=slots.obey, name="parent", daemon=True).start()
    queue = names.quick_queue(slots.unit.model_queue)
    app.worker_main(celery_arguments(queue, CONCURRENCY, f"quick-{slots.unit.id}"))


if __name__ == "__main__":
    main(sys.argv[1:])
