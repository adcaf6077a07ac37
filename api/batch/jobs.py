"""``/batch/v1/jobs``: from submit to the deletion of the data. Each route is one call of the core."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from anex.jobs.approve import approve_job
from anex.jobs.cancel import cancel_job
from anex.jobs.delete import delete_data
from anex.jobs.read import get_job
from anex.jobs.result import get_result
from anex.jobs.submit import submit_job
from api.batch.job_schemas import ChangedJobSchema, DeletionSchema, JobSchema, ResultSchema
from api.batch.submit_schema import SubmitRequestSchema
from api.blueprint import ApiBlueprint
from api.context import caller, services

if TYPE_CHECKING:
    from anex.jobs.delete import Deletion
    from anex.jobs.model import Job
    from anex.jobs.result import ResultLink
    from anex.jobs.submit_rules import SubmitRequest

jobs = ApiBlueprint("jobs", __name__, url_prefix="/batch/v1", description="One model over one input.")


@jobs.endpoint(
    "POST",
    "/jobs",
    "submitJob",
    body=SubmitRequestSchema,
    answer=ChangedJobSchema,
    errors=(400, 402, 403, 404, 409, 413, 421, 429),
)
def submit(asked: SubmitRequest) -> Job:
    """Submit a job: an input and a model."""
    return submit_job(services(), caller(), asked)


@jobs.endpoint("GET", "/jobs/<job_id>", "getJob", answer=JobSchema, errors=(404,))
def read(job_id: str) -> Job:
    """Poll a job for its status, estimate and row counts."""
    return get_job(services(), caller(), job_id)


@jobs.endpoint(
    "POST", "/jobs/<job_id>/approve", "approveJob", answer=ChangedJobSchema, errors=(402, 404, 409, 413)
)
def approve(job_id: str) -> Job:
    """Approve the estimate: it is held on the balance, and paid work starts."""
    return approve_job(services(), caller(), job_id)


@jobs.endpoint("POST", "/jobs/<job_id>/cancel", "cancelJob", answer=ChangedJobSchema, errors=(404, 409, 413))
def cancel(job_id: str) -> Job:
    """Cancel a job; one whose rows run already answers `cancelling`."""
    return cancel_job(services(), caller(), job_id)


@jobs.endpoint("GET", "/jobs/<job_id>/result", "getResult", answer=ResultSchema, errors=(404, 409, 410, 421))
def result(job_id: str) -> ResultLink:
    """Get a fresh link to the result file."""
    return get_result(services(), caller(), job_id)


@jobs.endpoint(
    "DELETE",
    "/jobs/<job_id>/data",
    "deleteData",
    answer=DeletionSchema,
    accepted="The data is deleted once the job has stopped.",
    errors=(404, 409, 413),
)
def delete(job_id: str) -> tuple[Deletion, HTTPStatus]:
    """Delete a job's input and result now; a job in flight is cancelled first."""
    deletion = delete_data(services(), caller(), job_id)
    return deletion, HTTPStatus.OK if deletion.message is None else HTTPStatus.ACCEPTED
