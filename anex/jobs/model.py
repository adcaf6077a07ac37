"""A job as the database holds it, and the names of its steps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from anex.jobs.transitions import TERMINAL, Status

if TYPE_CHECKING:
    from datetime import datetime


class Step(StrEnum):
    """What has to be done next for a job that is not waiting for a person or for its chunks."""

    VALIDATE = "validate"
    COUNT = "count"
    SAMPLE = "sample"
    ESTIMATE = "estimate"
    FINALIZE = "finalize"


@dataclass(frozen=True, slots=True)
class Job:
    """One row of ``jobs``. Fields are explained where the table is made (``migrations/sql``)."""

    id: str
    org_id: str
    region: str
    input_id: str
    status: str
    model: str
    model_queue: str
    task_type: str
    asked_max_tokens: int | None
    asked_budget: int | None
    reasoning: bool | None
    reasoning_effort: str | None
    video_fps: float | None
    dimensions: int | None
    response_format: dict[str, Any] | None
    samples_rows: bool
    step: str | None
    step_fence: int
    step_lease_until: datetime | None
    step_started_at: datetime | None
    rung_at: datetime
    rings: int
    bytes_checked: int
    rows_checked: int
    spans_open: int
    chunks_open: int
    input_etag: str | None
    input_size_bytes: int | None
    total_rows: int | None
    clip_lengths: dict[str, Any] | None
    est_input_tok: int | None
    est_output_tok: int | None
    est_cost_cents: int | None
    est_processing_seconds: int | None
    max_output_tokens: int | None
    reasoning_budget: int | None
    terms: dict[str, Any] | None
    model_revision: str | None
    catalog_hash: str | None
    success_rows: int | None
    error_rows: int | None
    format_error_rows: int | None
    truncated_rows: int | None
    pending_rows: int | None
    input_tokens: int | None
    output_tokens: int | None
    cost_cents: int | None
    failure_code: str | None
    failure_reason: str | None
    result_key: str | None
    result_etag: str | None
    result_size_bytes: int | None
    result_rows: int | None
    delete_requested: bool
    created_at: datetime
    cost_ready_at: datetime | None
    approval_expires_at: datetime | None
    approved_at: datetime | None
    finished_at: datetime | None
    data_expires_at: datetime | None
    data_deleted_at: datetime | None

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return Status(self.status) in TERMINAL

    @property
    def partial(self) -> bool | None:
        """True on a failed or cancelled job that has a result; None before the end."""
        if not self.is_terminal:
            return None
        return self.status != Status.DONE and self.result_key is not None
