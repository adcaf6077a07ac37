"""End a run: join the parts into one result, charge what was used, and say so, at most once.

The join may be repeated (after a crash, by two holders): each writes the same bytes under a key of its own. What must happen once,
money and state, is one transaction guarded by the step's fence; who finds that another holds the step removes what it wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from anex.errors import LeaseLost
from anex.jobs.chunk_end import deliver_dropped_rows
from anex.jobs.chunks import StoredObject, list_parts, sum_chunks
from anex.jobs.end import RowCounts, end_job
from anex.jobs.model import Step
from anex.jobs.purge import purge_intermediates, purge_marked_job
from anex.jobs.steps import hold_step, lock_held_step
from anex.jobs.transitions import Status
from anex.ledger.pricing import PriceTerms, charge_cents
from anex.object_keys import new_result_key
from anex.s3 import PartSource

if TYPE_CHECKING:
    from anex.jobs.model import Job
    from anex.services import Services

log = structlog.get_logger(__name__)


ROWS_MISSING = (
    "Not every row came back: {delivered} of {total} rows are in the result, and only they are charged."
    " Submit the missing rows again."
)


def finalize_job(services: Services, job_id: str) -> None:
    """Run the ``finalize`` step: on to ``done``, or to ``cancelled`` where a cancel is settling.

    Parts that do not account for every row are a fault of ours: the job ends ``failed``, with what there is.
    """
    with hold_step(services, job_id, Step.FINALIZE) as job:
        if job is None:
            return
        deliver_dropped_rows(services, job.id)
        with services.database.transaction() as transaction:
            parts = [PartSource(**part) for part in list_parts(transaction, job.id)]
            counts = RowCounts.of(sum_chunks(transaction, job.id))
        key = new_result_key(job.org_id, job.id, job.step_fence)
        head = services.objects.join(key, parts) if parts else None
        try:
            ended = _settle(services, job, counts, None if head is None else StoredObject(key, head))
        except LeaseLost:
            services.objects.delete([key])
            raise
    log.info("job_ended", job_id=job.id, status=ended.status, cost_cents=ended.cost_cents)
    if ended.delete_requested:
        purge_marked_job(services, ended.id)
    else:
        purge_intermediates(services, ended)


def _settle(services: Services, held: Job, counts: RowCounts, stored: StoredObject | None) -> Job:
    with services.database.transaction() as transaction:
        job = lock_held_step(transaction, held)
        result = {}
        if stored is not None:
            result = {
                "result_key": stored.key,
                "result_etag": stored.head.etag,
                "result_size_bytes": stored.head.size_bytes,
                "result_rows": counts.delivered_rows,
            }
        target, failure = _judge_end(job, counts)
        return end_job(
            transaction,
            services,
            job,
            target,
            counts=counts,
            charge_cents=_charge(job, counts),
            changes={**result, **failure},
        )


def _judge_end(job: Job, counts: RowCounts) -> tuple[Status, dict[str, str]]:
    """Return where the job goes, and what is told of a failure."""
    if job.status != Status.FINALIZING:
        return Status.CANCELLED, {}
    if counts.delivered_rows == job.total_rows:
        return Status.DONE, {}
    log.error("rows_missing", job_id=job.id, delivered=counts.delivered_rows, total=job.total_rows)
    reason = ROWS_MISSING.format(delivered=counts.delivered_rows, total=job.total_rows)
    return Status.FAILED, {"failure_code": "internal_error", "failure_reason": reason}


def _charge(job: Job, counts: RowCounts) -> int:
    terms = PriceTerms.from_json((job.terms or {})["prices"])
    return charge_cents(
        terms, counts.usage, billable_rows=counts.billable_rows, hold_cents=job.est_cost_cents or 0
    )
