"""``DELETE /jobs/{id}/data``: cancel what is in flight, and remove the payload as soon as the job has stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anex.jobs.cancel import cancel_locked_job, is_stopped_by_cancel
from anex.jobs.purge import purge_marked_job
from anex.jobs.store import get_job, insert_action, lock_job, update_job
from anex.jobs.transitions import Status

if TYPE_CHECKING:
    from anex.db import Transaction
    from anex.jobs.model import Job
    from anex.orgs.model import Caller
    from anex.services import Services

_INPUT_IN_USE = (
    "the job's result is deleted; its input goes when the last unfinished job that reads it has ended,"
    " and no new job may use it"
)
_ELSEWHERE = (
    "the job's region deletes its input and result within a minute; poll the job until data_deleted_at is set"
)
_MESSAGES = {
    Status.ESTIMATING: "the job is cancelled as soon as the running step of its estimate ends; its input will be deleted then",
    Status.CANCELLING: "the job is being cancelled; its input and any result will be deleted once it stops",
    Status.FINALIZING: "the job is finishing and will be charged; its input and result will be deleted once it is done",
}


@dataclass(frozen=True, slots=True)
class Deletion:
    """The job after the call; ``message`` says what is still to come, None when the data is gone."""

    job: Job
    message: str | None


def delete_data(services: Services, caller: Caller, job_id: str) -> Deletion:
    """Delete a job's input and result, now or once the job has stopped. Repeating it is answered the same way.

    Raises ``JobNotFound``, ``StorageUnavailable`` (the sweeper goes on with what was begun).
    """
    with services.database.transaction(caller.org_id) as transaction:
        job = _request_deletion(transaction, services, caller, job_id)
    if job.data_deleted_at is not None:
        return Deletion(job, None)
    if not job.is_terminal:
        return Deletion(job, _MESSAGES[Status(job.status)])
    if job.region != services.region:
        return Deletion(job, _ELSEWHERE)
    purged = purge_marked_job(services, job.id, caller.org_id)
    with services.database.transaction(caller.org_id) as transaction:
        return Deletion(get_job(transaction, job.id), None if purged else _INPUT_IN_USE)


def _request_deletion(transaction: Transaction, services: Services, caller: Caller, job_id: str) -> Job:
    job = lock_job(transaction, job_id, caller.org_id)
    if job.data_deleted_at is not None:
        return job
    insert_action(transaction, job, "delete", caller.key_id)
    if is_stopped_by_cancel(job):
        job = cancel_locked_job(transaction, services, job, caller.key_id)
    return update_job(transaction, job.id, {"delete_requested": True})
