"""Remove what a job stored: its intermediates once it has ended, and everything when its data is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from anex.errors import StorageUnavailable
from anex.jobs.store import lock_job
from anex.object_keys import input_key, job_prefix

if TYPE_CHECKING:
    from anex.db import Transaction
    from anex.jobs.model import Job
    from anex.services import Services

log = structlog.get_logger(__name__)

_OTHER_USERS = """
SELECT count(*) AS jobs FROM jobs
WHERE input_id = %(input_id)s AND id <> %(job_id)s AND status NOT IN ('done', 'failed', 'cancelled')
"""

_MARK_INPUT = """
UPDATE inputs SET status = 'expired', data_deleted_at = anex_now() WHERE id = %(input_id)s AND data_deleted_at IS NULL
"""

_MARK_JOB = """
UPDATE jobs SET data_deleted_at = anex_now(), delete_requested = false, clip_lengths = NULL, response_format = NULL,
    failure_reason = CASE failure_code WHEN 'invalid_input' THEN %(forgotten)s ELSE failure_reason END
WHERE id = %(job_id)s AND data_deleted_at IS NULL
"""

REASON_FORGOTTEN = "The input was not valid. What was wrong with it was deleted with the job's data."
"""In place of a reason that quotes the input."""

_MARK_WAITING = "UPDATE jobs SET delete_requested = true WHERE id = %(job_id)s AND data_deleted_at IS NULL"


def purge_intermediates(services: Services, job: Job) -> None:
    """Delete the parts and checkpoints of an ended job, and results that another attempt wrote.

    The next purge takes what a failing store keeps now.
    """
    prefix = job_prefix(job.org_id, job.id)
    try:
        services.objects.delete_prefix(f"{prefix}parts/")
        services.objects.delete_prefix(f"{prefix}checkpoints/")
        results = list(services.objects.list_keys(f"{prefix}result/"))
        services.objects.delete(key for key in results if key != job.result_key)
    except StorageUnavailable as unavailable:
        log.warning("intermediates_not_purged", job_id=job.id, error=unavailable.message)


def purge_marked_job(services: Services, job_id: str, org_id: str | None = None) -> bool:
    """Delete everything of an ended job, and its input unless another unfinished job still reads it.

    The input is barred to new jobs first, then the objects go, then the job is marked: a crash between leaves the job marked for
    the sweeper, never an object behind a job that says it has none. False while another job reads the input. ``org_id`` scopes
    the transactions of a request; the sweeper works without.
    """
    with services.database.transaction(org_id) as transaction:
        job = lock_job(transaction, job_id)
        transaction.execute(_MARK_WAITING, {"job_id": job.id})
        transaction.execute(_MARK_INPUT, {"input_id": job.input_id})
        input_is_read = _count_other_users(transaction, job) > 0
    services.objects.delete_prefix(job_prefix(job.org_id, job.id))
    if input_is_read:
        return False
    services.objects.erase(input_key(job.org_id, job.input_id))
    with services.database.transaction(org_id) as transaction:
        lock_job(transaction, job_id)
        transaction.execute(_MARK_JOB, {"job_id": job_id, "forgotten": REASON_FORGOTTEN})
    return True


def _count_other_users(transaction: Transaction, job: Job) -> int:
    row = transaction.fetch_dict(_OTHER_USERS, {"input_id": job.input_id, "job_id": job.id})
    return int(row["jobs"]) if row is not None else 0
