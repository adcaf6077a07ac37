"""Read a job as its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anex.jobs import store

if TYPE_CHECKING:
    from anex.jobs.model import Job
    from anex.orgs.model import Caller
    from anex.services import Services


def get_job(services: Services, caller: Caller, job_id: str) -> Job:
    """Return the organization's job. Raises ``JobNotFound``."""
    return store.get_job(services.database.reader(caller.org_id), job_id, caller.org_id)
