"""Hand out a link to a job's result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anex.errors import DataDeleted, ResultUnavailable
from anex.jobs.read import get_job
from anex.residency import require_region

if TYPE_CHECKING:
    from anex.jobs.model import Job
    from anex.orgs.model import Caller
    from anex.services import Services


@dataclass(frozen=True, slots=True)
class ResultLink:
    """A presigned link, how long it stays valid, and the number of lines behind it."""

    job: Job
    result_url: str
    expires_in: int
    row_count: int


def get_result(services: Services, caller: Caller, job_id: str) -> ResultLink:
    """Mint a fresh link to the result.

    Raises ``JobNotFound``, ``RegionElsewhere``, ``DataDeleted`` once the data is gone,
    ``ResultUnavailable`` where there is nothing to download.
    """
    job = get_job(services, caller, job_id)
    require_region(services, job.region, "job")
    if job.data_deleted_at is not None:
        raise DataDeleted("the job's data has been deleted")
    if job.delete_requested:
        raise ResultUnavailable("the job's result was deleted on request")
    if job.result_key is None:
        waiting = "has no result yet" if not job.is_terminal else "ended without a result"
        raise ResultUnavailable(f"the job is {job.status} and {waiting}")
    seconds = services.timings.result_link_seconds
    url = services.objects.presign_download(job.result_key, f"{job.id}.jsonl", seconds)
    return ResultLink(job, url, seconds, job.result_rows or 0)
