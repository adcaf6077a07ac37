"""Doorbells of jobs, rung once the transaction that gives the reason is committed.

A job's workers hear the broker of its own region. Whoever acts on a job of another region (an approval, say) rings nothing: that
region's sweeper finds the reason in Postgres.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anex.jobs.model import Step

if TYPE_CHECKING:
    from anex.db import Transaction
    from anex.jobs.model import Job
    from anex.services import Services


def ring_plan(transaction: Transaction, services: Services, job: Job) -> None:
    """Ask for the rest of a job's plan, from its step on."""
    if job.step is None or job.region != services.region:
        return
    step = Step(job.step)
    transaction.after_commit(lambda: services.dispatcher.ring_step(job.id, step, job.model_queue))


def ring_chunks(transaction: Transaction, services: Services, job: Job, chunks: int) -> None:
    """Say that chunks of a job are ready. A few rings do: who hears one claims until nothing is ready."""
    if job.region != services.region:
        return
    rings = min(chunks, RINGS_MAX)
    transaction.after_commit(lambda: services.dispatcher.ring_model(job.model_queue, rings))


RINGS_MAX = 6
"""Two for each of a unit's three slots; the sweeper tops up for more units."""
