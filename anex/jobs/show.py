"""Everything an operator asks of one job, read in one transaction: ``anex job show``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from anex.jobs.model import Step
from anex.jobs.store import get_job
from anex.jobs.transitions import Status
from anex.ledger.holds import find_hold
from anex.services import Timings
from anex.units.model import EngineState
from anex.units.store import list_units

if TYPE_CHECKING:
    from anex.db import Transaction
    from anex.jobs.model import Job
    from anex.units.model import UnitRow

HISTORY_MAX = 100
"""Events and actions that are shown; a job has at most nine events."""

_CHUNKS = """
SELECT state, count(*) AS chunks, coalesce(sum(row_count), 0)::bigint AS rows,
       coalesce(sum(rows_done), 0)::bigint AS rows_done, coalesce(sum(attempts), 0)::bigint AS attempts
FROM chunks WHERE job_id = %(job_id)s GROUP BY state ORDER BY state
"""

_LEASES = """
SELECT leased_by AS unit_id, count(*) AS chunks
FROM chunks WHERE job_id = %(job_id)s AND state = 'leased' GROUP BY leased_by ORDER BY leased_by
"""

_SAMPLE = """
SELECT jsonb_array_length(drawn -> 'rows') AS rows_drawn, jsonb_array_length(lengths) AS rows_answered, sampled_at,
       (SELECT percentile_disc(ARRAY[0.5, 0.95, 1.0]) WITHIN GROUP (ORDER BY (each ->> 'output')::integer)
        FROM jsonb_array_elements(lengths) AS each) AS output_quantiles,
       (SELECT count(*) FROM jsonb_array_elements(lengths) AS each WHERE (each ->> 'cut')::boolean) AS rows_cut
FROM samples WHERE job_id = %(job_id)s
"""

_EVENTS = """
SELECT job_events.at, from_status, to_status, key_id, api_keys.name AS key_name, api_keys.hint AS key_hint
FROM job_events LEFT JOIN api_keys ON api_keys.id = job_events.key_id
WHERE job_id = %(job_id)s ORDER BY job_events.at, job_events.id LIMIT %(limit)s
"""

_ACTIONS = """
SELECT job_actions.at, action, key_id, api_keys.name AS key_name, api_keys.hint AS key_hint
FROM job_actions LEFT JOIN api_keys ON api_keys.id = job_actions.key_id
WHERE job_id = %(job_id)s ORDER BY job_actions.id DESC LIMIT %(limit)s
"""

_JOB_FIELDS = (
    "id", "org_id", "region", "input_id", "status", "model", "model_revision", "task_type", "step", "rings",
    "success_rows", "error_rows", "format_error_rows", "truncated_rows", "pending_rows", "input_tokens", "output_tokens",
    "cost_cents", "failure_code", "failure_reason", "result_rows", "result_size_bytes", "delete_requested",
    "created_at", "cost_ready_at", "approval_expires_at", "approved_at", "finished_at", "data_expires_at", "data_deleted_at",
)  # fmt: skip

_PROGRESS_FIELDS = (
    "bytes_checked",
    "input_size_bytes",
    "rows_checked",
    "total_rows",
    "spans_open",
    "chunks_open",
)

_ESTIMATE_FIELDS = {
    "cost_cents": "est_cost_cents",
    "input_tokens": "est_input_tok",
    "output_tokens": "est_output_tok",
    "processing_seconds": "est_processing_seconds",
    "max_output_tokens": "max_output_tokens",
    "reasoning_budget": "reasoning_budget",
}


def describe_job(
    transaction: Transaction, job_id: str, *, alive_seconds: float = Timings().worker_alive_seconds
) -> dict[str, Any]:
    """Return a job with its progress, chunks, sample, money, history and units, as plain values. Raises ``JobNotFound``.

    ``rows_done`` counts the rows of complete chunks and, of the others, those in their latest checkpoints. ``waits_for`` says what
    holds the job up where that is not its own work.
    """
    job = get_job(transaction, job_id)
    named = {"job_id": job.id}
    hold = find_hold(transaction, job.id)
    chunks = transaction.fetch_dicts(_CHUNKS, named)
    units = [
        unit
        for unit in list_units(transaction, alive_seconds)
        if (unit.region, unit.model_queue) == (job.region, job.model_queue)
    ]
    return {
        **{name: getattr(job, name) for name in _JOB_FIELDS},
        "rows_done": sum(row["rows_done"] for row in chunks),
        "progress": {name: getattr(job, name) for name in _PROGRESS_FIELDS},
        "chunks": chunks,
        "sample": transaction.fetch_dict(_SAMPLE, named),
        "estimate": _describe_estimate(job),
        "hold": asdict(hold) if hold is not None else None,
        "events": transaction.fetch_dicts(_EVENTS, {**named, "limit": HISTORY_MAX}),
        "actions": transaction.fetch_dicts(_ACTIONS, {**named, "limit": HISTORY_MAX})[::-1],
        "run_by": transaction.fetch_dicts(_LEASES, named),
        "units": [asdict(unit) for unit in units],
        "waits_for": _describe_wait(job, units),
    }


def _describe_estimate(job: Job) -> dict[str, Any] | None:
    if job.est_cost_cents is None:
        return None
    estimate = {name: getattr(job, column) for name, column in _ESTIMATE_FIELDS.items()}
    # What is held for is the lower of two bounds: every row at its cap, and the sample's bound on the sum.
    return {**estimate, "output_tokens_at_cap": (job.total_rows or 0) * (job.max_output_tokens or 0)}


def _describe_wait(job: Job, units: list[UnitRow]) -> str | None:
    """Say what a job waits for: its owner, or a model that nobody can run now."""
    if job.status == Status.COST_READY:
        return "its approval"
    if job.step != Step.SAMPLE and job.status != Status.IN_PROGRESS:
        return None
    if not units:
        return f"a worker: no worker serves {job.model} in the region '{job.region}' yet"
    return None if any(_can_run(job, unit) for unit in units) else _describe_units(job, units)


def _can_run(job: Job, unit: UnitRow) -> bool:
    return unit.engine_state == EngineState.READY and job.model_revision in (None, unit.model_revision)


def _describe_units(job: Job, units: list[UnitRow]) -> str:
    if all(unit.engine_state == EngineState.READY for unit in units):
        served = ", ".join(sorted({unit.model_revision for unit in units}))
        return f"a worker that serves revision {job.model_revision} of {job.model}; those here serve {served}"
    states = ", ".join(f"{unit.id} is {unit.engine_state}" for unit in units)
    return f"an engine: {states}"
