"""Steps of a job's plan, each run under a lease with a fence.

Doorbells come late, twice or never; whoever comes claims the step in SQL or goes away. A holder that stops (killed, paused) loses
the lease, another claims it with a higher fence, and whatever the first one still writes is refused by that fence.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import structlog

from anex.errors import AnexError, LeaseLost
from anex.jobs.end import cancel_where_deletion_waits, fail_job
from anex.jobs.store import get_job, lock_job, set_step
from anex.lease_keeper import kept_alive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anex.db import Transaction
    from anex.jobs.model import Job, Step
    from anex.services import Services

log = structlog.get_logger(__name__)

_CLAIM = """
UPDATE jobs SET step_fence = step_fence + 1, step_lease_until = anex_now() + %(lease)s * interval '1 second'
WHERE id = %(job_id)s AND step = %(step)s AND region = %(region)s
  AND (step_lease_until IS NULL OR step_lease_until < anex_now())
"""

_EXTEND = """
UPDATE jobs SET step_lease_until = anex_now() + %(lease)s * interval '1 second'
WHERE id = %(job_id)s AND step = %(step)s AND step_fence = %(fence)s
"""

_RELEASE = """
UPDATE jobs SET step_lease_until = NULL WHERE id = %(job_id)s AND step = %(step)s AND step_fence = %(fence)s
"""


@contextmanager
def hold_step(services: Services, job_id: str, step: Step) -> Iterator[Job | None]:
    """Claim a step and keep its lease alive while the block runs; yields None when it is not to be had.

    The step is given back at the block's end if it is still the holder's: after an error somebody else tries it again.
    """
    job = _claim_step(services, job_id, step)
    if job is None:
        yield None
        return
    try:
        with kept_alive(partial(_touch_lease, services, job, _EXTEND), services.timings.heartbeat_seconds):
            yield job
    finally:
        _release(services, job)


def lock_held_step(transaction: Transaction, held: Job) -> Job:
    """Lock the job of a held step. Raises ``LeaseLost`` when the step is no longer the holder's."""
    job = lock_job(transaction, held.id)
    if job.step != held.step or job.step_fence != held.step_fence:
        raise LeaseLost(f"step {held.step} of {held.id} has another holder")
    return job


def pass_on(transaction: Transaction, services: Services, held: Job, step: Step) -> Job:
    """Make ``step`` the next one of a job whose step is held; a deletion that waited for this moment cancels it instead."""
    job = lock_held_step(transaction, held)
    if cancel_where_deletion_waits(transaction, services, job):
        return job
    return set_step(transaction, job.id, step)


def fail_held_step(services: Services, held: Job, code: str, reason: str) -> None:
    """End the job of a held step as failed."""
    with services.database.transaction() as transaction:
        job = lock_held_step(transaction, held)
        if not cancel_where_deletion_waits(transaction, services, job):
            fail_job(transaction, services, job, code, reason)


def _claim_step(services: Services, job_id: str, step: Step) -> Job | None:
    parameters = {
        "job_id": job_id,
        "step": step.value,
        "region": services.region,
        "lease": services.timings.lease_seconds,
    }
    with services.database.transaction() as transaction:
        if transaction.execute(_CLAIM, parameters) == 0:
            return None
        return get_job(transaction, job_id)


def _release(services: Services, job: Job) -> None:
    try:
        _touch_lease(services, job, _RELEASE)
    except AnexError:
        log.warning("step_not_released", job_id=job.id, step=job.step)  # it runs out by itself


def _touch_lease(services: Services, job: Job, statement: str) -> bool:
    """Write to a held step's lease; False when another holds it."""
    parameters = {
        "job_id": job.id,
        "step": job.step,
        "fence": job.step_fence,
        "lease": services.timings.lease_seconds,
    }
    with services.database.transaction() as transaction:
        return transaction.execute(statement, parameters) == 1
