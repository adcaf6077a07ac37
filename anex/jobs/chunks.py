"""The SQL on ``chunks``: the pieces that workers claim, run and complete under a lease with a fence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anex.db import Transaction
    from anex.estimating.chunks import ChunkPlan
    from anex.jobs.end import RowCounts
    from anex.jobs.model import Job
    from anex.s3 import ObjectHead
    from anex.units.model import Unit

CLAIM_CANDIDATES_MAX = 16
"""Jobs that one claim looks at; the fairest has work in nearly every case."""

DELIVERED_AT_ONCE = 100
"""Dropped chunks that are looked at together when what they left is delivered."""

_INSERT = """
INSERT INTO chunks (job_id, chunk_index, org_id, model_queue, first_row, row_count, first_line, start_byte, end_byte,
                    expected_tokens, expected_seconds, state)
VALUES (%(job_id)s, %(chunk_index)s, %(org_id)s, %(model_queue)s, %(first_row)s, %(row_count)s, %(first_line)s, %(start_byte)s,
        %(end_byte)s, %(expected_tokens)s, %(expected_seconds)s, 'planned')
"""

# The job with the least work leased comes first, then the one approved first: ten rows pass beside ten million.
_CANDIDATES = """
SELECT jobs.id AS job_id
FROM jobs
CROSS JOIN LATERAL (
    SELECT coalesce(sum(expected_tokens), 0) AS tokens FROM chunks WHERE job_id = jobs.id AND state = 'leased') AS leased
WHERE jobs.model_queue = %(model_queue)s AND jobs.status = 'in_progress' AND jobs.region = %(region)s
  AND jobs.model_revision = %(model_revision)s
  AND EXISTS (SELECT 1 FROM chunks WHERE job_id = jobs.id AND state = 'ready')
ORDER BY leased.tokens, jobs.approved_at, jobs.id
LIMIT %(limit)s
"""

_CLAIM = """
UPDATE chunks SET state = 'leased', fence = fence + 1, leased_by = %(unit_id)s, claimed_at = anex_now(),
                  lease_until = anex_now() + %(lease)s * interval '1 second'
WHERE (job_id, chunk_index) = (
    SELECT job_id, chunk_index FROM chunks WHERE job_id = %(job_id)s AND state = 'ready'
    ORDER BY chunk_index LIMIT 1 FOR UPDATE SKIP LOCKED)
  AND EXISTS (SELECT 1 FROM jobs WHERE id = %(job_id)s AND status = 'in_progress')
RETURNING job_id, chunk_index, org_id, fence, first_row, row_count, first_line, start_byte, end_byte, checkpoint_key,
          checkpoint_etag, suspects
"""

_COMPLETE = """
UPDATE chunks SET state = 'done', lease_until = NULL, ran_by = leased_by, leased_by = NULL, ended_at = anex_now(),
    checkpoint_key = NULL, checkpoint_etag = NULL, suspects = NULL,
    rows_done = %(rows_done)s, success_rows = %(success_rows)s, error_rows = %(error_rows)s,
    format_error_rows = %(format_error_rows)s, truncated_rows = %(truncated_rows)s,
    input_tokens = %(input_tokens)s, output_tokens = %(output_tokens)s, media_tokens = %(media_tokens)s,
    images = %(images)s, clips = %(clips)s, clip_milliseconds = %(clip_milliseconds)s,
    part_key = %(part_key)s, part_etag = %(part_etag)s, part_size_bytes = %(part_size_bytes)s
WHERE job_id = %(job_id)s AND chunk_index = %(chunk_index)s AND fence = %(fence)s AND state = %(held_as)s
"""

_GIVE_BACK = """
UPDATE chunks SET state = %(state)s, lease_until = NULL, leased_by = NULL, attempts = attempts + %(attempts)s,
    rows_done = %(rows_done)s, checkpoint_key = coalesce(%(checkpoint_key)s, checkpoint_key),
    checkpoint_etag = coalesce(%(checkpoint_etag)s, checkpoint_etag), suspects = %(suspects)s
WHERE job_id = %(job_id)s AND chunk_index = %(chunk_index)s AND fence = %(fence)s AND state = 'leased'
"""

_CHECKPOINT = """
UPDATE chunks SET rows_done = %(rows_done)s, checkpoint_key = %(checkpoint_key)s, checkpoint_etag = %(checkpoint_etag)s
WHERE job_id = %(job_id)s AND chunk_index = %(chunk_index)s AND fence = %(fence)s AND state = 'leased'
"""

_DROPPED_WITH_ROWS = """
SELECT job_id, chunk_index, org_id, fence, first_row, row_count, first_line, start_byte, end_byte, checkpoint_key,
       checkpoint_etag, suspects
FROM chunks WHERE job_id = %(job_id)s AND state = 'dropped' AND checkpoint_key IS NOT NULL
ORDER BY chunk_index LIMIT %(batch)s
"""

_PARTS = """
SELECT part_key AS key, part_etag AS etag, part_size_bytes AS size_bytes
FROM chunks WHERE job_id = %(job_id)s AND state = 'done' ORDER BY chunk_index
"""

_SUMS = """
SELECT coalesce(sum(success_rows), 0)::bigint AS success_rows, coalesce(sum(error_rows), 0)::bigint AS error_rows,
       coalesce(sum(format_error_rows), 0)::bigint AS format_error_rows,
       coalesce(sum(truncated_rows), 0)::bigint AS truncated_rows,
       coalesce(sum(input_tokens), 0)::bigint AS input_tokens, coalesce(sum(output_tokens), 0)::bigint AS output_tokens,
       coalesce(sum(media_tokens), 0)::bigint AS media_tokens, coalesce(sum(images), 0)::bigint AS images,
       coalesce(sum(clips), 0)::bigint AS clips, coalesce(sum(clip_milliseconds), 0)::bigint AS clip_milliseconds
FROM chunks WHERE job_id = %(job_id)s AND state = 'done'
"""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk under this process's lease; ``fence`` proves it."""

    job_id: str
    chunk_index: int
    org_id: str
    fence: int
    first_row: int
    row_count: int
    first_line: int
    start_byte: int
    end_byte: int
    checkpoint_key: str | None
    checkpoint_etag: str | None
    suspects: list[list[Any]] | None
    """Rows that may have killed their engine, as ``anex.jobs.suspects`` keeps them."""

    @property
    def claim(self) -> dict[str, Any]:
        """Return what a guarded UPDATE of this chunk is guarded by."""
        return {"job_id": self.job_id, "chunk_index": self.chunk_index, "fence": self.fence}


@dataclass(frozen=True, slots=True)
class StoredObject:
    """A part or a checkpoint in the bucket."""

    key: str
    head: ObjectHead


def insert_chunks(transaction: Transaction, job: Job, plans: Sequence[ChunkPlan]) -> None:
    """Store a job's chunks, ``planned`` until it is approved."""
    owner = {"job_id": job.id, "org_id": job.org_id, "model_queue": job.model_queue}
    transaction.execute_many(
        _INSERT,
        [
            {
                **owner,
                "chunk_index": index,
                "first_row": plan.first_row,
                "row_count": plan.rows,
                "first_line": plan.first_line,
                "start_byte": plan.start_byte,
                "end_byte": plan.end_byte,
                "expected_tokens": plan.expected_tokens,
                "expected_seconds": plan.expected_seconds,
            }
            for index, plan in enumerate(plans)
        ],
    )


def release_chunks(transaction: Transaction, job_id: str) -> int:
    """Make a job's planned chunks claimable; return how many there are."""
    return transaction.execute(
        "UPDATE chunks SET state = 'ready' WHERE job_id = %(job_id)s AND state = 'planned'",
        {"job_id": job_id},
    )


def drop_unstarted_chunks(transaction: Transaction, job_id: str) -> int:
    """Drop the chunks that nobody runs; return how many there were."""
    return transaction.execute(
        "UPDATE chunks SET state = 'dropped' WHERE job_id = %(job_id)s AND state IN ('planned', 'ready')",
        {"job_id": job_id},
    )


def drop_open_chunks(transaction: Transaction, job_id: str) -> None:
    """Drop every chunk that is not complete, those under a lease too: their holders find that out when they write."""
    transaction.execute(
        "UPDATE chunks SET state = 'dropped', lease_until = NULL, leased_by = NULL"
        " WHERE job_id = %(job_id)s AND state IN ('planned', 'ready', 'leased')",
        {"job_id": job_id},
    )


def has_delivered_rows(transaction: Transaction, job_id: str) -> bool:
    """Whether rows of the job ran or are running: a chunk is leased or complete, or left finished rows in a checkpoint."""
    row = transaction.fetch_dict(
        "SELECT EXISTS (SELECT 1 FROM chunks WHERE job_id = %(job_id)s"
        " AND (state IN ('leased', 'done') OR checkpoint_key IS NOT NULL)) AS found",
        {"job_id": job_id},
    )
    return row is not None and bool(row["found"])


def list_dropped_with_rows(transaction: Transaction, job_id: str) -> list[Chunk]:
    """Return some of the dropped chunks that left finished rows in a checkpoint, in input order."""
    return transaction.fetch_all(Chunk, _DROPPED_WITH_ROWS, {"job_id": job_id, "batch": DELIVERED_AT_ONCE})


def claim_chunk(transaction: Transaction, unit: Unit, lease_seconds: float) -> Chunk | None:
    """Claim the next chunk for a unit: of the fairest job that has one ready, the first."""
    wanted = {
        "region": unit.region,
        "model_queue": unit.model_queue,
        "model_revision": unit.model_revision,
        "limit": CLAIM_CANDIDATES_MAX,
    }
    for candidate in transaction.fetch_dicts(_CANDIDATES, wanted):
        chunk = transaction.fetch_one(
            Chunk, _CLAIM, {**candidate, "unit_id": unit.id, "lease": lease_seconds}
        )
        if chunk is not None:
            return chunk
    return None


def complete_chunk(
    transaction: Transaction,
    chunk: Chunk,
    counts: RowCounts,
    part: StoredObject,
    *,
    held_as: Literal["leased", "dropped"] = "leased",
) -> bool:
    """Record a chunk's part as its one result. False when it is no longer ``held_as``: what was written is nobody's."""
    return (
        transaction.execute(
            _COMPLETE,
            {
                **chunk.claim,
                "held_as": held_as,
                "rows_done": counts.delivered_rows,
                **counts.flat(),
                "part_key": part.key,
                "part_etag": part.head.etag,
                "part_size_bytes": part.head.size_bytes,
            },
        )
        == 1
    )


def give_back_chunk(
    transaction: Transaction,
    chunk: Chunk,
    *,
    dropped: bool,
    rows_done: int,
    checkpoint: StoredObject | None,
    engine_died: bool,
    suspects: list[list[Any]] | None = None,
) -> bool:
    """Return a leased chunk: ``ready`` for the next claim, or dropped. False when the lease was lost."""
    values = {
        **chunk.claim,
        "state": "dropped" if dropped else "ready",
        "attempts": int(engine_died),
        "suspects": None if suspects is None else Jsonb(suspects),
        "rows_done": rows_done,
        **_checkpoint_values(checkpoint),
    }
    return transaction.execute(_GIVE_BACK, values) == 1


def note_checkpoint(transaction: Transaction, chunk: Chunk, rows_done: int, checkpoint: StoredObject) -> bool:
    """Record a checkpoint of a leased chunk. False when the lease was lost."""
    values = {**chunk.claim, "rows_done": rows_done, **_checkpoint_values(checkpoint)}
    return transaction.execute(_CHECKPOINT, values) == 1


def forget_checkpoint(transaction: Transaction, chunk: Chunk) -> None:
    """Take the checkpoint off a dropped chunk: its object is gone."""
    transaction.execute(
        "UPDATE chunks SET checkpoint_key = NULL, checkpoint_etag = NULL, rows_done = 0"
        " WHERE job_id = %(job_id)s AND chunk_index = %(chunk_index)s AND fence = %(fence)s AND state = 'dropped'",
        chunk.claim,
    )


def list_parts(transaction: Transaction, job_id: str) -> list[dict[str, Any]]:
    """Return key, ETag and size of a job's parts, in input order."""
    return transaction.fetch_dicts(_PARTS, {"job_id": job_id})


def sum_chunks(transaction: Transaction, job_id: str) -> dict[str, int]:
    """Return the row counts and tokens of a job's complete chunks."""
    row = transaction.fetch_dict(_SUMS, {"job_id": job_id})
    return {name: int(value) for name, value in (row or {}).items()}


def _checkpoint_values(checkpoint: StoredObject | None) -> dict[str, str | None]:
    if checkpoint is None:
        return {"checkpoint_key": None, "checkpoint_etag": None}
    return {"checkpoint_key": checkpoint.key, "checkpoint_etag": checkpoint.head.etag}
