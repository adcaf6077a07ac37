"""The switch that freezes the API for maintenance: one row in the database, seen by every process at its next request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from anex.db import Transaction

IS_FROZEN = "EXISTS (SELECT FROM api_freeze)"
"""An expression of SQL, for whoever asks along with something else."""

_COLUMNS = "reason, since"

_SELECT = f"SELECT {_COLUMNS} FROM api_freeze"  # noqa: S608 - the columns are a constant

_SET = f"""
INSERT INTO api_freeze (reason, since) VALUES (coalesce(%(reason)s, ''), anex_now())
ON CONFLICT (one) DO UPDATE SET reason = coalesce(%(reason)s, api_freeze.reason) RETURNING {_COLUMNS}
"""  # noqa: S608 - the columns are a constant


@dataclass(frozen=True, slots=True)
class Freeze:
    """Why and since when the API is frozen. The reason is for operators; customers don't see it."""

    reason: str
    since: datetime


def find_freeze(transaction: Transaction) -> Freeze | None:
    """Return the freeze that holds, None when there is none."""
    return transaction.fetch_one(Freeze, _SELECT)


def set_freeze(transaction: Transaction, reason: str | None) -> Freeze:
    """Freeze the API from the commit on. A freeze that holds keeps its time, and its reason unless one is given."""
    freeze = transaction.fetch_one(Freeze, _SET, {"reason": reason})
    if freeze is None:
        raise RuntimeError("an upsert returned no row")
    return freeze


def lift_freeze(transaction: Transaction) -> None:
    """Serve everything again from the commit on; nothing happens when nothing is frozen."""
    transaction.execute("DELETE FROM api_freeze")
