"""Cancel a job: at once where nothing runs, otherwise by letting what runs settle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anex.errors import JobStateConflict
from anex.jobs.chunk_end import count_down
from anex.jobs.chunks import drop_unstarted_chunks, has_delivered_rows
from anex.jobs.end import end_job
from anex.jobs.store import get_job, insert_action, lock_job, move_job
from anex.jobs.transitions import Status

if TYPE_CHECKING:
    from anex.db import Transaction
    from anex.jobs.model import Job
    from anex.orgs.model import Caller
    from anex.services import Services


_STOPPABLE = frozenset({Status.SUBMITTED, Status.COST_READY, Status.IN_PROGRESS})


def cancel_job(services: Services, caller: Caller, job_id: str) -> Job:
    """Stop a job. Repeating it while the job is cancelling is answered the same way.

    Raises ``JobNotFound``, and ``JobStateConflict`` while it is estimating and once it is too late.
    """
    with services.database.transaction(caller.org_id) as transaction:
        job = lock_job(transaction, job_id, caller.org_id)
        insert_action(transaction, job, "cancel", caller.key_id)
        return cancel_locked_job(transaction, services, job, caller.key_id)


def cancel_locked_job(transaction: Transaction, services: Services, job: Job, key_id: str | None) -> Job:
    """Stop a locked job. Raises ``JobStateConflict``."""
    if job.status == Status.IN_PROGRESS:
        return _stop_run(transaction, services, job, key_id)
    if is_stopped_by_cancel(job):
        drop_unstarted_chunks(transaction, job.id)
        return end_job(transaction, services, job, Status.CANCELLED, key_id=key_id)
    if job.status == Status.CANCELLING:
        return job
    if job.status == Status.ESTIMATING:
        raise JobStateConflict(
            "the job is estimating; wait for cost_ready and leave it unapproved: estimates are free"
        )
    raise JobStateConflict(f"the job is {job.status}; it is too late to cancel it")


def is_stopped_by_cancel(job: Job) -> bool:
    """Whether a cancel does anything to the job now.

    A job that keeps its data in the EEA may take up to an hour to estimate, until a machine is ready: nobody has to wait for that.
    """
    return job.status in _STOPPABLE or (job.status == Status.ESTIMATING and job.region == "eu")


def _stop_run(transaction: Transaction, services: Services, job: Job, key_id: str | None) -> Job:
    dropped = drop_unstarted_chunks(transaction, job.id)
    if not has_delivered_rows(transaction, job.id):
        return end_job(transaction, services, job, Status.CANCELLED, key_id=key_id)
    moved = move_job(transaction, services, job, Status.CANCELLING, {}, key_id=key_id)
    count_down(transaction, services, moved, dropped)
    return get_job(transaction, job.id)
