"""The plan of a job: check its rows, count their tokens, give it a price."""

from __future__ import annotations

from anex.jobs.count import count_next_span
from anex.jobs.estimate import estimate_job
from anex.jobs.validate import validate_job
from tasks import names
from tasks.app import task
from tasks.process import process_services


@task(names.VALIDATE)
def validate(job_id: str) -> None:
    """Check a job's rows and cut its spans."""
    validate_job(process_services(), job_id)


@task(names.COUNT)
def count(job_id: str) -> None:
    """Count the tokens of one of a job's spans."""
    count_next_span(process_services(), job_id)


@task(names.ESTIMATE)
def estimate(job_id: str) -> None:
    """Price a job. The plan ends here."""
    estimate_job(process_services(), job_id)
