"""Any history of grants, holds and ends: the books agree with a model of two numbers, and with themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anex.clock import SystemClock
from anex.db import Database
from anex.errors import BalanceTooLow
from anex.ledger.check import check_ledger
from anex.ledger.grants import grant_credits
from anex.ledger.store import get_balance, list_transfers
from anex.money import cents_to_nanos
from tests.support.factories import cancel_started_job, make_caller, make_priced_job, start_priced_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anex.orgs.model import Caller
    from tests.support.servers import Servers

amounts_cents = st.integers(1, 60)
grants = st.tuples(st.just("grant"), amounts_cents, st.just(0))
approvals = st.tuples(st.just("approve"), amounts_cents, st.just(0))
ends = st.tuples(st.just("end"), st.integers(0, 90), st.integers(0, 9))
histories = st.lists(st.one_of(grants, approvals, ends), max_size=20)


@dataclass(slots=True)
class Model:
    """What the books should say, in cents."""

    available: int = 0
    open_holds: list[tuple[str, int]] = field(default_factory=list)
    spent: int = 0

    @property
    def held(self) -> int:
        return sum(amount for _, amount in self.open_holds)


@pytest.fixture(scope="module")
def work(servers: Servers) -> Iterator[Database]:
    urls = servers.make_database()
    database = Database(urls.work).open()
    yield database
    database.close()
    servers.drop_database(urls)


def grant(database: Database, caller: Caller, model: Model, cents: int) -> None:
    with database.transaction() as transaction:
        grant_credits(
            transaction,
            org_id=caller.org_id,
            amount_nanos=cents_to_nanos(cents),
            reason="",
            now=SystemClock().now(),
        )
    model.available += cents


def approve(database: Database, caller: Caller, model: Model, cents: int) -> None:
    with database.transaction() as transaction:
        job = make_priced_job(transaction, caller, cents)
    if cents > model.available:
        with pytest.raises(BalanceTooLow), database.transaction() as transaction:
            start_priced_job(transaction, caller, job.id)
        return
    with database.transaction() as transaction:
        start_priced_job(transaction, caller, job.id)
    model.available -= cents
    model.open_holds.append((job.id, cents))


def end(database: Database, model: Model, charge_cents: int, which: int) -> None:
    if not model.open_holds:
        return
    job_id, held_cents = model.open_holds.pop(which % len(model.open_holds))
    with database.transaction() as transaction:
        charged = cancel_started_job(transaction, job_id, charge_cents)
    expected = min(held_cents, charge_cents)
    assert charged == cents_to_nanos(expected)
    model.available += held_cents - expected
    model.spent += expected


@settings(max_examples=40, deadline=None)
@given(histories)
def test_every_history_leaves_right_books(work: Database, history: list[tuple[str, int, int]]) -> None:
    caller, _ = make_caller(work)
    model = Model()
    for what, cents, which in history:
        if what == "grant":
            grant(work, caller, model, cents)
        elif what == "approve":
            approve(work, caller, model, cents)
        else:
            end(work, model, cents, which)
        with work.transaction() as transaction:
            balance = get_balance(transaction, caller.org_id)
        assert balance.available_nanos == cents_to_nanos(model.available)
        assert balance.held_nanos == cents_to_nanos(model.held)
    with work.transaction() as transaction:
        assert check_ledger(transaction) == []
        charges = [each for each in list_transfers(transaction, caller.org_id) if each.kind == "charge"]
    assert sum(each.amount_nanos for each in charges) == cents_to_nanos(model.spent)
