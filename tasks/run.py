"""The end of a run; its chunks are run by the GPU units."""

from __future__ import annotations

from anex.jobs.finalize import finalize_job
from tasks import names
from tasks.app import task
from tasks.process import process_services


@task(names.FINALIZE)
def finalize(job_id: str) -> None:
    """Join a job's parts into its result and charge it."""
    finalize_job(process_services(), job_id)
