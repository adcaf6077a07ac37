"""How a job ends: the transition, its money and its times, in one transaction.

Every end goes through ``end_job``, so a hold can't stay open behind an ended job, and none is settled twice.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from anex.jobs.store import move_job
from anex.jobs.transitions import RUNNING, Status
from anex.ledger.holds import settle_hold
from anex.money import cents_to_nanos
from anex.usage import NOTHING, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anex.db import Transaction
    from anex.jobs.model import Job
    from anex.services import Services


@dataclass(frozen=True, slots=True)
class RowCounts:
    """What became of a job's rows, and what they used."""

    success_rows: int = 0
    error_rows: int = 0
    format_error_rows: int = 0
    truncated_rows: int = 0
    usage: Usage = NOTHING

    @classmethod
    def of(cls, sums: Mapping[str, int]) -> Self:
        """Return the counts of flat sums, as ``flat`` gives them."""
        usage = {field.name: sums[field.name] for field in fields(Usage)}
        return cls(**{name: value for name, value in sums.items() if name not in usage}, usage=Usage(**usage))

    def flat(self) -> dict[str, int]:
        """Return the counts and the usage by the names of their columns."""
        counts = asdict(self)
        return {**counts, **counts.pop("usage")}

    @property
    def delivered_rows(self) -> int:
        """Rows with a line in the result."""
        return self.success_rows + self.error_rows + self.format_error_rows + self.truncated_rows

    @property
    def billable_rows(self) -> int:
        """Rows whose tokens are charged: all but the failed ones."""
        return self.success_rows + self.format_error_rows + self.truncated_rows


def end_job(
    transaction: Transaction,
    services: Services,
    job: Job,
    target: Status,
    *,
    counts: RowCounts | None = None,
    charge_cents: int = 0,
    changes: Mapping[str, Any] | None = None,
    key_id: str | None = None,
) -> Job:
    """End a locked job: settle its hold, if it has one, at ``charge_cents``, and move it to ``target``.

    Without ``counts`` no row ran: the counts are 0 where the rows were validated, null otherwise.
    """
    row = transaction.fetch_dict("SELECT anex_now() AS now")
    finished_at = row["now"] if row is not None else services.clock.now()
    end = {
        **_count_changes(job, counts),
        "cost_cents": charge_cents,
        "finished_at": finished_at,
        "data_expires_at": finished_at + timedelta(seconds=services.timings.result_retention_seconds),
        **(changes or {}),
    }
    ended = move_job(transaction, services, job, target, end, key_id=key_id)
    if Status(job.status) in RUNNING:
        # Last: the organization's account is locked from here to the commit.
        settle_hold(
            transaction, job_id=job.id, charge_nanos=cents_to_nanos(charge_cents), now=services.clock.now()
        )
    return ended


def fail_job(transaction: Transaction, services: Services, job: Job, code: str, reason: str) -> Job:
    """End a locked job before any of its rows counted: nothing is charged.

    A reason quotes what a customer sent, and Postgres stores no NUL: it must not be able to keep a job from failing.
    """
    told = reason.replace("\0", "\N{REPLACEMENT CHARACTER}")
    changes = {"failure_code": code, "failure_reason": told}
    return end_job(transaction, services, job, Status.FAILED, changes=changes)


def cancel_where_deletion_waits(transaction: Transaction, services: Services, job: Job) -> bool:
    """Cancel a locked job that is marked for deletion while it was estimated; the sweeper purges it. Returns whether."""
    if not job.delete_requested or job.status != Status.ESTIMATING:
        return False
    end_job(transaction, services, job, Status.CANCELLED)
    return True


def _count_changes(job: Job, counts: RowCounts | None) -> dict[str, int | None]:
    known = counts or (RowCounts() if job.total_rows is not None else None)
    if known is None or job.total_rows is None:
        return {}
    return {
        "success_rows": known.success_rows,
        "error_rows": known.error_rows,
        "format_error_rows": known.format_error_rows,
        "truncated_rows": known.truncated_rows,
        "pending_rows": job.total_rows - known.delivered_rows,
        "input_tokens": known.usage.input_tokens,
        "output_tokens": known.usage.output_tokens,
    }
