"""Shapes of the answers of ``/jobs``."""

from __future__ import annotations

from marshmallow.fields import Constant, Dict, String
from marshmallow.validate import OneOf

from anex.jobs.transitions import Status
from anex.regions import REGIONS
from api.fields import StrictBoolean, StrictInteger, StrictNumber, Timestamp
from api.schema import JOB_ID, TIME, AnswerSchema, about


class ChangedJobSchema(AnswerSchema):
    """A job after something was done to it."""

    id = String(metadata=about("The job's id.", example=JOB_ID))
    status = String(
        validate=OneOf([status.value for status in Status]),
        metadata=about("The job's state.", example="submitted"),
    )


class JobSchema(ChangedJobSchema):
    """Answer of ``GET /jobs/{id}``."""

    est_input_tok = StrictInteger(allow_none=True, metadata=about("Estimated input tokens.", example=120000))
    est_output_tok = StrictInteger(allow_none=True, metadata=about("Estimated output tokens.", example=40000))
    est_cost_cents = StrictInteger(
        allow_none=True, metadata=about("What approval holds, and the most that is charged.", example=72)
    )
    est_processing_seconds = StrictInteger(
        allow_none=True, metadata=about("Expected time from approval to result.", example=900)
    )
    max_output_tokens = StrictInteger(
        allow_none=True, metadata=about("The effective output cap of a row.", example=600)
    )
    max_tokens = StrictInteger(
        attribute="max_output_tokens",
        allow_none=True,
        metadata={**about("The former name of max_output_tokens.", example=600), "deprecated": True},
    )
    reasoning_budget = StrictInteger(allow_none=True, metadata=about("The effective thinking budget."))
    success_rows = StrictInteger(allow_none=True, metadata=about("Rows with an answer; null until the end."))
    error_rows = StrictInteger(allow_none=True, metadata=about("Rows that failed."))
    format_error_rows = StrictInteger(
        allow_none=True, metadata=about("Rows whose answer breaks the response_format.")
    )
    truncated_rows = StrictInteger(allow_none=True, metadata=about("Rows that stopped at the output cap."))
    pending_rows = StrictInteger(allow_none=True, metadata=about("Rows that did not run."))
    created_at = Timestamp(metadata=about("When the job was submitted.", example=TIME))
    approved_at = Timestamp(allow_none=True, metadata=about("When its estimate was approved."))
    finished_at = Timestamp(allow_none=True, metadata=about("When it ended."))
    data_expires_at = Timestamp(allow_none=True, metadata=about("When its result will be deleted."))
    data_deleted_at = Timestamp(allow_none=True, metadata=about("When its data was deleted."))
    is_partial = StrictBoolean(
        data_key="partial",
        attribute="partial",
        allow_none=True,
        metadata=about("Whether a job that was stopped or failed has a result."),
    )
    failure_code = String(
        validate=OneOf(["invalid_input", "internal_error"]),
        allow_none=True,
        metadata=about("Of a failed job."),
    )
    failure_reason = String(allow_none=True, metadata=about("Why the job failed, and the fix."))
    cost_cents = StrictInteger(
        allow_none=True, metadata=about("The charge; null until the end, 0 when free.")
    )
    model = String(metadata=about("The model it runs on.", example="qwen3.8-27b"))
    reasoning = StrictBoolean(allow_none=True, metadata=about("The thinking setting that was given."))
    reasoning_effort = String(allow_none=True, metadata=about("The thinking effort that was given."))
    task_type = String(
        validate=OneOf(["chat", "embed", "decide"]), metadata=about("What a row is.", example="chat")
    )
    format = Constant("jsonl", metadata={"type": "string", **about("The input's format.", example="jsonl")})
    response_format = Dict(allow_none=True, metadata=about("The structured output that was given."))
    dimensions = StrictInteger(allow_none=True, metadata=about("The vectors' width; null for the full one."))
    video_fps = StrictNumber(allow_none=True, metadata=about("The sampling rate that was given."))
    data_residency = String(
        attribute="region", validate=OneOf(REGIONS), metadata=about("Where its payload is.", example="world")
    )


class ResultSchema(AnswerSchema):
    """Answer of ``GET /jobs/{id}/result``."""

    id = String(attribute="job.id", metadata=about("The job's id.", example=JOB_ID))
    status = String(
        attribute="job.status",
        validate=OneOf(["done", "failed", "cancelled"]),
        metadata=about("The job's state.", example="done"),
    )
    result_url = String(metadata=about("GET it to download the file.", example="https://s3.example.com/…"))
    expires_in = StrictInteger(metadata=about("Seconds for which the link is valid.", example=3600))
    is_partial = StrictBoolean(
        data_key="partial",
        attribute="job.partial",
        metadata=about("Whether rows are missing.", example=False),
    )
    row_count = StrictInteger(metadata=about("Lines in the file.", example=1000))


class DeletionSchema(AnswerSchema):
    """Answer of ``DELETE /jobs/{id}/data``."""

    id = String(attribute="job.id", metadata=about("The job's id.", example=JOB_ID))
    status = String(
        attribute="job.status",
        validate=OneOf([status.value for status in Status]),
        metadata=about("The job's state.", example="done"),
    )
    data_deleted_at = Timestamp(
        attribute="job.data_deleted_at",
        allow_none=True,
        metadata=about("Null while it is to come.", example=TIME),
    )
    message = String(allow_none=True, metadata=about("What is still to come; null when all is gone."))
