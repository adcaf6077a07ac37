"""The sweeper: brings back what was lost, whatever lost it, and ends what has waited too long.

Beat calls it every few seconds on the control queue. Each region has its own, for what is its own. One sweeper of a region works
at a time (an advisory lock); all it does is safe to repeat.
It tops up doorbells and never floods: a model's queue gets at most as many as its live slots can hear.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from anex.errors import BrokerUnavailable, JobStateConflict, StorageUnavailable
from anex.inputs.copies import list_copies_to_ring
from anex.inputs.sweep import sweep_expired_forms
from anex.jobs.chunk_end import count_down
from anex.jobs.end import cancel_where_deletion_waits, end_job, fail_job
from anex.jobs.model import Step
from anex.jobs.purge import purge_marked_job
from anex.jobs.store import lock_job
from anex.jobs.transitions import Status
from anex.webhooks.sweep import sweep_deliveries

if TYPE_CHECKING:
    from anex.db import Database, Transaction
    from anex.services import Services

log = structlog.get_logger(__name__)

BATCH = 500
"""Jobs that one sweep handles of each kind; the rest waits for the next one."""

_LOCK = "SELECT pg_try_advisory_xact_lock(hashtext('anex.sweep.' || %(region)s)) AS got"

_RETURN_EXPIRED_CHUNKS = """
UPDATE chunks SET state = 'ready', lease_until = NULL, leased_by = NULL, attempts = attempts + 1
FROM jobs
WHERE chunks.state = 'leased' AND chunks.lease_until < anex_now() AND jobs.id = chunks.job_id AND jobs.region = %(region)s
"""

# Where a job is being cancelled nobody claims a chunk again: what a dead worker held is dropped.
_DROP_READY_OF_CANCELLING = """
UPDATE chunks SET state = 'dropped' FROM jobs
WHERE jobs.id = chunks.job_id AND jobs.id = %(job_id)s AND jobs.status = 'cancelling' AND chunks.state = 'ready'
"""

_CANCELLING_WITH_READY = """
SELECT DISTINCT chunks.job_id AS id FROM chunks JOIN jobs ON jobs.id = chunks.job_id
WHERE jobs.region = %(region)s AND jobs.status = 'cancelling' AND chunks.state = 'ready' LIMIT %(batch)s
"""

_EXPIRED_APPROVALS = """
SELECT id FROM jobs WHERE region = %(region)s AND status = 'cost_ready' AND approval_expires_at <= anex_now() LIMIT %(batch)s
"""

_STALLED_ESTIMATES = """
SELECT id FROM jobs
WHERE region = %(region)s AND status IN ('submitted', 'estimating')
  AND (step = 'sample' OR step_lease_until IS NULL OR step_lease_until < anex_now())
  AND coalesce(step_started_at, created_at) <= anex_now() - %(stall)s * interval '1 second'
  AND id = coalesce(%(job_id)s, id)
LIMIT %(batch)s
"""

_DELETIONS_WAITING = """
SELECT id, status FROM jobs
WHERE region = %(region)s AND delete_requested AND data_deleted_at IS NULL
  AND (status IN ('done', 'failed', 'cancelled')
       OR (status = 'estimating' AND (step_lease_until IS NULL OR step_lease_until < anex_now())))
ORDER BY id LIMIT %(batch)s
"""

# A step is rung again after a back-off that doubles with each ring, unless somebody holds it.
_STEPS_TO_RING = """
UPDATE jobs SET rung_at = anex_now(), rings = rings + 1
WHERE id IN (
    SELECT id FROM jobs
    WHERE region = %(region)s AND step IS NOT NULL AND (step_lease_until IS NULL OR step_lease_until < anex_now())
      AND rung_at <= anex_now() - least(%(most)s, %(first)s * power(2, least(rings, 20))) * interval '1 second'
    ORDER BY rung_at LIMIT %(batch)s FOR UPDATE SKIP LOCKED)
RETURNING id, step, model_queue, spans_open
"""

_READY_CHUNKS = """
SELECT chunks.model_queue, count(*) AS ready,
       (SELECT coalesce(sum(slots), 0) FROM units
        WHERE units.model_queue = chunks.model_queue AND units.region = %(region)s
          AND heartbeat_at > anex_now() - %(alive)s * interval '1 second') AS slots
FROM chunks JOIN jobs ON jobs.id = chunks.job_id
WHERE chunks.state = 'ready' AND jobs.status = 'in_progress' AND jobs.region = %(region)s
GROUP BY chunks.model_queue
"""

_MODELS_WITH_WORK = """
SELECT model FROM jobs WHERE step = 'sample' AND region = %(region)s
UNION
SELECT jobs.model FROM chunks JOIN jobs ON jobs.id = chunks.job_id
WHERE chunks.state IN ('ready', 'leased') AND jobs.status IN ('in_progress', 'cancelling') AND jobs.region = %(region)s
"""

NO_PRICE = (
    "We could not prepare a price for this job automatically. No worker could sample its rows in time:"
    " submit it again later, or set max_output_tokens."
)


@dataclass(slots=True)
class SweepReport:
    """How many of each were brought back or ended."""

    chunks_returned: int = 0
    approvals_expired: int = 0
    estimates_failed: int = 0
    cancels_settled: int = 0
    deletions_done: int = 0
    forms_swept: int = 0
    steps_rung: int = 0
    copies_rung: int = 0
    delivery_rings: int = 0
    chunk_rings: int = 0


def sweep(services: Services) -> SweepReport:
    """Do one sweep, unless another is under way."""
    report = SweepReport()
    with services.database.transaction() as transaction:
        lock = transaction.fetch_dict(_LOCK, {"region": services.region})
        if lock is None or not lock["got"]:
            return report
        report.chunks_returned = transaction.execute(_RETURN_EXPIRED_CHUNKS, {"region": services.region})
        _ring_steps(transaction, services, report)
        _ring_copies(transaction, services, report)
        _ring_models(transaction, services, report)
        report.delivery_rings = sweep_deliveries(transaction, services)
    _settle_cancelling(services, report)
    _expire_approvals(services, report)
    _fail_stalled_estimates(services, report)
    _do_deletions(services, report)
    report.forms_swept = sweep_expired_forms(services, BATCH)
    return report


def list_models_with_work(database: Database, region: str) -> list[str]:
    """Return the models that a GPU unit is needed for in a region, by id."""
    with database.transaction() as transaction:
        return sorted(row["model"] for row in transaction.fetch_dicts(_MODELS_WITH_WORK, {"region": region}))


def _ring_steps(transaction: Transaction, services: Services, report: SweepReport) -> None:
    timings = services.timings
    backoff = {
        "region": services.region,
        "first": timings.ring_backoff_seconds,
        "most": timings.ring_backoff_max_seconds,
        "batch": BATCH,
    }
    for row in transaction.fetch_dicts(_STEPS_TO_RING, backoff):
        report.steps_rung += 1
        transaction.after_commit(partial(_ring_step, services, row))


def _ring_copies(transaction: Transaction, services: Services, report: SweepReport) -> None:
    timings = services.timings
    waiting = list_copies_to_ring(
        transaction,
        services.region,
        first_seconds=timings.ring_backoff_seconds,
        most_seconds=timings.ring_backoff_max_seconds,
        batch=BATCH,
    )
    report.copies_rung = len(waiting)
    for input_id in waiting:
        transaction.after_commit(partial(services.dispatcher.ring_copy, input_id))


def _ring_step(services: Services, row: dict[str, object]) -> None:
    if row["step"] == Step.COUNT:
        services.dispatcher.ring_spans(str(row["id"]), int(str(row["spans_open"])))
    else:
        services.dispatcher.ring_step(str(row["id"]), Step(str(row["step"])), str(row["model_queue"]))


def _ring_models(transaction: Transaction, services: Services, report: SweepReport) -> None:
    alive = {"region": services.region, "alive": services.timings.worker_alive_seconds}
    for row in transaction.fetch_dicts(_READY_CHUNKS, alive):
        most = 2 * row["slots"] or 1
        try:
            waiting = services.dispatcher.run_queue_length(row["model_queue"])
        except BrokerUnavailable:
            log.warning("queue_length_unknown", model_queue=row["model_queue"])
            continue
        missing = max(0, min(row["ready"], most) - waiting)
        if missing:
            report.chunk_rings += missing
            transaction.after_commit(partial(services.dispatcher.ring_model, row["model_queue"], missing))


def _settle_cancelling(services: Services, report: SweepReport) -> None:
    for job_id in _list_ids(services, _CANCELLING_WITH_READY):
        with services.database.transaction() as transaction:
            job = lock_job(transaction, job_id)
            dropped = transaction.execute(_DROP_READY_OF_CANCELLING, {"job_id": job_id})
            if dropped:
                count_down(transaction, services, job, dropped)
                report.cancels_settled += 1


def _expire_approvals(services: Services, report: SweepReport) -> None:
    for job_id in _list_ids(services, _EXPIRED_APPROVALS):
        with services.database.transaction() as transaction:
            job = lock_job(transaction, job_id)
            if job.status == Status.COST_READY:
                end_job(transaction, services, job, Status.CANCELLED)
                report.approvals_expired += 1


def _fail_stalled_estimates(services: Services, report: SweepReport) -> None:
    stall = {
        "region": services.region,
        "stall": services.timings.estimate_stall_seconds,
        "batch": BATCH,
        "job_id": None,
    }
    for job_id in _list_ids(services, _STALLED_ESTIMATES, **stall):
        with services.database.transaction() as transaction:
            job = lock_job(transaction, job_id)
            # Somebody may have taken it up meanwhile: under the lock it is judged again.
            if transaction.fetch_dict(_STALLED_ESTIMATES, {**stall, "job_id": job_id}) is not None:
                fail_job(transaction, services, job, "invalid_input", NO_PRICE)
                report.estimates_failed += 1


def _do_deletions(services: Services, report: SweepReport) -> None:
    for job_id in _list_ids(services, _DELETIONS_WAITING):
        with services.database.transaction() as transaction:
            job = lock_job(transaction, job_id)
            cancel_where_deletion_waits(transaction, services, job)
        try:
            report.deletions_done += purge_marked_job(services, job_id)
        except (StorageUnavailable, JobStateConflict) as error:
            log.warning("deletion_put_off", job_id=job_id, error=error.message)


def _list_ids(services: Services, query: str, **parameters: object) -> list[str]:
    with services.database.transaction() as transaction:
        wanted = {"region": services.region, "batch": BATCH, **parameters}
        return [row["id"] for row in transaction.fetch_dicts(query, wanted)]
