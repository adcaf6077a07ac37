"""The SQL on ``units``, and on the leases that a unit holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anex.units.model import EngineState, Unit, UnitRow

if TYPE_CHECKING:
    from anex.db import Transaction

_UPSERT = """
INSERT INTO units (id, model, model_queue, model_revision, slots, engine_state, detail, started_at, heartbeat_at)
VALUES (%(id)s, %(model)s, %(model_queue)s, %(model_revision)s, %(slots)s, %(engine_state)s, %(detail)s, anex_now(), anex_now())
ON CONFLICT (id) DO UPDATE SET engine_state = excluded.engine_state, detail = excluded.detail, heartbeat_at = anex_now()
"""

_LIST = """
SELECT id, model, model_queue, model_revision, slots, engine_state, detail, started_at, heartbeat_at, claimed_at
FROM units WHERE heartbeat_at > anex_now() - %(alive)s * interval '1 second' ORDER BY id LIMIT 10000
"""

_EXTEND = """
UPDATE chunks SET lease_until = anex_now() + %(lease)s * interval '1 second'
WHERE leased_by = %(unit_id)s AND state = 'leased'
"""

_CANCELLING = """
SELECT DISTINCT jobs.id FROM jobs JOIN chunks ON chunks.job_id = jobs.id
WHERE chunks.leased_by = %(unit_id)s AND chunks.state = 'leased' AND jobs.status = 'cancelling'
"""

_EXPIRE = """
UPDATE chunks SET state = 'ready', lease_until = NULL, leased_by = NULL, attempts = attempts + 1
WHERE leased_by = %(unit_id)s AND state = 'leased'
"""

_HAS_WORK = """
SELECT EXISTS (SELECT 1 FROM chunks JOIN jobs ON jobs.id = chunks.job_id
               WHERE chunks.model_queue = %(model_queue)s AND jobs.status IN ('in_progress', 'cancelling')
                 AND chunks.state IN ('ready', 'leased'))
    OR EXISTS (SELECT 1 FROM jobs WHERE step = 'sample' AND model_queue = %(model_queue)s) AS waiting
"""

_READY = """
SELECT EXISTS (SELECT 1 FROM chunks JOIN jobs ON jobs.id = chunks.job_id
               WHERE chunks.model_queue = %(model_queue)s AND chunks.state = 'ready' AND jobs.status = 'in_progress'
                 AND jobs.model_revision = %(model_revision)s) AS waiting
"""


def note_heartbeat(transaction: Transaction, unit: Unit, state: EngineState, detail: str = "") -> None:
    """Say that a unit lives and what its engine is doing; the first time registers it."""
    transaction.execute(
        _UPSERT,
        {
            "id": unit.id,
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


def list_units(transaction: Transaction, alive_seconds: float) -> list[UnitRow]:
    """Return the units heard of within ``alive_seconds``."""
    return transaction.fetch_all(UnitRow, _LIST, {"alive": alive_seconds})


def extend_leases(transaction: Transaction, unit_id: str, lease_seconds: float) -> int:
    """Extend every lease of a unit in one statement; return how many there are."""
    return transaction.execute(_EXTEND, {"unit_id": unit_id, "lease": lease_seconds})


def list_cancelling_jobs(transaction: Transaction, unit_id: str) -> frozenset[str]:
    """Return the jobs of a unit's chunks that are being cancelled."""
    return frozenset(row["id"] for row in transaction.fetch_dicts(_CANCELLING, {"unit_id": unit_id}))


def return_leases(transaction: Transaction, unit_id: str) -> int:
    """Give back every chunk of a unit whose slots are gone, instead of waiting for the leases to run out."""
    return transaction.execute(_EXPIRE, {"unit_id": unit_id})


def note_claim(transaction: Transaction, unit_id: str) -> None:
    """Record that a unit claimed a chunk, or looked and found none: it consumes."""
    transaction.execute(
        "UPDATE units SET claimed_at = anex_now() WHERE id = %(unit_id)s", {"unit_id": unit_id}
    )


def has_waiting_work(transaction: Transaction, model_queue: str) -> bool:
    """Whether a model has chunks to run or a sample to take."""
    row = transaction.fetch_dict(_HAS_WORK, {"model_queue": model_queue})
    return row is not None and bool(row["waiting"])


def has_ready_chunks(transaction: Transaction, unit: Unit) -> bool:
    """Whether there are chunks that this unit may claim now."""
    values = {"model_queue": unit.model_queue, "model_revision": unit.model_revision}
    row = transaction.fetch_dict(_READY, values)
    return row is not None and bool(row["waiting"])
