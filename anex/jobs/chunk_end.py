"""The ends of a chunk, each one transaction. Lock order: job, then chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from anex.jobs.checkpoints import read_checkpoint, write_checkpoint
from anex.jobs.chunks import (
    StoredObject,
    complete_chunk,
    drop_open_chunks,
    forget_checkpoint,
    give_back_chunk,
    list_dropped_with_rows,
)
from anex.jobs.end import RowCounts, end_job
from anex.jobs.model import Step
from anex.jobs.ring import ring_chunks, ring_plan
from anex.jobs.store import lock_job, move_job, set_step, update_job
from anex.jobs.suspects import store_suspects
from anex.jobs.transitions import Status
from anex.jobs.validate import INPUT_CHANGED
from anex.object_keys import new_part_key
from anex.rows.result import OutcomeKind
from anex.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anex.db import Transaction
    from anex.jobs.chunks import Chunk
    from anex.jobs.model import Job
    from anex.jobs.suspects import Suspects
    from anex.rows.result import RowOutcome
    from anex.services import Services

log = structlog.get_logger(__name__)


def close_chunk(services: Services, chunk: Chunk, outcomes: Mapping[int, RowOutcome]) -> None:
    """Make the finished rows the chunk's part and close it; the last one moves the job on to its end.

    With nothing finished (a cancelled job) the chunk is dropped.
    """
    part = _write_part(services, chunk, outcomes) if outcomes else None
    with services.database.transaction() as transaction:
        job = lock_job(transaction, chunk.job_id)
        closed = job.status in (Status.IN_PROGRESS, Status.CANCELLING) and (
            complete_chunk(transaction, chunk, count_rows(outcomes), part)
            if part is not None
            else _drop(transaction, chunk)
        )
        if closed:
            count_down(transaction, services, job)
    log.info("chunk_closed" if closed else "chunk_lease_lost", job_id=chunk.job_id, chunk=chunk.chunk_index)
    if part is not None and not closed:
        services.objects.delete([part.key])


def return_chunk(
    services: Services,
    chunk: Chunk,
    outcomes: Mapping[int, RowOutcome],
    *,
    engine_died: bool,
    suspects: Sequence[Suspects],
) -> None:
    """Give an unfinished chunk back with a checkpoint of its finished rows, and who is suspected of its engine's death.

    Where the job began to be cancelled meanwhile, there is no next claim: what is finished becomes the part.
    """
    checkpoint = write_checkpoint(services, chunk, outcomes) if outcomes else None
    with services.database.transaction() as transaction:
        job = lock_job(transaction, chunk.job_id)
        cancelling = job.status == Status.CANCELLING
        if not cancelling:
            kept = give_back_chunk(
                transaction,
                chunk,
                dropped=job.status != Status.IN_PROGRESS,
                rows_done=len(outcomes),
                checkpoint=checkpoint,
                engine_died=engine_died,
                suspects=store_suspects(suspects),
            )
            if kept:
                ring_chunks(transaction, services, job, 1)
    if cancelling:
        close_chunk(services, chunk, outcomes)
        kept = False
    if checkpoint is not None and not kept:
        services.objects.delete([checkpoint.key])
    log.info("chunk_returned", job_id=chunk.job_id, chunk=chunk.chunk_index, rows=len(outcomes), kept=kept)


def count_down(transaction: Transaction, services: Services, job: Job, chunks: int = 1) -> Job:
    """Count ``chunks`` of a locked job as closed; at none left, the job goes on to its end."""
    job = update_job(transaction, job.id, {"chunks_open": job.chunks_open - chunks})
    if job.chunks_open > 0:
        return job
    if job.status == Status.IN_PROGRESS:
        job = move_job(transaction, services, job, Status.FINALIZING, {})
    job = set_step(transaction, job.id, Step.FINALIZE)
    ring_plan(transaction, services, job)
    return job


def fail_run(services: Services, chunk: Chunk) -> None:
    """End a job whose input is not the one that was checked: nothing of it is billed."""
    with services.database.transaction() as transaction:
        job = lock_job(transaction, chunk.job_id)
        if job.status not in (Status.IN_PROGRESS, Status.CANCELLING) or not _drop(transaction, chunk):
            return
        drop_open_chunks(transaction, job.id)
        end_job(
            transaction,
            services,
            job,
            Status.FAILED,
            changes={"failure_code": "invalid_input", "failure_reason": INPUT_CHANGED},
        )


def deliver_dropped_rows(services: Services, job_id: str) -> None:
    """Make the checkpoints of a stopped job's dropped chunks their parts: rows that ran are delivered and billed.

    Safe to repeat, and to do twice at once: a chunk takes one part only.
    """
    while True:
        with services.database.transaction() as transaction:
            chunks = list_dropped_with_rows(transaction, job_id)
        if not chunks:
            return
        for chunk in chunks:
            _deliver(services, chunk)


def _deliver(services: Services, chunk: Chunk) -> None:
    outcomes = read_checkpoint(services, chunk)
    if not outcomes:
        with services.database.transaction() as transaction:
            forget_checkpoint(transaction, chunk)
        return
    part = _write_part(services, chunk, outcomes)
    with services.database.transaction() as transaction:
        lock_job(transaction, chunk.job_id)
        taken = complete_chunk(transaction, chunk, count_rows(outcomes), part, held_as="dropped")
    log.info(
        "dropped_rows_delivered",
        job_id=chunk.job_id,
        chunk=chunk.chunk_index,
        rows=len(outcomes),
        taken=taken,
    )
    if not taken:
        services.objects.delete([part.key])


def count_rows(outcomes: Mapping[int, RowOutcome]) -> RowCounts:
    """Sum what became of rows and what is billed of them."""
    kinds = [outcome.kind for outcome in outcomes.values()]
    return RowCounts(
        success_rows=kinds.count(OutcomeKind.SUCCESS),
        error_rows=kinds.count(OutcomeKind.ERROR),
        format_error_rows=kinds.count(OutcomeKind.FORMAT_ERROR),
        truncated_rows=kinds.count(OutcomeKind.TRUNCATED),
        usage=sum((outcome.usage for outcome in outcomes.values()), Usage()),
    )


def _write_part(services: Services, chunk: Chunk, outcomes: Mapping[int, RowOutcome]) -> StoredObject:
    key = new_part_key(chunk.org_id, chunk.job_id, chunk.chunk_index, chunk.fence)
    with services.objects.open_writer(key) as writer:
        for row_number in sorted(outcomes):
            writer.write(outcomes[row_number].line)
    return StoredObject(key, writer.close())


def _drop(transaction: Transaction, chunk: Chunk) -> bool:
    return give_back_chunk(transaction, chunk, dropped=True, rows_done=0, checkpoint=None, engine_died=False)
