"""The words of the ledger. All amounts are nano-dollars (``anex.money``)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


class TransferKind(StrEnum):
    """Why money moved, and thereby between which accounts."""

    GRANT = "grant"
    HOLD = "hold"
    CHARGE = "charge"
    RELEASE = "release"


ACCOUNTS: dict[TransferKind, tuple[str, str]] = {
    TransferKind.GRANT: ("issuance", "available"),
    TransferKind.HOLD: ("available", "held"),
    TransferKind.CHARGE: ("held", "revenue"),
    TransferKind.RELEASE: ("held", "available"),
}
"""Debited and credited account of each kind; a constraint of the table says the same."""


@dataclass(frozen=True, slots=True)
class Balance:
    """What an organization may still spend, and what is held for running jobs."""

    available_nanos: int
    held_nanos: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """One movement of money. Never changed, never removed."""

    id: str
    org_id: str
    kind: str
    debit: str
    credit: str
    amount_nanos: int
    job_id: str | None
    key_id: str | None
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Hold:
    """What is set aside for a job from its approval to its end."""

    job_id: str
    org_id: str
    amount_nanos: int
    state: str
    charged_nanos: int | None
    held_at: datetime
    settled_at: datetime | None
