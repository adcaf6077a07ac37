"""The SQL on ``accounts`` and ``transfers``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anex.errors import BalanceTooLow, OrganizationNotFound
from anex.ids import new_id
from anex.ledger.model import ACCOUNTS, Balance, Transfer, TransferKind

if TYPE_CHECKING:
    from datetime import datetime

    from anex.db import Transaction

TRANSFERS_LISTED_MAX = 1000

_BALANCE = "SELECT available_nanos, held_nanos FROM accounts WHERE org_id = %(org_id)s"

_INSERT = """
INSERT INTO transfers (id, org_id, kind, debit, credit, amount_nanos, job_id, key_id, idempotency_key, reason, at)
VALUES (%(id)s, %(org_id)s, %(kind)s, %(debit)s, %(credit)s, %(amount_nanos)s, %(job_id)s, %(key_id)s,
        %(idempotency_key)s, %(reason)s, anex_now())
ON CONFLICT ON CONSTRAINT idempotency_key_is_unique DO NOTHING
"""

_COLUMNS = "id, org_id, kind, debit, credit, amount_nanos, job_id, key_id, reason, at"

_LIST = f"""
SELECT {_COLUMNS} FROM transfers WHERE org_id = %(org_id)s ORDER BY at DESC, id DESC LIMIT %(limit)s
"""  # noqa: S608 - the columns are a constant

_FIND = f"SELECT {_COLUMNS} FROM transfers WHERE idempotency_key = %(idempotency_key)s"  # noqa: S608 - as above


def get_balance(transaction: Transaction, org_id: str) -> Balance:
    """Return an organization's balance. Raises ``OrganizationNotFound``."""
    balance = transaction.fetch_one(Balance, _BALANCE, {"org_id": org_id})
    if balance is None:
        raise OrganizationNotFound("no organization has this id")
    return balance


def require_credits(transaction: Transaction, org_id: str) -> None:
    """Raise ``BalanceTooLow`` when the organization has nothing to spend at all."""
    if get_balance(transaction, org_id).available_nanos <= 0:
        raise BalanceTooLow("the organization has no credits; add some, then try again")


def insert_transfer(  # noqa: PLR0913 - each argument is a fact of the transfer
    transaction: Transaction,
    *,
    org_id: str,
    kind: TransferKind,
    amount_nanos: int,
    now: datetime,
    job_id: str | None = None,
    key_id: str | None = None,
    idempotency_key: str | None = None,
    reason: str = "",
) -> bool:
    """Move money; the trigger keeps the balance. False when a transfer with this idempotency key stands already.

    Breaking ``available_never_below_zero`` or ``one_transfer_of_a_kind_per_job`` raises psycopg's ``IntegrityError``: callers
    give it its meaning.
    """
    debit, credit = ACCOUNTS[kind]
    return (
        transaction.execute(
            _INSERT,
            {
                "id": new_id("trf", now),
                "org_id": org_id,
                "kind": kind.value,
                "debit": debit,
                "credit": credit,
                "amount_nanos": amount_nanos,
                "job_id": job_id,
                "key_id": key_id,
                "idempotency_key": idempotency_key,
                "reason": reason,
            },
        )
        == 1
    )


def list_transfers(
    transaction: Transaction, org_id: str, limit: int = TRANSFERS_LISTED_MAX
) -> list[Transfer]:
    """Return an organization's latest transfers, newest first."""
    return transaction.fetch_all(Transfer, _LIST, {"org_id": org_id, "limit": limit})


def find_transfer(transaction: Transaction, idempotency_key: str) -> Transfer | None:
    """Return the transfer that was made with this idempotency key, if there is one."""
    return transaction.fetch_one(Transfer, _FIND, {"idempotency_key": idempotency_key})
