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
    with services.database.transaction(caller.org_id) as transaction:
        return store.get_job(transaction, job_id, caller.org_id)
