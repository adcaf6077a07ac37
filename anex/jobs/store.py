"""The SQL on ``jobs`` and ``job_events``: reading, inserting, and the one way a job changes its state.

A transition writes its event, and what is to be told of it, in its own transaction: neither is lost, or tells of what never was.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from psycopg.sql import SQL, Identifier, Placeholder
from psycopg.types.json import Json, Jsonb

from anex.errors import JobNotFound, JobStateConflict
from anex.ids import is_id, new_id
from anex.jobs.model import Job, Step
from anex.jobs.transitions import TERMINAL, Status, sources_of
from anex.webhooks.outbox import announce_job

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from anex.db import Reader, Transaction
    from anex.webhooks.outbox import Surroundings

_COLUMNS = SQL(", ").join(Identifier(field.name) for field in fields(Job))

_SELECT = SQL(
    "SELECT {} FROM jobs WHERE id = %(job_id)s AND (%(org_id)s::text IS NULL OR org_id = %(org_id)s)"
).format(_COLUMNS)
_SELECT_TEXT = _SELECT.as_string()
"""Made once: putting sixty names together for each poll takes as long as reading the row."""

_INSERT = SQL(
    "INSERT INTO jobs ({columns}, created_at, rung_at) VALUES ({values}, anex_now(), anex_now()) RETURNING {all}"
)

_UPDATE = SQL("UPDATE jobs SET {changes} WHERE id = %(job_id)s RETURNING {all}")

_INSERT_EVENT = """
INSERT INTO job_events (id, org_id, job_id, from_status, to_status, at, key_id)
VALUES (%(id)s, %(org_id)s, %(job_id)s, %(from_status)s, %(to_status)s, anex_now(), %(key_id)s) RETURNING at
"""

_INSERT_ACTION = """
INSERT INTO job_actions (org_id, job_id, action, key_id, at)
VALUES (%(org_id)s, %(job_id)s, %(action)s, %(key_id)s, anex_now())
"""


def get_job(reader: Reader, job_id: str, org_id: str | None = None) -> Job:
    """Return the job; a request names its organization, planners and workers serve all.

    Raises ``JobNotFound``, for a malformed id and another organization's too.
    """
    values = {"job_id": job_id, "org_id": org_id}
    job = reader.fetch_one(Job, _SELECT_TEXT, values) if is_id("job", job_id) else None
    if job is None:
        raise JobNotFound("no job has this id")
    return job


def lock_job(transaction: Transaction, job_id: str, org_id: str | None = None) -> Job:
    """Return the job, its row locked to the end of the transaction. Lock order: job, then its pieces, then money.

    Like ``get_job`` otherwise.
    """
    statement = _SELECT + SQL(" FOR UPDATE")
    values = {"job_id": job_id, "org_id": org_id}
    job = transaction.fetch_one(Job, statement, values) if is_id("job", job_id) else None
    if job is None:
        raise JobNotFound("no job has this id")
    return job


def insert_job(
    transaction: Transaction, services: Surroundings, values: Mapping[str, Any], key_id: str | None
) -> Job:
    """Insert a job in its first state, with its first event. ``values`` are columns of ``jobs``."""
    statement = _INSERT.format(
        columns=SQL(", ").join(map(Identifier, values)),
        values=SQL(", ").join(map(Placeholder, values)),
        all=_COLUMNS,
    )
    job = transaction.fetch_one(Job, statement, _adapt(values))
    if job is None:
        raise RuntimeError("an insert returned no row")
    _insert_event(transaction, services, job, None, key_id)
    return job


def move_job(
    transaction: Transaction,
    services: Surroundings,
    job: Job,
    target: Status,
    changes: Mapping[str, Any],
    *,
    key_id: str | None = None,
) -> Job:
    """Move a locked job to ``target``, write ``changes`` with it, and the transition's event.

    ``job`` must come from ``lock_job`` in the same transaction. A terminal state ends its step. Raises ``JobStateConflict``
    when the job is in no state that leads to ``target``.
    """
    if job.status not in sources_of(target):
        raise JobStateConflict(f"the job is {job.status}; it can't become {target.value}")
    if target in TERMINAL:
        changes = {**changes, "step": None, "step_lease_until": None}
    moved = update_job(transaction, job.id, {**changes, "status": target.value})
    _insert_event(transaction, services, moved, job.status, key_id)
    return moved


def update_job(transaction: Transaction, job_id: str, changes: Mapping[str, Any]) -> Job:
    """Write columns of a job and return it. The status is moved by ``move_job`` alone."""
    statement = _UPDATE.format(
        changes=SQL(", ").join(
            SQL("{} = {}").format(Identifier(name), Placeholder(name)) for name in changes
        ),
        all=_COLUMNS,
    )
    job = transaction.fetch_one(Job, statement, {**_adapt(changes), "job_id": job_id})
    if job is None:
        raise JobNotFound("no job has this id")
    return job


def insert_action(transaction: Transaction, job: Job, action: str, key_id: str | None) -> None:
    """Record that a key did something to the job."""
    transaction.execute(
        _INSERT_ACTION, {"org_id": job.org_id, "job_id": job.id, "action": action, "key_id": key_id}
    )


def count_jobs(transaction: Transaction, org_id: str, statuses: Collection[Status]) -> int:
    """Return how many jobs of an organization are in one of ``statuses``."""
    row = transaction.fetch_dict(
        "SELECT count(*) AS jobs FROM jobs WHERE org_id = %(org_id)s AND status = ANY(%(statuses)s)",
        {"org_id": org_id, "statuses": [status.value for status in statuses]},
    )
    return int(row["jobs"]) if row is not None else 0


def set_step(transaction: Transaction, job_id: str, step: Step | None) -> Job:
    """Say what comes next for a job, held by nobody and rung just now."""
    statement = SQL(
        "UPDATE jobs SET step = %(step)s, step_lease_until = NULL, step_started_at = anex_now(),"
        " rung_at = anex_now(), rings = 0 WHERE id = %(job_id)s RETURNING {}"
    ).format(_COLUMNS)
    job = transaction.fetch_one(Job, statement, {"job_id": job_id, "step": step and step.value})
    if job is None:
        raise JobNotFound("no job has this id")
    return job


def note_span_counted(transaction: Transaction, job_id: str) -> int:
    """Record that one more span is counted, which is progress; return how many are left. The job must be locked."""
    row = transaction.fetch_dict(
        "UPDATE jobs SET spans_open = spans_open - 1, step_started_at = anex_now() WHERE id = %(job_id)s"
        " RETURNING spans_open",
        {"job_id": job_id},
    )
    if row is None:
        raise JobNotFound("no job has this id")
    return int(row["spans_open"])


def _insert_event(
    transaction: Transaction, services: Surroundings, job: Job, from_status: str | None, key_id: str | None
) -> None:
    event_id = new_id("evt", services.clock.now())
    values = {
        "id": event_id,
        "org_id": job.org_id,
        "job_id": job.id,
        "from_status": from_status,
        "to_status": job.status,
        "key_id": key_id,
    }
    event = transaction.fetch_dict(_INSERT_EVENT, values)
    if event is not None:
        announce_job(transaction, services, job, event_id, event["at"])


def _adapt(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _adapt_value(name, value) for name, value in values.items()}


def _adapt_value(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    # Text as it came: a schema's properties are generated in their order, which jsonb does not keep.
    return Json(value) if name == "response_format" else Jsonb(value)
