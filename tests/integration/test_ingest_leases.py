"""The leases of copies: few of one organization at a time, passed on when one settles, and let go of as soon as they are lost."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from anex.errors import LeaseLost
from anex.inputs import copies
from anex.inputs.create import create_input
from anex.inputs.ingest import copy_input
from anex.inputs.model import InputRequest
from anex.jobs.sweep import sweep
from anex.services import Limits
from tests.support.sources import is_copy, look, make_serve, read_columns, say, serve_ranges
from tests.support.spine import in_threads
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from anex.db import Transaction
    from anex.inputs.copies import Copy
    from anex.orgs.model import Caller
    from tests.support.sources import Answer, Serve
    from tests.support.spine import Spine
    from tests.support.tls_server import Exchange

LEASE_SECONDS = 600.0
UNRESOLVED = "https://nowhere.invalid/file.jsonl"


@pytest.fixture
def serve(spine: Spine, tmp_path: Path) -> Serve:
    """Return a context manager that runs a source, and lets the spine's copies reach it."""
    return make_serve(spine, tmp_path)


def claim(transaction: Transaction, input_id: str, *, most: int, region: str = "world") -> Copy | None:
    return copies.claim_copy(transaction, input_id, region, lease_seconds=LEASE_SECONDS, copies_max=most)


def claim_alone(spine: Spine, input_id: str, *, most: int) -> Copy | None:
    with spine.services.database.transaction() as transaction:
        return claim(transaction, input_id, most=most)


def is_somebody_waiting(spine: Spine) -> bool:
    """Whether a connection waits for another one's row."""
    with spine.services.database.transaction() as transaction:
        return bool(transaction.fetch_dicts("SELECT 1 AS one FROM pg_locks WHERE NOT granted"))


def test_slow_copies_of_one_organization_leave_room_for_another(spine: Spine, poor: Caller) -> None:
    mine = [spine.ingest(UNRESOLVED) for _ in range(3)]
    request = InputRequest(source_url=UNRESOLVED)
    theirs = create_input(spine.api, poor, request).input.id
    most = Limits().organization_copies_max
    claimed = [claim_alone(spine, each, most=most) is not None for each in [*mine, theirs]]
    assert (most, claimed) == (2, [True, True, False, True])
    columns = read_columns(spine, mine[2])
    assert (columns["status"], columns["copy_attempts"], columns["copy_fence"]) == ("pending", 0, 0)


def test_two_connections_do_not_claim_the_same_room(spine: Spine) -> None:
    """The second is made to wait until the first has committed, and then counts what that one holds."""
    first, second = spine.ingest(UNRESOLVED), spine.ingest(UNRESOLVED)
    claimed: list[Copy | None] = []
    late = threading.Thread(target=lambda: claimed.append(claim_alone(spine, second, most=1)))
    with spine.services.database.transaction() as transaction:
        assert claim(transaction, first, most=1) is not None
        late.start()
        wait_until(lambda: is_somebody_waiting(spine), what="the second claim waits for the first")
    late.join()
    assert claimed == [None]
    assert look(spine, second).status == "pending"


def test_many_claims_at_once_take_what_there_is_room_for(spine: Spine) -> None:
    waiting = [spine.ingest(UNRESOLVED) for _ in range(6)]
    claimed = in_threads(len(waiting), lambda place: claim_alone(spine, waiting[place], most=2))
    assert sum(each is not None for each in claimed) == 2


def test_a_claim_does_not_keep_an_organization_from_making_inputs(spine: Spine) -> None:
    with spine.services.database.transaction() as transaction:
        assert claim(transaction, spine.ingest(UNRESOLVED), most=1) is not None
        assert spine.ingest(UNRESOLVED)


def test_a_lease_that_ran_out_makes_room(spine: Spine) -> None:
    first, second = spine.ingest(UNRESOLVED), spine.ingest(UNRESOLVED)
    assert claim_alone(spine, first, most=1) is not None
    assert claim_alone(spine, second, most=1) is None
    with spine.services.database.transaction() as transaction:
        transaction.execute(
            "UPDATE inputs SET copy_lease_until = anex_now() - interval '1 s' WHERE status = 'copying'"
        )
    assert claim_alone(spine, second, most=1) is not None


@pytest.mark.parametrize("status", [200, 404])
def test_a_copy_that_settles_rings_for_the_one_that_waits(spine: Spine, serve: Serve, status: int) -> None:
    """Nobody sweeps here: three copies have room for one, and each settled one passes it on, well or badly ended."""
    refused = 0

    def answer(exchange: Exchange) -> None:
        nonlocal refused
        if (
            is_copy(exchange) and len(server.requests) == 4
        ):  # after three looks, the first copy: the others' doorbells are heard
            for input_id in waiting[1:]:
                copy_input(spine.services, input_id)
                refused += look(spine, input_id).status == "pending"
            spine.dispatcher.rings.clear()
        exchange.respond(status, b"{}\n")

    with serve(answer, organization_copies_max=1) as server:
        waiting = [spine.ingest(server.url()) for _ in range(3)]
        copy_input(spine.services, waiting[0])
        assert refused == 2
        assert list(spine.dispatcher.rings) == [("copy", waiting[1])]
        spine.answer_rings()
    ended = {look(spine, each).status for each in waiting}
    assert ended == {"ready" if status == 200 else "failed"}


def test_two_copies_that_settle_ring_for_two(spine: Spine) -> None:
    waiting = [spine.ingest(UNRESOLVED) for _ in range(2)]
    rung = set()
    for _ in waiting:
        with spine.services.database.transaction() as transaction:
            rung.add(copies.find_next_to_ring(transaction, spine.caller.org_id, "world"))
            assert copies.find_next_to_ring(transaction, spine.caller.org_id, "eu") is None
    assert rung == set(waiting)


def test_a_copy_that_found_no_room_is_rung_for_by_the_sweeper_too(spine: Spine, serve: Serve) -> None:
    with serve(lambda exchange: serve_ranges(exchange, b"{}\n"), organization_copies_max=1) as server:
        first, second = spine.ingest(server.url()), spine.ingest(server.url())
        held = claim_alone(spine, first, most=1)
        spine.answer_rings()
        assert look(spine, second).status == "pending"
        assert held is not None
        with spine.services.database.transaction() as transaction:
            copies.give_back_copy(transaction, held)
        assert sweep(spine.services).copies_rung == 2
        spine.answer_rings()
        assert look(spine, second).status == "ready"


def trickle(exchange: Exchange) -> None:
    say(exchange, 200, {"Content-Length": 100_000})
    exchange.drip(bytes(100_000))


def stand_still(exchange: Exchange) -> None:
    say(exchange, 200, {"Content-Length": 100_000}, bytes(70_000))
    exchange.stay_silent()


def trickle_headers(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
    exchange.drip(b"x" * 60_000)


@pytest.mark.parametrize("slow", [trickle, stand_still, trickle_headers])
def test_a_lost_lease_frees_the_thread_although_the_source_goes_on(
    spine: Spine, serve: Serve, slow: Answer
) -> None:
    """Nothing but the lost lease ends these requests before the test's own limit."""
    begun, ended = threading.Event(), list[type[BaseException] | None]()

    def answer(exchange: Exchange) -> None:
        if is_copy(exchange):
            begun.set()
            slow(exchange)

    def run() -> None:
        try:
            copy_input(spine.services, input_id)
        except LeaseLost as lost:
            ended.append(type(lost))

    timings = {"heartbeat_seconds": 0.1, "lease_seconds": LEASE_SECONDS, "copy_idle_seconds": 3600.0}
    with serve(answer, timings=timings) as server:
        input_id = spine.ingest(server.url())
        copier = threading.Thread(target=run)
        copier.start()
        assert begun.wait(30)
        with spine.services.database.transaction() as transaction:
            transaction.execute("UPDATE inputs SET copy_fence = copy_fence + 1")
        wait_until(lambda: not copier.is_alive(), timeout_seconds=20, what="the copier has let go")
    assert ended == [LeaseLost]
    assert not list(spine.services.objects.list_keys(look(spine, input_id).object_key))
