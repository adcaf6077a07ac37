"""What a doorbell of a job's step asks for: the step, and what follows it without a new reason.

Signatures are immutable and carry ids by name: a step reads what the one before it did from Postgres. The plan
falls into chains where something else decides what comes next. After ``validate`` one message a span asks for
counting; the transaction that closes the last span rings for the rest. The plan ends at ``estimate``: no message
waits for an approval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery import chain

from anex.jobs.model import Step
from tasks import names

if TYPE_CHECKING:
    from celery import Celery

_STEPS = {
    Step.VALIDATE: (names.VALIDATE,),
    Step.COUNT: (names.COUNT,),
    Step.SAMPLE: (names.SAMPLE, names.ESTIMATE),
    Step.ESTIMATE: (names.ESTIMATE,),
    Step.FINALIZE: (names.FINALIZE,),
}


def plan_chain(app: Celery, job_id: str, model_queue: str, step: Step) -> Any:
    """Return the signature of what is left of a job's chain from ``step`` on."""
    tasks = [_sign(app, name, job_id, model_queue) for name in _STEPS[step]]
    return tasks[0] if len(tasks) == 1 else chain(*tasks, app=app)


def _sign(app: Celery, name: str, job_id: str, model_queue: str) -> Any:
    """Return one task's signature; the queues of the others stand in the routes."""
    signature = app.signature(name, kwargs={"job_id": job_id}, immutable=True)
    return signature.set(queue=names.quick_queue(model_queue)) if name == names.SAMPLE else signature
