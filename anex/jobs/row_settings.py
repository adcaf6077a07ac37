"""What a job's own columns say about each of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anex.rows.settings import RowSettings

if TYPE_CHECKING:
    from anex.jobs.model import Job


def row_settings_of(job: Job) -> RowSettings:
    """Return the job-level settings that rows are checked, counted, sampled and run with."""
    return RowSettings(
        reasoning=job.reasoning,
        reasoning_budget=job.asked_budget,
        reasoning_effort=job.reasoning_effort,
        response_format=job.response_format,
    )
