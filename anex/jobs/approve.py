"""Approve a job: the hold, the state and the doorbells are one step, or none happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anex.errors import JobStateConflict
from anex.jobs.chunks import release_chunks
from anex.jobs.ring import ring_chunks
from anex.jobs.store import insert_action, lock_job, move_job
from anex.jobs.transitions import Status
from anex.ledger.holds import place_hold
from anex.money import cents_to_nanos

if TYPE_CHECKING:
    from anex.db import Transaction
    from anex.jobs.model import Job
    from anex.orgs.model import Caller
    from anex.services import Services


def approve_job(services: Services, caller: Caller, job_id: str) -> Job:
    """Hold the estimate and start the run.

    Raises ``JobNotFound``, ``JobStateConflict`` in any state but ``cost_ready`` and past the approval window, ``BalanceTooLow``.
    """
    with services.database.transaction(caller.org_id) as transaction:
        job = lock_job(transaction, job_id, caller.org_id)
        if job.status != Status.COST_READY:
            raise JobStateConflict(f"the job is {job.status}; only a job that is cost_ready can be approved")
        if _window_is_over(transaction, job):
            raise JobStateConflict("the estimate was not approved in time; submit the job again")
        _require_same_model(services, job)
        insert_action(transaction, job, "approve", caller.key_id)
        return start_run(transaction, services, job, key_id=caller.key_id)


def start_run(transaction: Transaction, services: Services, job: Job, *, key_id: str | None) -> Job:
    """Start the run of a locked job that is ``cost_ready``. Raises ``BalanceTooLow``."""
    chunks = release_chunks(transaction, job.id)
    row = transaction.fetch_dict("SELECT anex_now() AS now")
    approved_at = row["now"] if row is not None else None
    started = move_job(
        transaction,
        services,
        job,
        Status.IN_PROGRESS,
        {"approved_at": approved_at, "chunks_open": chunks},
        key_id=key_id,
    )
    # Last, for all approvals and ends of an organization's jobs wait for each other at its account.
    place_hold(
        transaction,
        org_id=job.org_id,
        job_id=job.id,
        amount_nanos=cents_to_nanos(job.est_cost_cents or 0),
        key_id=key_id,
        now=services.clock.now(),
    )
    ring_chunks(transaction, services, job, chunks)
    return started


def _require_same_model(services: Services, job: Job) -> None:
    """Raise ``JobStateConflict`` where no worker will claim the job: its model is gone, or another revision of it is served."""
    spec = services.catalog.models.get(job.model)
    if spec is None or spec.revision != job.model_revision:
        raise JobStateConflict(
            f"model '{job.model}' is no longer offered as it was when the job was priced; submit the job again"
        )


def _window_is_over(transaction: Transaction, job: Job) -> bool:
    row = transaction.fetch_dict(
        "SELECT approval_expires_at <= anex_now() AS over FROM jobs WHERE id = %(job_id)s", {"job_id": job.id}
    )
    return row is None or bool(row["over"])
