"""The SQL on ``units``, and on the leases that a unit holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anex.units.model import EngineState, Lease, Unit, UnitRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anex.db import Transaction

_UPSERT = """
INSERT INTO units (id, region, model, model_queue, model_revision, slots, engine_state, detail, started_at, heartbeat_at)
VALUES (%(id)s, %(region)s, %(model)s, %(model_queue)s, %(model_revision)s, %(slots)s, %(engine_state)s, %(detail)s,
        anex_now(), anex_now())
ON CONFLICT (id) DO UPDATE SET engine_state = excluded.engine_state, detail = excluded.detail, heartbeat_at = anex_now()
"""

_LIST = """
SELECT id, region, model, model_queue, model_revision, slots, engine_state, detail, started_at, heartbeat_at, claimed_at
FROM units WHERE heartbeat_at > anex_now() - %(alive)s * interval '1 second' ORDER BY id LIMIT 10000
"""

_EXTEND = """
UPDATE chunks SET lease_until = anex_now() + %(lease)s * interval '1 second'
WHERE leased_by = %(unit_id)s AND state = 'leased' AND (job_id, chunk_index, fence) IN (
    SELECT * FROM unnest(%(job_ids)s::text[], %(indexes)s::integer[], %(fences)s::integer[]))
"""

_STOPPED = "SELECT id FROM jobs WHERE id = ANY(%(job_ids)s) AND status <> 'in_progress'"

_EXPIRE = """
UPDATE chunks SET state = 'ready', lease_until = NULL, leased_by = NULL, attempts = attempts + 1
WHERE leased_by = %(unit_id)s AND state = 'leased'
"""

_FORGET_DEAD = "DELETE FROM units WHERE heartbeat_at < anex_now() - interval '1 day'"

# Work of the model that nobody does yet, or that this unit is doing.
_HAS_WORK = """
SELECT EXISTS (SELECT 1 FROM chunks JOIN jobs ON jobs.id = chunks.job_id
               WHERE chunks.model_queue = %(model_queue)s AND chunks.state = 'ready' AND jobs.status = 'in_progress'
                 AND jobs.region = %(region)s AND jobs.model_revision = %(model_revision)s)
    OR EXISTS (SELECT 1 FROM chunks WHERE leased_by = %(unit_id)s AND state = 'leased')
    OR EXISTS (SELECT 1 FROM jobs
               WHERE step = 'sample' AND model_queue = %(model_queue)s AND region = %(region)s) AS waiting
"""

# A unit whose slots are all in long chunks looks for none either: only one that holds nothing is suspect.
_IS_DEAF = """
SELECT EXISTS (SELECT 1 FROM chunks JOIN jobs ON jobs.id = chunks.job_id
               WHERE chunks.model_queue = %(model_queue)s AND chunks.state = 'ready' AND jobs.status = 'in_progress'
                 AND jobs.region = %(region)s AND jobs.model_revision = %(model_revision)s)
   AND NOT EXISTS (SELECT 1 FROM chunks WHERE leased_by = %(unit_id)s AND state = 'leased')
   AND EXISTS (SELECT 1 FROM units
               WHERE id = %(unit_id)s
                 AND coalesce(claimed_at, started_at) < anex_now() - %(quiet)s * interval '1 second') AS deaf
"""


def note_heartbeat(transaction: Transaction, unit: Unit, state: EngineState, detail: str = "") -> None:
    """Say that a unit lives and what its engine is doing; the first time registers it."""
    transaction.execute(
        _UPSERT,
        {
            "id": unit.id,
            "region": unit.region,
            "model": unit.model,
            "model_queue": unit.model_queue,
            "model_revision": unit.model_revision,
            "slots": unit.slots,
            "engine_state": state.value,
            "detail": detail,
        },
    )


def delete_unit(transaction: Transaction, unit_id: str) -> None:
    """Forget a unit that has stopped."""
    transaction.execute("DELETE FROM units WHERE id = %(unit_id)s", {"unit_id": unit_id})


def delete_dead_units(transaction: Transaction) -> None:
    """Forget the units that were killed and so could not say that they stopped: those not heard of for a day."""
    transaction.execute(_FORGET_DEAD)


def list_units(transaction: Transaction, alive_seconds: float) -> list[UnitRow]:
    """Return the units heard of within ``alive_seconds``."""
    return transaction.fetch_all(UnitRow, _LIST, {"alive": alive_seconds})


def extend_leases(
    transaction: Transaction, unit_id: str, leases: Sequence[Lease], lease_seconds: float
) -> int:
    """Extend what a unit's slots hold, in one statement; return how many of it is still theirs."""
    return transaction.execute(
        _EXTEND,
        {
            "unit_id": unit_id,
            "lease": lease_seconds,
            "job_ids": [lease.job_id for lease in leases],
            "indexes": [lease.chunk_index for lease in leases],
            "fences": [lease.fence for lease in leases],
        },
    )


def list_stopped_jobs(transaction: Transaction, leases: Sequence[Lease]) -> frozenset[str]:
    """Return the jobs of these leases that run no more: they are being cancelled, or have failed."""
    job_ids = list({lease.job_id for lease in leases})
    return frozenset(row["id"] for row in transaction.fetch_dicts(_STOPPED, {"job_ids": job_ids}))


def return_leases(transaction: Transaction, unit_id: str) -> int:
    """Give back every chunk of a unit whose slots are gone, instead of waiting for the leases to run out."""
    return transaction.execute(_EXPIRE, {"unit_id": unit_id})


def note_claim(transaction: Transaction, unit_id: str) -> None:
    """Record that a unit looks for a chunk, whether there is one or not: its slots hear doorbells."""
    transaction.execute(
        "UPDATE units SET claimed_at = anex_now() WHERE id = %(unit_id)s", {"unit_id": unit_id}
    )


def has_work(transaction: Transaction, unit: Unit) -> bool:
    """Whether a unit runs a chunk, or its model has one to run or a sample to take."""
    row = transaction.fetch_dict(_HAS_WORK, _named(unit))
    return row is not None and bool(row["waiting"])


def is_deaf(transaction: Transaction, unit: Unit, quiet_seconds: float) -> bool:
    """Whether there are chunks that a unit may claim while it holds none and has not looked for any for ``quiet_seconds``."""
    row = transaction.fetch_dict(_IS_DEAF, {**_named(unit), "quiet": quiet_seconds})
    return row is not None and bool(row["deaf"])


def _named(unit: Unit) -> dict[str, str]:
    return {
        "unit_id": unit.id,
        "region": unit.region,
        "model_queue": unit.model_queue,
        "model_revision": unit.model_revision,
    }
