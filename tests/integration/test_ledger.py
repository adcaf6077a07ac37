"""Money in Postgres: what holds when many want it at once, and what no role can do to it."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest

from anex.clock import SystemClock
from anex.db import Database
from anex.errors import BalanceTooLow, JobStateConflict, OrganizationNotFound
from anex.ids import new_id
from anex.ledger.check import check_ledger
from anex.ledger.grants import GrantConflict, grant_credits
from anex.ledger.holds import find_hold, place_hold, settle_hold
from anex.ledger.model import ACCOUNTS, Balance, TransferKind
from anex.ledger.store import get_balance, insert_transfer, list_transfers, require_credits
from anex.money import NANOS_PER_CENT, cents_to_nanos
from tests.support.factories import cancel_started_job, make_caller, make_priced_job, start_priced_job
from tests.support.spine import in_threads
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anex.orgs.model import Caller
    from tests.support.servers import DatabaseUrls

NOW = SystemClock().now()
RIVALS = 40


@pytest.fixture
def work(fresh_database_urls: DatabaseUrls) -> Iterator[Database]:
    database = Database(fresh_database_urls.work, max_connections=RIVALS).open()
    yield database
    with database.transaction() as transaction:
        assert check_ledger(transaction) == []
    database.close()


@pytest.fixture
def unchecked(fresh_database_urls: DatabaseUrls) -> Iterator[Database]:
    """Give the database to a test that breaks its books."""
    database = Database(fresh_database_urls.work).open()
    yield database
    database.close()


def read_balance(database: Database, caller: Caller) -> Balance:
    with database.transaction() as transaction:
        return get_balance(transaction, caller.org_id)


def add_job(database: Database, caller: Caller, cost_cents: int = 25) -> str:
    with database.transaction() as transaction:
        return make_priced_job(transaction, caller, cost_cents).id


def count_waiting(database: Database) -> int:
    with database.transaction() as transaction:
        row = transaction.fetch_dict(
            "SELECT count(*) AS waiting FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
    return int(row["waiting"]) if row is not None else 0


def start(database: Database, caller: Caller, job_id: str) -> None:
    with database.transaction() as transaction:
        start_priced_job(transaction, caller, job_id)


def hold(database: Database, caller: Caller, job_id: str) -> None:
    """Hold one nano for a job, whatever it costs."""
    with database.transaction() as transaction:
        place_hold(transaction, org_id=caller.org_id, job_id=job_id, amount_nanos=1, key_id=None, now=NOW)


def test_a_hold_moves_the_estimate_and_the_end_settles_it(work: Database) -> None:
    caller, _ = make_caller(work, cents_to_nanos(100))
    job_id = add_job(work, caller)
    start(work, caller, job_id)
    assert read_balance(work, caller) == Balance(cents_to_nanos(75), cents_to_nanos(25))
    with work.transaction() as transaction:
        assert cancel_started_job(transaction, job_id, charge_cents=10) == cents_to_nanos(10)
    assert read_balance(work, caller) == Balance(cents_to_nanos(90), 0)
    with work.transaction() as transaction:
        moved = [(each.kind, each.amount_nanos) for each in list_transfers(transaction, caller.org_id)]
    cents = [(kind, nanos // NANOS_PER_CENT) for kind, nanos in moved]
    assert Counter(cents) == Counter([("grant", 100), ("hold", 25), ("charge", 10), ("release", 15)])


@pytest.mark.parametrize(("charge_cents", "kinds"), [(0, {"release"}), (25, {"charge"}), (99, {"charge"})])
def test_an_end_writes_no_transfer_of_nothing(work: Database, charge_cents: int, kinds: set[str]) -> None:
    caller, _ = make_caller(work, cents_to_nanos(100))
    job_id = add_job(work, caller)
    start(work, caller, job_id)
    with work.transaction() as transaction:
        charged = cancel_started_job(transaction, job_id, charge_cents)
        found = {each.kind for each in list_transfers(transaction, caller.org_id)}
    assert charged == cents_to_nanos(min(25, charge_cents))
    assert found - {"grant", "hold"} == kinds


def test_of_forty_approvals_with_money_for_one_one_wins(work: Database) -> None:
    caller, _ = make_caller(work, cents_to_nanos(25))
    jobs = [add_job(work, caller) for _ in range(RIVALS)]
    outcomes = in_threads(RIVALS, lambda place: start(work, caller, jobs[place]))
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, BalanceTooLow) for outcome in outcomes) == RIVALS - 1
    assert read_balance(work, caller) == Balance(0, cents_to_nanos(25))


def test_a_hold_that_saw_enough_money_is_refused_when_a_rival_commits_first(work: Database) -> None:
    caller, _ = make_caller(work, cents_to_nanos(25))
    first, second = add_job(work, caller), add_job(work, caller)
    outcomes: list[object] = []
    rival = threading.Thread(
        target=lambda: outcomes.extend(in_threads(1, lambda _: start(work, caller, second)))
    )
    with work.transaction() as transaction:
        start_priced_job(transaction, caller, first)
        rival.start()
        wait_until(lambda: count_waiting(work) == 1, what="the rival waits for the account")
    rival.join()
    (outcome,) = outcomes
    assert isinstance(outcome, BalanceTooLow)
    assert "no longer covers" in outcome.message


def test_of_twenty_holds_of_one_job_one_stands(work: Database) -> None:
    caller, _ = make_caller(work, cents_to_nanos(1000))
    job_id = add_job(work, caller)
    outcomes = in_threads(20, lambda _: hold(work, caller, job_id))
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, JobStateConflict) for outcome in outcomes) == 19
    assert read_balance(work, caller).held_nanos == 1
    with work.transaction() as transaction:
        settle_hold(transaction, job_id=job_id, charge_nanos=0, now=NOW)


def test_a_second_hold_of_a_job_is_refused_for_ever(work: Database) -> None:
    caller, _ = make_caller(work, cents_to_nanos(100))
    job_id = add_job(work, caller)
    start(work, caller, job_id)
    with pytest.raises(JobStateConflict):
        hold(work, caller, job_id)
    with work.transaction() as transaction:
        cancel_started_job(transaction, job_id, charge_cents=0)
    with pytest.raises(JobStateConflict):
        hold(work, caller, job_id)


def test_settling_at_once_from_many_places_charges_once(work: Database) -> None:
    caller, _ = make_caller(work, cents_to_nanos(25))
    job_id = add_job(work, caller)
    start(work, caller, job_id)

    def settle(place: int) -> int:
        with work.transaction() as transaction:
            return settle_hold(transaction, job_id=job_id, charge_nanos=cents_to_nanos(place + 1), now=NOW)

    (charged,) = set(in_threads(20, settle))
    with work.transaction() as transaction:
        hold = find_hold(transaction, job_id)
        assert hold is not None
        assert (hold.state, hold.charged_nanos) == ("settled", charged)
        cancel_started_job(transaction, job_id, charge_cents=7)  # the end follows, and charges nothing more
    assert read_balance(work, caller) == Balance(cents_to_nanos(25) - charged, 0)


@pytest.mark.parametrize(
    ("balance_nanos", "has", "lacks"),
    [
        (0, "$0.00", "$0.25"),
        (cents_to_nanos(10), "$0.10", "$0.15"),
        # Rounded so that what the sentence asks for is enough.
        (cents_to_nanos(25) - 1, "$0.24", "$0.01"),
    ],
)
def test_a_refusal_says_what_is_missing(work: Database, balance_nanos: int, has: str, lacks: str) -> None:
    caller, _ = make_caller(work, balance_nanos)
    job_id = add_job(work, caller)
    sentence = f"the balance of {has} does not cover the estimate of $0.25; add {lacks} and approve again"
    with pytest.raises(BalanceTooLow) as refusal:
        start(work, caller, job_id)
    assert refusal.value.message == sentence
    assert read_balance(work, caller) == Balance(balance_nanos, 0)


def test_an_empty_balance_is_refused_at_the_door(work: Database) -> None:
    caller, _ = make_caller(work)
    with pytest.raises(BalanceTooLow), work.transaction() as transaction:
        require_credits(transaction, caller.org_id)
    rich, _ = make_caller(work, 1)
    with work.transaction() as transaction:
        require_credits(transaction, rich.org_id)


def test_a_repeated_grant_is_granted_once(work: Database) -> None:
    caller, _ = make_caller(work)

    def grant(_: int) -> Balance:
        with work.transaction() as transaction:
            return grant_credits(
                transaction,
                org_id=caller.org_id,
                amount_nanos=5,
                reason="",
                now=NOW,
                idempotency_key="invoice 1",
            )

    assert in_threads(8, grant) == [Balance(5, 0)] * 8


@pytest.mark.parametrize("changed", [{"amount_nanos": 6}, {"org_id": None}])
def test_an_idempotency_key_grants_nothing_else(work: Database, changed: dict[str, int | None]) -> None:
    caller, _ = make_caller(work)
    other, _ = make_caller(work)
    first = {"org_id": caller.org_id, "amount_nanos": 5, "reason": "", "now": NOW, "idempotency_key": "once"}
    second = {**first, **changed}
    second["org_id"] = second["org_id"] or other.org_id
    with work.transaction() as transaction:
        grant_credits(transaction, **first)  # type: ignore[arg-type] # one dictionary of arguments
    with pytest.raises(GrantConflict, match="once"), work.transaction() as transaction:
        grant_credits(transaction, **second)  # type: ignore[arg-type]


def test_no_organization_no_grant(work: Database) -> None:
    with pytest.raises(OrganizationNotFound), work.transaction() as transaction:
        grant_credits(transaction, org_id=new_id("org", NOW), amount_nanos=1, reason="", now=NOW)


def test_the_accounts_of_a_kind_are_the_databases_own(work: Database) -> None:
    caller, _ = make_caller(work, 100)
    for kind, (debit, credit) in ACCOUNTS.items():
        with pytest.raises(psycopg.errors.CheckViolation), work.transaction() as transaction:
            transaction.execute(
                "INSERT INTO transfers (id, org_id, kind, debit, credit, amount_nanos, at)"
                " VALUES (%(id)s, %(org_id)s, %(kind)s, %(debit)s, %(credit)s, 1, anex_now())",
                {
                    "id": uuid4().hex,
                    "org_id": caller.org_id,
                    "kind": kind.value,
                    "debit": credit,
                    "credit": debit,
                },
            )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE transfers SET amount_nanos = 1",
        "DELETE FROM transfers",
        "TRUNCATE transfers",
        "UPDATE accounts SET available_nanos = 1000",
        "DELETE FROM accounts",
        "DELETE FROM holds",
        "ALTER TABLE transfers DISABLE TRIGGER ALL",
    ],
)
@pytest.mark.parametrize("role", ["api", "work"])
def test_no_role_rewrites_the_books(
    work: Database, fresh_database_urls: DatabaseUrls, role: str, statement: str
) -> None:
    caller, _ = make_caller(work, 5)
    database = Database(getattr(fresh_database_urls, role)).open()
    refusals = (psycopg.errors.InsufficientPrivilege, psycopg.errors.RestrictViolation)
    with pytest.raises(refusals), database.transaction(caller.org_id) as transaction:
        transaction.execute(statement)
    database.close()


@pytest.mark.parametrize(
    "statement", ["UPDATE transfers SET amount_nanos = 1", "DELETE FROM transfers", "TRUNCATE transfers"]
)
def test_a_transfer_is_immutable_even_for_the_superuser(
    work: Database, fresh_database_urls: DatabaseUrls, statement: str
) -> None:
    make_caller(work, 5)
    with (
        psycopg.connect(fresh_database_urls.superuser) as connection,
        pytest.raises(psycopg.errors.RestrictViolation, match="never changed"),
    ):
        connection.execute(statement.encode())


def test_a_hold_sets_something_aside(work: Database) -> None:
    caller, _ = make_caller(work, 5)
    job_id = add_job(work, caller)
    with pytest.raises(psycopg.errors.CheckViolation), work.transaction() as transaction:
        place_hold(transaction, org_id=caller.org_id, job_id=job_id, amount_nanos=0, key_id=None, now=NOW)


@pytest.mark.parametrize("kind", [TransferKind.HOLD, TransferKind.CHARGE, TransferKind.RELEASE])
def test_a_jobs_transfer_of_a_kind_stands_once(work: Database, kind: TransferKind) -> None:
    caller, _ = make_caller(work, cents_to_nanos(100))
    job_id = add_job(work, caller)
    start(work, caller, job_id)
    with work.transaction() as transaction:
        cancel_started_job(transaction, job_id, charge_cents=10)
    start(work, caller, add_job(work, caller))  # so that there is money on each account
    with (
        pytest.raises(psycopg.errors.UniqueViolation, match="one_transfer_of_a_kind_per_job"),
        work.transaction() as transaction,
    ):
        insert_transfer(transaction, org_id=caller.org_id, kind=kind, amount_nanos=1, now=NOW, job_id=job_id)


@pytest.mark.parametrize("amount_nanos", [0, -1])
def test_a_transfer_moves_something(work: Database, amount_nanos: int) -> None:
    caller, _ = make_caller(work, 5)
    with (
        pytest.raises(psycopg.errors.CheckViolation, match="amount_is_positive"),
        work.transaction() as transaction,
    ):
        grant_credits(transaction, org_id=caller.org_id, amount_nanos=amount_nanos, reason="", now=NOW)


@pytest.mark.parametrize(
    ("breaking", "sentence"),
    [
        ("UPDATE accounts SET available_nanos = available_nanos + 1", "balance of org_"),
        ("UPDATE holds SET amount_nanos = amount_nanos - 1", "does not match its transfers"),
        ("UPDATE holds SET state = 'held', charged_nanos = NULL, settled_at = NULL", "does not run"),
        ("UPDATE jobs SET cost_cents = 1", "is not what was charged"),
        ("UPDATE jobs SET est_cost_cents = 24", "over its estimate"),
    ],
)
def test_the_check_finds_books_that_were_changed(
    unchecked: Database, fresh_database_urls: DatabaseUrls, breaking: str, sentence: str
) -> None:
    caller, _ = make_caller(unchecked, cents_to_nanos(100))
    job_id = add_job(unchecked, caller)
    start(unchecked, caller, job_id)
    with unchecked.transaction() as transaction:
        cancel_started_job(transaction, job_id, charge_cents=10)
        assert check_ledger(transaction) == []
    with psycopg.connect(fresh_database_urls.superuser) as connection:
        connection.execute(breaking.encode())
    with unchecked.transaction() as transaction:
        assert any(sentence in violation for violation in check_ledger(transaction))


def test_the_check_finds_a_cost_that_nobody_held(
    unchecked: Database, fresh_database_urls: DatabaseUrls
) -> None:
    caller, _ = make_caller(unchecked)
    job_id = add_job(unchecked, caller)
    with psycopg.connect(fresh_database_urls.superuser) as connection:
        connection.execute("UPDATE jobs SET status = 'cancelled', finished_at = anex_now(), cost_cents = 5")
    with unchecked.transaction() as transaction:
        assert check_ledger(transaction) == [f"the cost of {job_id} is not what was charged"]
