"""A customer's program over the generated client: one whole job, then what is refused. ``ORIGIN KEY MODEL ROWS``.

It is type-checked together with the generated package, so it uses each field as its type says: it narrows what may be null, and
nothing else. It prints what it saw as one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

# The package is made in a folder of the test; a checker that doesn't see that folder knows nothing of it.
from anex_batch_api_client import (  # type: ignore[import-not-found,unused-ignore]
    AuthenticatedClient,
    Client,
)
from anex_batch_api_client.api.inputs import (  # type: ignore[import-not-found,unused-ignore]
    create_input,
    get_input,
)
from anex_batch_api_client.api.jobs import (  # type: ignore[import-not-found,unused-ignore]
    approve_job,
    cancel_job,
    delete_data,
    get_job,
    get_result,
    submit_job,
)
from anex_batch_api_client.models import (  # type: ignore[import-not-found,unused-ignore]
    ChangedJob,
    CreatedInput,
    Deletion,
    ErrorBody,
    Input,
    InputFormat,
    InputRequest,
    InputStatus,
    Job,
    JobStatus,
    Result,
    SubmitRequest,
    TaskType,
)

if TYPE_CHECKING:
    from anex_batch_api_client.types import Response  # type: ignore[import-not-found,unused-ignore]

T = TypeVar("T")

PATIENCE_SECONDS = 90.0
PAUSE_SECONDS = 0.05


def need(answer: object, kind: type[T]) -> T:
    """Return the answer, which must be of this type."""
    if not isinstance(answer, kind):
        sys.exit(f"{kind.__name__} expected, not {answer!r}")
    return answer


def upload(client: AuthenticatedClient, rows: bytes) -> str:
    """Create an input and send its form; return its id."""
    body = InputRequest(format_=InputFormat.JSONL)
    created = need(create_input.sync(client=client, body=body), CreatedInput)
    if created.fields is None or created.upload_url is None or created.expires_at is None:
        sys.exit(f"no form: {created}")
    form = created.fields.additional_properties
    httpx.post(created.upload_url, data=form, files={"file": rows}).raise_for_status()
    found = need(get_input.sync(created.id, client=client), Input)
    if (found.status, found.error, found.input_s3_uri) != (InputStatus.READY, None, created.input_s3_uri):
        sys.exit(f"not ready: {found}")
    return str(found.id)


def poll(client: AuthenticatedClient, job_id: str, status: JobStatus) -> Job:
    """Return the job once it has this status."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause = threading.Event()
    while (job := need(get_job.sync(job_id, client=client), Job)).status is not status:
        if job.status is JobStatus.FAILED or time.monotonic() > deadline:
            sys.exit(f"not {status}: {job}")
        pause.wait(PAUSE_SECONDS)
    return job


def run_job(client: AuthenticatedClient, model: str, rows: bytes) -> tuple[str, dict[str, Any]]:
    """Take a job from its file to the deletion of its data; return its id and what was seen."""
    body = SubmitRequest(model=model, input_id=upload(client, rows), max_output_tokens=64)
    job_id: str = need(submit_job.sync(client=client, body=body), ChangedJob).id
    offered = poll(client, job_id, JobStatus.COST_READY)
    approved = need(approve_job.sync(job_id, client=client), ChangedJob)
    done = poll(client, job_id, JobStatus.DONE)
    result = need(get_result.sync(job_id, client=client), Result)
    lines = httpx.get(result.result_url).raise_for_status().text.splitlines()
    deleted = delete_data.sync_detailed(job_id, client=client)
    if done.finished_at is None or done.cost_cents is None or offered.est_cost_cents is None:
        sys.exit(f"unfinished: {done}")
    return job_id, {
        "approved": approved.status is JobStatus.IN_PROGRESS,
        "task": done.task_type is TaskType.CHAT,
        "seconds": (done.finished_at - done.created_at).total_seconds(),
        "within_estimate": done.cost_cents <= offered.est_cost_cents,
        "nulls": [offered.approved_at, offered.success_rows, done.failure_code, done.response_format],
        "rows": [result.row_count, len(lines), result.partial],
        "deleted": [deleted.status_code, need(deleted.parsed, Deletion).data_deleted_at is not None],
    }


def note(status: int, parsed: object) -> list[Any]:
    """Return a refusal's status, its code, and the fields that it names."""
    body = need(parsed, ErrorBody)
    if body.detail != body.error.message:
        sys.exit(f"two sentences: {body}")
    fields = sorted(body.errors.additional_properties) if body.errors else []
    return [status, body.error.code, fields]


async def await_refusal(client: AuthenticatedClient) -> Any:
    """Return a refusal that came the asynchronous way."""
    async with client:
        return await get_input.asyncio_detailed("inp_nobody", client=client)


def collect_refusals(origin: str, client: AuthenticatedClient, job_id: str) -> dict[str, list[Any]]:
    """Return what the client parses out of each kind of refusal; ``job_id`` is done and its data deleted."""
    bad_body = SubmitRequest(model="nobody-1b", input_id="inp_nobody")
    with Client(base_url=origin) as nobody, AuthenticatedClient(base_url=origin, token="sk-no") as stranger:
        answers: dict[str, Response[Any]] = {
            "no key": get_job.sync_detailed(job_id, client=nobody),
            "bad key": get_job.sync_detailed(job_id, client=stranger),
        }
    answers |= {
        "bad id": get_job.sync_detailed("job_nobody", client=client),
        "bad model": submit_job.sync_detailed(client=client, body=bad_body),
        "bad state": cancel_job.sync_detailed(job_id, client=client),
        "gone": get_result.sync_detailed(job_id, client=client),
        "no format": create_input.sync_detailed(client=client, body=InputRequest()),
        "awaited": asyncio.run(await_refusal(client)),
    }
    return {name: note(answer.status_code, answer.parsed) for name, answer in answers.items()}


def main(origin: str, key: str, model: str, rows: str) -> None:
    """Run the job, then ask for what is refused."""
    with AuthenticatedClient(base_url=origin, token=key) as client:
        job_id, seen = run_job(client, model, Path(rows).read_bytes())
        refusals = collect_refusals(origin, client, job_id)
    json.dump({"job": seen, "refusals": refusals}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
