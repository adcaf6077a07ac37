"""Give an organization credits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anex.errors import AnexError
from anex.ledger.model import TransferKind
from anex.ledger.store import find_transfer, get_balance, insert_transfer

if TYPE_CHECKING:
    from datetime import datetime

    from anex.db import Transaction
    from anex.ledger.model import Balance


class GrantConflict(AnexError):
    """The idempotency key belongs to another grant: nothing was granted."""

    code = "grant_conflict"


def grant_credits(
    transaction: Transaction,
    *,
    org_id: str,
    amount_nanos: int,
    reason: str,
    now: datetime,
    idempotency_key: str | None = None,
) -> Balance:
    """Add credits and return the balance; the same idempotency key adds them once.

    Raises ``OrganizationNotFound``, and ``GrantConflict`` when the key was used for another organization or amount.
    """
    get_balance(transaction, org_id)
    is_new = insert_transfer(
        transaction,
        org_id=org_id,
        kind=TransferKind.GRANT,
        amount_nanos=amount_nanos,
        now=now,
        idempotency_key=idempotency_key,
        reason=reason,
    )
    if not is_new and idempotency_key is not None:
        _require_same(transaction, idempotency_key, org_id, amount_nanos)
    return get_balance(transaction, org_id)


def _require_same(transaction: Transaction, idempotency_key: str, org_id: str, amount_nanos: int) -> None:
    """Refuse a key that did something else: a repetition is a success only if it asks for what was done."""
    stands = find_transfer(transaction, idempotency_key)
    if stands is None or (stands.org_id, stands.amount_nanos) != (org_id, amount_nanos):
        raise GrantConflict(
            f"the idempotency key '{idempotency_key}' belongs to another grant; take a new one for this grant"
        )
