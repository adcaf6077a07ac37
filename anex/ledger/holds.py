"""Holds: what an approval sets aside, resolved once when the job ends.

Two-phase transfers after TigerBeetle's data model: a hold moves money from ``available`` to ``held``; its one resolution moves
it on to ``revenue`` (the charge) and back (the release). A unique index on (job, kind) makes a second one impossible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from anex.db import broken_rule
from anex.errors import BalanceTooLow, JobStateConflict
from anex.ledger.model import Hold, TransferKind
from anex.ledger.store import get_balance, insert_transfer
from anex.money import NANOS_PER_CENT, format_cents, nanos_to_cents_up

if TYPE_CHECKING:
    from datetime import datetime

    from anex.db import Transaction

_INSERT = """
INSERT INTO holds (job_id, org_id, amount_nanos, state, held_at)
VALUES (%(job_id)s, %(org_id)s, %(amount_nanos)s, 'held', anex_now())
"""

_SETTLE = """
UPDATE holds SET state = 'settled', charged_nanos = least(amount_nanos, %(charge_nanos)s), settled_at = anex_now()
WHERE job_id = %(job_id)s AND state = 'held'
RETURNING org_id, amount_nanos, charged_nanos
"""

_SELECT = """
SELECT job_id, org_id, amount_nanos, state, charged_nanos, held_at, settled_at FROM holds WHERE job_id = %(job_id)s
"""


def place_hold(
    transaction: Transaction,
    *,
    org_id: str,
    job_id: str,
    amount_nanos: int,
    key_id: str | None,
    now: datetime,
) -> None:
    """Set money aside for a job: once, for ever.

    Raises ``BalanceTooLow`` with what is missing, ``JobStateConflict`` when the job had a hold before: the second of two approvals
    must not take its run for started. Either leaves the transaction unusable: let it roll back, or wrap the call in a savepoint.
    """
    lack = describe_missing(transaction, org_id, amount_nanos)
    if lack is not None:
        raise BalanceTooLow(lack)
    try:
        transaction.execute(_INSERT, {"job_id": job_id, "org_id": org_id, "amount_nanos": amount_nanos})
        insert_transfer(
            transaction,
            org_id=org_id,
            kind=TransferKind.HOLD,
            amount_nanos=amount_nanos,
            now=now,
            job_id=job_id,
            key_id=key_id,
        )
    except psycopg.errors.UniqueViolation as error:
        raise JobStateConflict("the job's estimate was held before") from error
    except psycopg.errors.CheckViolation as error:
        if broken_rule(error) != "available_never_below_zero":
            raise
        # Another hold was faster: the constraint decides, not the look before it.
        raise BalanceTooLow(
            "the balance no longer covers the estimate; add credits and approve again"
        ) from error


def describe_missing(transaction: Transaction, org_id: str, amount_nanos: int) -> str | None:
    """Return the sentence that says how much is missing for a hold of this amount, None when nothing is."""
    available = get_balance(transaction, org_id).available_nanos
    if available >= amount_nanos:
        return None
    # What is there is rounded down and what is missing up: a sentence that promises too little costs nobody a second refusal.
    has, needs = available // NANOS_PER_CENT, nanos_to_cents_up(amount_nanos)
    return (
        f"the balance of {format_cents(has)} does not cover the estimate of {format_cents(needs)};"
        f" add {format_cents(needs - has)} and approve again"
    )


def settle_hold(transaction: Transaction, *, job_id: str, charge_nanos: int, now: datetime) -> int:
    """Resolve a job's hold: charge at most what is held, release the rest; return what was charged.

    A hold that is settled already is left as it is, and its charge returned.
    """
    hold = transaction.fetch_dict(_SETTLE, {"job_id": job_id, "charge_nanos": charge_nanos})
    if hold is None:
        settled = find_hold(transaction, job_id)
        return (settled.charged_nanos or 0) if settled is not None else 0
    charged, released = hold["charged_nanos"], hold["amount_nanos"] - hold["charged_nanos"]
    for kind, amount_nanos in ((TransferKind.CHARGE, charged), (TransferKind.RELEASE, released)):
        if amount_nanos > 0:
            insert_transfer(
                transaction,
                org_id=hold["org_id"],
                kind=kind,
                amount_nanos=amount_nanos,
                now=now,
                job_id=job_id,
            )
    return int(charged)


def find_hold(transaction: Transaction, job_id: str) -> Hold | None:
    """Return a job's hold, open or settled; None before its approval."""
    return transaction.fetch_one(Hold, _SELECT, {"job_id": job_id})
