"""Prove the books on a live database: ``anex ledger check``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anex.db import Transaction

_RULES = {
    "the balance of {id} is not the sum of its transfers": """
        SELECT org_id AS id FROM accounts WHERE (available_nanos, held_nanos) <> (
            SELECT coalesce(sum(CASE WHEN credit = 'available' THEN amount_nanos ELSE 0 END)
                          - sum(CASE WHEN debit = 'available' THEN amount_nanos ELSE 0 END), 0),
                   coalesce(sum(CASE WHEN credit = 'held' THEN amount_nanos ELSE 0 END)
                          - sum(CASE WHEN debit = 'held' THEN amount_nanos ELSE 0 END), 0)
            FROM transfers WHERE transfers.org_id = accounts.org_id)""",
    "the hold of {id} does not match its transfers": """
        SELECT holds.job_id AS id FROM holds
        LEFT JOIN transfers h ON h.job_id = holds.job_id AND h.kind = 'hold'
        LEFT JOIN transfers c ON c.job_id = holds.job_id AND c.kind = 'charge'
        LEFT JOIN transfers r ON r.job_id = holds.job_id AND r.kind = 'release'
        WHERE h.amount_nanos IS DISTINCT FROM holds.amount_nanos
           OR coalesce(c.amount_nanos, 0) <> coalesce(holds.charged_nanos, 0)
           OR (holds.state = 'settled' AND coalesce(c.amount_nanos, 0) + coalesce(r.amount_nanos, 0) <> holds.amount_nanos)
           OR (holds.state = 'held' AND r.amount_nanos IS NOT NULL)""",
    "the hold of {id} is open although the job does not run, or the reverse": """
        SELECT jobs.id FROM jobs LEFT JOIN holds ON holds.job_id = jobs.id
        WHERE (jobs.status IN ('in_progress', 'cancelling', 'finalizing')) <> (coalesce(holds.state, '') = 'held')""",
    "the cost of {id} is not what was charged": """
        SELECT jobs.id FROM jobs LEFT JOIN holds ON holds.job_id = jobs.id
        WHERE jobs.finished_at IS NOT NULL
          AND coalesce(holds.charged_nanos, 0) <> coalesce(jobs.cost_cents, 0) * 10000000""",
    "the hold of {id} is over its estimate": """
        SELECT jobs.id FROM jobs JOIN holds ON holds.job_id = jobs.id
        WHERE holds.amount_nanos > jobs.est_cost_cents * 10000000""",
}


def check_ledger(transaction: Transaction) -> list[str]:
    """Return a sentence for each violation, none when the books are right. Needs a role that sees every organization."""
    return [
        sentence.format(id=row["id"])
        for sentence, query in _RULES.items()
        for row in transaction.fetch_dicts(query)
    ]
