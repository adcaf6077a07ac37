"""Hold and settle for jobs of one organization over eight connections, against the bare row updates that they can't do without.

All of an organization's money is one row, so its jobs' approvals and ends wait for each other there: this is the bound on how many
jobs one organization can start and end. A pair is what an approval and an end do to state and books together: lock the job, move
it, hold; lock it, move it, settle. The reference is two transactions that update one row of one table each, over as many
connections. Postgres is the embedded one with its defaults: a commit is on the disk. At the end 64 jobs are approved at once with
money for ten, and the books are checked; whatever is wrong is counted as a violation. ``PAIRS`` turns the size down.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from anex.clock import SystemClock
from anex.db import Database
from anex.errors import BalanceTooLow
from anex.jobs.approve import start_run
from anex.jobs.end import RowCounts, end_job
from anex.jobs.store import lock_job
from anex.jobs.transitions import Status
from anex.ledger.check import check_ledger
from anex.ledger.grants import grant_credits
from anex.ledger.store import get_balance
from anex.money import NANOS_PER_CENT
from bench.support.rounds import ROUNDS, print_figures, say, take_turns, time_seconds
from config.wiring import build_services
from tests.support.factories import make_caller, make_priced_job
from tests.support.live_stack import ROOT, LiveStack
from tests.support.spine import RecordingDispatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anex.orgs.model import Caller
    from anex.services import Services
    from config.settings import Settings

FULL_PAIRS = 1000
PAIRS = int(os.environ.get("PAIRS", str(FULL_PAIRS)))
CONNECTIONS = 8
COST_CENTS = 25
CHARGE_CENTS = 10
SHORT_JOBS = 64
SHORT_MONEY_FOR = 10
CATALOG = ROOT / "tests" / "support" / "models.test.toml"


def main() -> None:
    """Run the benchmark."""
    with tempfile.TemporaryDirectory(prefix="anex-bench-", ignore_cleanup_errors=True) as name:
        stack = LiveStack(Path(name), CATALOG)
        with stack.running():
            measure(stack.settings)


def measure(settings: Settings) -> None:
    """Measure on a running stack's database, say and print the figures."""
    owner_url = settings.require("database_owner_url")
    database = Database(settings.require("database_work_url"), max_connections=CONNECTIONS).open()
    services = replace(build_services(settings, "work", RecordingDispatcher()), database=database)
    try:
        caller = make_caller(database, PAIRS * (ROUNDS + 1) * COST_CENTS * NANOS_PER_CENT)[0]
        prepare_bare(owner_url)
        ours_s, bare_s = take_turns(
            lambda: run_pairs(services, caller), lambda: spread([owner_url] * PAIRS, update_bare_twice)
        )
        violations = count_violations(services, caller)
    finally:
        database.close()
    ours, bare = PAIRS / ours_s, PAIRS / bare_s
    say(
        f"{ours:.0f} pairs a second on one organization; two bare row updates: {bare:.0f}. {violations} violations."
    )
    print_figures(
        pairs_per_s=round(ours, 1),
        x_bare=round(ours / bare, 3),
        violations=violations,
        input=hashlib.sha256(f"{PAIRS} {COST_CENTS} {CHARGE_CENTS}".encode()).hexdigest()[:16],
        settings={"pairs": PAIRS, "connections": CONNECTIONS},
        quick=PAIRS < FULL_PAIRS,
    )


def run_pairs(services: Services, caller: Caller) -> float:
    """Make jobs that are priced, then take the time in which all of them are started and ended."""
    jobs = make_jobs(services.database, caller, PAIRS)

    def pair(job_id: str) -> None:
        start(services, job_id)
        with services.database.transaction() as transaction:
            job = lock_job(transaction, job_id)
            end_job(
                transaction, services, job, Status.CANCELLED, counts=RowCounts(), charge_cents=CHARGE_CENTS
            )

    return spread(jobs, pair)


def start(services: Services, job_id: str) -> None:
    """Start the run of a priced job as an approval does. Raises ``BalanceTooLow``."""
    with services.database.transaction() as transaction:
        start_run(transaction, services, lock_job(transaction, job_id), key_id=None)


def make_jobs(database: Database, caller: Caller, count: int) -> list[str]:
    """Make jobs that await their approval."""
    with database.transaction() as transaction:
        return [make_priced_job(transaction, caller, COST_CENTS).id for _ in range(count)]


def spread(items: Sequence[str], action: Callable[[str], object]) -> float:
    """Do something for each item over all connections at once; return how long it takes."""
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        return time_seconds(lambda: list(threads.map(action, items)))


_OWN = threading.local()


def prepare_bare(owner_url: str) -> None:
    """Make the reference's table, of one row."""
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE bench_account (id integer PRIMARY KEY, nanos bigint NOT NULL)")
        connection.execute("INSERT INTO bench_account VALUES (1, 0)")


def update_bare_twice(owner_url: str) -> None:
    """Update one row, twice, each time durably, on this thread's own connection."""
    connection = getattr(_OWN, "connection", None)
    if connection is None:
        connection = _OWN.connection = psycopg.connect(owner_url)
    for _ in range(2):
        connection.execute("UPDATE bench_account SET nanos = nanos + 1 WHERE id = 1")
        connection.commit()


def count_violations(services: Services, rich: Caller) -> int:
    """Approve many jobs at once with money for some; count what is wrong then, and in the books of all."""
    database = services.database
    poor = make_caller(database)[0]
    with database.transaction() as transaction:
        amount = (SHORT_MONEY_FOR * COST_CENTS + 1) * NANOS_PER_CENT
        grant_credits(
            transaction, org_id=poor.org_id, amount_nanos=amount, reason="bench", now=SystemClock().now()
        )
    jobs = make_jobs(database, poor, SHORT_JOBS)
    approved: list[str] = []

    def approve(job_id: str) -> None:
        try:
            start(services, job_id)
        except BalanceTooLow:
            return
        approved.append(job_id)

    spread(jobs, approve)
    with database.transaction() as transaction:
        faults = check_ledger(transaction)
        spent = get_balance(transaction, rich.org_id).available_nanos
    expected = (ROUNDS + 1) * PAIRS * COST_CENTS - ROUNDS * PAIRS * CHARGE_CENTS
    return len(faults) + abs(len(approved) - SHORT_MONEY_FOR) + (spent != expected * NANOS_PER_CENT)


if __name__ == "__main__":
    main()
