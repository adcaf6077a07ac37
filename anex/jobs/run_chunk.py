"""Run one chunk: claim it, feed its rows, and leave exactly one trace of it.

A chunk ends in one of four ways, each one guarded UPDATE in one transaction: complete (its part counts and is billed), given back
with a checkpoint (drain, engine death), settled short (the job is being cancelled: what is finished becomes the part), or lost
(another holds the lease now: what was done here counts nowhere).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from anex.errors import (
    BrokerUnavailable,
    DatabaseUnavailable,
    ObjectChanged,
    ObjectMissing,
    StorageUnavailable,
)
from anex.jobs.asking import make_asker
from anex.jobs.checkpoints import read_checkpoint, write_checkpoint
from anex.jobs.chunk_end import close_chunk, fail_run, return_chunk
from anex.jobs.chunk_rows import ChunkRows
from anex.jobs.chunks import claim_chunk, note_checkpoint
from anex.jobs.store import get_job
from anex.jobs.suspects import load_suspects
from anex.object_keys import input_key
from anex.rows.decode import iterate_rows, line_format
from anex.units.model import Lease

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anex.jobs.chunks import Chunk
    from anex.jobs.model import Job
    from anex.rows.result import RowOutcome
    from anex.services import Engine, Services
    from anex.units.model import HeldLeases, StopSignals, Unit

log = structlog.get_logger(__name__)


def run_next_chunk(
    services: Services, engine: Engine, unit: Unit, stop: StopSignals, leases: HeldLeases
) -> bool:
    """Claim one chunk of the unit's model and run it. False when nothing is to be had, or not now.

    ``leases`` knows the chunk for as long as it is run here, and no longer.
    """
    with services.database.transaction() as transaction:
        chunk = claim_chunk(transaction, unit, services.timings.lease_seconds)
        if chunk is None:
            return False
        job = get_job(transaction, chunk.job_id)
    log.info("chunk_claimed", job_id=job.id, chunk=chunk.chunk_index, fence=chunk.fence)
    try:
        with leases.holding(Lease(chunk.job_id, chunk.chunk_index, chunk.fence)):
            return _run(services, engine, job, chunk, stop)
    except (ObjectChanged, ObjectMissing):
        fail_run(services, chunk)
        return True
    except (DatabaseUnavailable, StorageUnavailable, BrokerUnavailable) as unavailable:
        # The lease runs out and the chunk runs again from its last checkpoint; a tight loop would help nobody.
        log.warning("chunk_interrupted", job_id=job.id, chunk=chunk.chunk_index, error=unavailable.message)
        return False


def _run(services: Services, engine: Engine, job: Job, chunk: Chunk, stop: StopSignals) -> bool:
    outcomes = read_checkpoint(services, chunk)
    progress = partial(_write_progress, services, chunk, outcomes)
    suspects = load_suspects(chunk.suspects)
    rows = ChunkRows(services, engine, make_asker(services, job), job.id, stop, outcomes, progress, suspects)
    lines = iterate_rows(
        services.objects.stream(
            input_key(job.org_id, job.input_id), chunk.start_byte, chunk.end_byte, job.input_etag
        ),
        line_format(services.catalog.get(job.model)),
        start_byte=chunk.start_byte,
        first_line=chunk.first_line,
        first_row=chunk.first_row,
    )
    rows.run(lines)
    if len(rows.outcomes) == chunk.row_count or stop.is_stopped(job.id):
        close_chunk(services, chunk, rows.outcomes)
        return True
    return_chunk(services, chunk, rows.outcomes, engine_died=rows.engine_died, suspects=rows.suspects)
    return not rows.engine_died


def _write_progress(services: Services, chunk: Chunk, outcomes: Mapping[int, RowOutcome]) -> None:
    """Write a checkpoint of a chunk that goes on."""
    checkpoint = write_checkpoint(services, chunk, outcomes)
    with services.database.transaction() as transaction:
        kept = note_checkpoint(transaction, chunk, len(outcomes), checkpoint)
    if not kept:
        services.objects.delete([checkpoint.key])
