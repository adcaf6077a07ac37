"""Purge by age: results 30 days after their job's end, inputs 7 days after they landed, attempts at deliveries after 30 days.

Beat calls it for each region. All of it is safe to repeat, and to do twice at once; a storage error leaves the rest for the next
time. What a job that is not over reads is passed over. An input is barred to new jobs first, then its object goes, then it is
marked: a crash between leaves an input that nobody can use and that the next purge finds again, never an object behind a record
that says there is none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

from anex.errors import InputNotFound, StorageUnavailable
from anex.inputs.settle import settle_input
from anex.inputs.store import get_input
from anex.jobs.purge import purge_marked_job
from anex.object_keys import input_key

if TYPE_CHECKING:
    from anex.db import Database
    from anex.services import Services

BATCH = 500
"""Of each kind; the rest waits for the next time."""

log = structlog.get_logger(__name__)

_JOBS = """
SELECT id FROM jobs
WHERE region = %(region)s AND data_deleted_at IS NULL AND data_expires_at <= anex_now()
ORDER BY data_expires_at LIMIT %(batch)s
"""

_UPLOADS = """
SELECT id, org_id FROM inputs
WHERE region = %(region)s AND status = 'awaiting_upload'
  AND upload_expires_at <= anex_now() - %(grace)s * interval '1 second'
ORDER BY upload_expires_at LIMIT %(batch)s
"""

_IN_USE = """
EXISTS (SELECT 1 FROM jobs WHERE jobs.input_id = inputs.id AND jobs.status NOT IN ('done', 'failed', 'cancelled'))
"""

# An expired input without a mark is one whose upload never came, or whose purge was cut short: both may have left something.
_INPUTS = f"""
SELECT id, org_id FROM inputs
WHERE region = %(region)s AND data_deleted_at IS NULL
  AND (status = 'expired' OR (status = 'ready' AND data_expires_at <= anex_now() AND NOT {_IN_USE}))
ORDER BY created_at LIMIT %(batch)s
"""  # noqa: S608 - constants

_LOCK_INPUT = "SELECT 1 FROM inputs WHERE id = %(id)s FOR UPDATE"
_BAR = f"UPDATE inputs SET status = 'expired' WHERE id = %(id)s AND (status = 'expired' OR NOT {_IN_USE})"  # noqa: S608 - constants
_MARK = "UPDATE inputs SET data_deleted_at = anex_now() WHERE id = %(id)s AND data_deleted_at IS NULL"

_FORGET_ATTEMPTS = """
DELETE FROM delivery_attempts WHERE (event_id, attempt) IN (
    SELECT event_id, attempt FROM delivery_attempts
    WHERE begun_at <= anex_now() - %(seconds)s * interval '1 second' ORDER BY begun_at LIMIT %(batch)s)
"""


@dataclass(slots=True)
class Purged:
    """What was purged, or would be."""

    jobs: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    attempts: int = 0


def find_purgeable(database: Database, region: str) -> Purged:
    """Return what a region's purge would take now (of each kind a batch), and touch nothing."""
    jobs, inputs = (_list_due(database, region, query) for query in (_JOBS, _INPUTS))
    return Purged([row["id"] for row in jobs], [row["id"] for row in inputs])


def purge_by_age(services: Services) -> Purged:
    """Purge what is too old."""
    purged = Purged()
    try:
        _settle_uploads(services)
        _purge_jobs(services, purged)
        _purge_inputs(services, purged)
    except StorageUnavailable as unavailable:
        log.warning("purge_put_off", error=unavailable.message)
    purged.attempts = _forget_attempts(services)
    log.info("purged", jobs=len(purged.jobs), inputs=len(purged.inputs), attempts=purged.attempts)
    return purged


def _settle_uploads(services: Services) -> None:
    """Look once more for uploads whose time is over: those that never came expire."""
    wanted = {
        "region": services.region,
        "grace": services.timings.upload_grace_seconds,
        "batch": BATCH,
    }
    with services.database.transaction() as transaction:
        found = [
            get_input(transaction, row["org_id"], row["id"])
            for row in transaction.fetch_dicts(_UPLOADS, wanted)
        ]
    for waiting in found:
        settle_input(services, waiting)


def _purge_jobs(services: Services, purged: Purged) -> None:
    for row in _list_due(services.database, services.region, _JOBS):
        if purge_marked_job(services, row["id"]):
            purged.jobs.append(row["id"])


def _purge_inputs(services: Services, purged: Purged) -> None:
    for row in _list_due(services.database, services.region, _INPUTS):
        if not _bar_input(services, row["id"]):
            continue
        services.objects.erase(input_key(row["org_id"], row["id"]))
        with services.database.transaction() as transaction:
            transaction.execute(_MARK, {"id": row["id"]})
        purged.inputs.append(row["id"])


def _list_due(database: Database, region: str, query: str) -> list[dict[str, Any]]:
    with database.transaction() as transaction:
        return transaction.fetch_dicts(query, {"region": region, "batch": BATCH})


def _bar_input(services: Services, input_id: str) -> bool:
    """Keep new jobs from an input. False when one was faster: a submit holds the input's row until its job stands."""
    with services.database.transaction() as transaction:
        if transaction.execute(_LOCK_INPUT, {"id": input_id}) == 0:
            raise InputNotFound("no input has this id")
        return transaction.execute(_BAR, {"id": input_id}) == 1


def _forget_attempts(services: Services) -> int:
    wanted = {"seconds": services.timings.attempt_retention_seconds, "batch": BATCH}
    with services.database.transaction() as transaction:
        return transaction.execute(_FORGET_ATTEMPTS, wanted)
