"""What an event says: the envelope and its data, encoded once for signing and sending.

Nothing of it is stored: each attempt tells what the job's row holds now, which for these fields is what it held then, less what was
deleted meanwhile. So a link is never older than the attempt, and no copy of a message outlives the job's data.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

import orjson

from anex.webhooks.model import EventType

if TYPE_CHECKING:
    from anex.inputs.model import Input
    from anex.jobs.model import Job
    from anex.services import Services
    from anex.webhooks.model import Delivery

_ESTIMATE = ("est_input_tok", "est_output_tok", "est_cost_cents")


def encode_job_event(services: Services, delivery: Delivery, job: Job | None) -> str:
    """Return the body of a job's event, or of a test, which is of no job."""
    timestamp = delivery.occurred_at.astimezone(UTC).isoformat(timespec="milliseconds")
    data = {"job_id": None} if job is None else _tell_job(services, delivery.type, job)
    return _encode(delivery, timestamp, data)


def encode_callback(delivery: Delivery, settled: Input) -> str:
    """Return the body of an ingest callback: how the copy ended, whatever became of the input since."""
    data = {
        "input_id": settled.id,
        "status": "ready" if delivery.type is EventType.INPUT_READY else "failed",
        "input_s3_uri": settled.object_uri,
        "error": settled.error,
    }
    return _encode(delivery, int(delivery.occurred_at.timestamp()), data)


def _tell_job(services: Services, event_type: EventType, job: Job) -> dict[str, Any]:
    if event_type is EventType.COST_READY:
        return {"job_id": job.id, **{name: getattr(job, name) for name in _ESTIMATE}}
    if event_type is EventType.COMPLETED:
        return {"job_id": job.id, "status": job.status, **_mint_link(services, job)}
    if event_type in (EventType.FAILED, EventType.CANCELLED):
        return {
            "job_id": job.id,
            "status": job.status,
            "partial": job.partial,
            "failure_code": job.failure_code,
            "failure_reason": job.failure_reason,
            **_mint_link(services, job),
        }
    return {"job_id": job.id}


def _mint_link(services: Services, job: Job) -> dict[str, Any]:
    """Return a fresh link to the result, or nulls where there is nothing to download, or no more."""
    if job.result_key is None or job.delete_requested or job.data_deleted_at is not None:
        return {"result_url": None, "result_expires_in": None}
    seconds = services.timings.result_link_seconds
    url = services.objects.presign_download(job.result_key, f"{job.id}.jsonl", seconds)
    return {"result_url": url, "result_expires_in": seconds}


def _encode(delivery: Delivery, timestamp: str | int, data: dict[str, Any]) -> str:
    envelope = {"type": delivery.type, "timestamp": timestamp, "id": delivery.event_id, "data": data}
    return orjson.dumps(envelope).decode()
