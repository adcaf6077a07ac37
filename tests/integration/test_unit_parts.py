"""The parts of a GPU unit by themselves: its place, its workers' restarts, its lease keeper, its rows in the database."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from anex.jobs.approve import approve_job
from anex.jobs.chunks import claim_chunk
from anex.units.model import EngineState, Lease, StopSignals, Unit
from anex.units.store import (
    delete_dead_units,
    delete_unit,
    extend_leases,
    has_work,
    is_deaf,
    list_stopped_jobs,
    list_units,
    note_claim,
    note_heartbeat,
    return_leases,
)
from config.stack.layout import DataFolder
from tests.support.engines import short_folder
from tests.support.spine import MODEL, chat_rows
from tests.support.wait import wait_until
from workers.engine_child import SOCKET_PATH_MAX_BYTES
from workers.leases import LeaseKeeper
from workers.places import PLACES_MAX, PlacesTaken, take_place
from workers.unit_worker import FIRST_DELAY_SECONDS, LAST_DELAY_SECONDS, STEADY_SECONDS, UnitWorker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.spine import Spine
    from workers.slots import Slots

SISTERS = ("qwen3-vl-embedding-8b", "qwen3-vl-embedding-2b")


@pytest.fixture
def folder() -> Iterator[DataFolder]:
    with short_folder() as root:
        folder = DataFolder(root)
        folder.create()
        yield folder


def test_no_two_units_share_a_socket(folder: DataFolder) -> None:
    places = [take_place(folder, queue) for queue in (*SISTERS, *SISTERS, MODEL)]
    assert [place.number for place in places] == [0, 0, 1, 1, 0]
    assert len({place.socket_path for place in places}) == len({place.log_path for place in places}) == 5
    for place in places:
        os.close(place.lock_descriptor)


def test_a_place_is_free_again_when_its_unit_has_ended(folder: DataFolder) -> None:
    first, second = take_place(folder, MODEL), take_place(folder, MODEL)
    os.close(first.lock_descriptor)
    again = take_place(folder, MODEL)
    assert again.socket_path == first.socket_path
    os.close(again.lock_descriptor)
    os.close(second.lock_descriptor)


def test_places_have_an_end_that_says_what_to_do(folder: DataFolder) -> None:
    places = [take_place(folder, MODEL) for _ in range(PLACES_MAX)]
    with pytest.raises(PlacesTaken, match="set ANEX_DATA_DIR"):
        take_place(folder, MODEL)
    for place in places:
        os.close(place.lock_descriptor)


def test_the_longest_name_fits_a_socket_in_the_deepest_folder() -> None:
    with short_folder() as root:
        deep = root / ("d" * (70 - len(os.fsencode(root)) - len("//run")))
        folder = DataFolder(deep)
        folder.create()
        assert len(os.fsencode(folder.run)) == 70  # for a UUID of vLLM too
        place = take_place(folder, "q" * 64)
        os.close(place.lock_descriptor)
        longest = place.socket_path.with_name(place.socket_path.name.replace("-0.", f"-{PLACES_MAX - 1}."))
        assert len(os.fsencode(longest)) <= SOCKET_PATH_MAX_BYTES


def test_a_worker_that_keeps_dying_is_started_ever_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("workers.unit_worker.time.monotonic", lambda: now[0])
    worker = UnitWorker("workers.drain", [], {})  # a module that ends when it is run
    pauses = []
    for _ in range(9):
        assert worker.is_due()
        worker.start()
        assert not worker.is_due()
        worker.end()
        pauses.append(worker._start_at - now[0])
        assert not worker.is_due()
        now[0] = worker._start_at
    assert pauses[:3] == [FIRST_DELAY_SECONDS, 2 * FIRST_DELAY_SECONDS, 4 * FIRST_DELAY_SECONDS]
    assert pauses[-1] == LAST_DELAY_SECONDS
    worker.start()
    now[0] += STEADY_SECONDS
    worker.end()
    assert worker._start_at - now[0] == FIRST_DELAY_SECONDS


def test_a_worker_that_is_gone_is_told_nothing_and_noticed() -> None:
    worker = UnitWorker("workers.nothing_of_that_name", [], {})
    worker.tell("drain")
    assert not worker.is_running()
    assert not worker.has_died()
    worker.start()
    wait_until(worker.has_died, what="it has died")
    worker.tell("drain")
    worker.tell("now")
    worker.end()
    assert not worker.has_died()


@dataclass
class StillEngine:
    """An engine whose counters a test moves."""

    moved: int = 0
    rows: int = 1

    def progress(self) -> int:
        return self.moved

    def in_flight(self) -> int:
        return self.rows


@dataclass
class BusySlots:
    """Slots that are at work on one unit's chunks."""

    services: Any
    unit: Unit
    engine: StillEngine = field(default_factory=StillEngine)
    stop: StopSignals = field(default_factory=StopSignals)
    busy: bool = True

    def is_busy(self) -> bool:
        return self.busy


def test_only_an_engine_with_rows_in_flight_and_no_progress_has_stalled(spine: Spine) -> None:
    slots = BusySlots(spine.services, spine.unit)
    stall_seconds = spine.services.catalog.get(MODEL).engine.stall_seconds
    keeper = LeaseKeeper(cast("Slots", slots), _moved_at=0.0)
    assert not keeper._has_stalled(1.0)  # the first look sees movement
    assert not keeper._has_stalled(stall_seconds)
    assert keeper._has_stalled(1.0 + stall_seconds)
    slots.engine.moved = 7
    assert not keeper._has_stalled(2.0 + stall_seconds)
    slots.engine.rows = 0
    assert not keeper._has_stalled(99.0 + 2 * stall_seconds)
    slots.engine.rows = 1
    assert keeper._has_stalled(99.0 + 3 * stall_seconds)


def test_a_keeper_that_fails_ends_its_worker(monkeypatch: pytest.MonkeyPatch, spine: Spine) -> None:
    class Ended(BaseException):
        pass

    class Ticks:
        def wait(self, _seconds: float) -> bool:
            return False

    def leave(code: int) -> None:
        assert code == 1
        raise Ended

    slots = BusySlots(spine.services, spine.unit)
    monkeypatch.setattr(slots.engine, "progress", lambda: 1 // 0)
    monkeypatch.setattr("workers.leases.os._exit", leave)
    with pytest.raises(Ended):
        LeaseKeeper(cast("Slots", slots)).run(cast("Any", Ticks()))


def start_job(spine: Spine) -> str:
    job = spine.submit(chat_rows(3), max_output_tokens=16)
    spine.answer_rings()
    approve_job(spine.api, spine.caller, job.id)
    return job.id


def claim(spine: Spine, unit: Unit) -> None:
    with spine.services.database.transaction() as transaction:
        chunk = claim_chunk(transaction, unit, lease_seconds=5)
    assert chunk is not None


def other_unit(unit: Unit, revision: str = "1") -> Unit:
    return Unit("other", unit.region, unit.model, unit.model_queue, revision, 1)


def test_a_unit_has_work_while_something_waits_or_it_runs_a_chunk(spine: Spine) -> None:
    unit = spine.unit

    def works(who: Unit) -> bool:
        with spine.services.database.transaction() as transaction:
            return has_work(transaction, who)

    assert not works(unit)
    start_job(spine)
    assert works(unit)
    assert not works(other_unit(unit, revision="2"))
    claim(spine, unit)
    assert works(unit)
    assert not works(other_unit(unit))
    sampled = spine.submit(chat_rows(3))
    while spine.job(sampled.id).step != "sample":
        spine.answer_one()
    assert works(other_unit(unit))


def test_a_unit_is_deaf_when_chunks_wait_it_holds_none_and_looks_for_none(spine: Spine) -> None:
    unit = spine.unit

    def deaf(quiet_seconds: float = 0.0) -> bool:
        with spine.services.database.transaction() as transaction:
            return is_deaf(transaction, unit, quiet_seconds)

    assert not deaf()
    start_job(spine)
    assert deaf()
    assert not deaf(quiet_seconds=60)
    with spine.services.database.transaction() as transaction:
        transaction.execute("UPDATE units SET started_at = anex_now() - interval '1 hour'")
    assert deaf(quiet_seconds=60)
    with spine.services.database.transaction() as transaction:
        note_claim(transaction, unit.id)
    assert not deaf(quiet_seconds=60)
    claim(spine, unit)
    assert not deaf()


def test_a_chunk_that_no_slot_holds_runs_out_however_busy_its_unit_is(spine: Spine) -> None:
    job_id = start_job(spine)
    claim(spine, spine.unit)
    with spine.services.database.transaction() as transaction:
        assert extend_leases(transaction, spine.unit.id, [], 600) == 0
        assert extend_leases(transaction, spine.unit.id, [Lease(job_id, 0, 2)], 600) == 0


def test_leases_are_extended_and_returned_for_one_unit_only(spine: Spine) -> None:
    job_id = start_job(spine)
    claim(spine, spine.unit)
    with spine.services.database.transaction() as transaction:
        held = [Lease(job_id, 0, 1)]
        assert extend_leases(transaction, "other", held, 600) == 0
        assert extend_leases(transaction, spine.unit.id, held, 600) == 1
        assert list_stopped_jobs(transaction, held) == frozenset()
        left = transaction.fetch_dict(
            "SELECT lease_until > anex_now() + interval '500 s' AS long FROM chunks"
        )
        assert left == {"long": True}
        transaction.execute("UPDATE jobs SET status = 'cancelling' WHERE id = %(id)s", {"id": job_id})
        assert list_stopped_jobs(transaction, held) == {job_id}
        assert return_leases(transaction, "other") == 0
        assert return_leases(transaction, spine.unit.id) == 1
        chunk = transaction.fetch_dict("SELECT state, attempts, lease_until, leased_by FROM chunks")
        assert chunk == {"state": "ready", "attempts": 1, "lease_until": None, "leased_by": None}


def test_units_are_listed_while_they_live_and_forgotten_when_long_dead(spine: Spine) -> None:
    unit = spine.unit
    with spine.services.database.transaction() as transaction:
        note_heartbeat(transaction, other_unit(unit), EngineState.SICK, "it died often")
        transaction.execute(
            "UPDATE units SET heartbeat_at = anex_now() - interval '2 days' WHERE id = %(id)s",
            {"id": unit.id},
        )
        assert [(row.id, row.engine_state, row.detail) for row in list_units(transaction, 60)] == [
            ("other", "sick", "it died often")
        ]
        assert len(list_units(transaction, 7 * 86400)) == 2
        delete_dead_units(transaction)
        assert [row.id for row in list_units(transaction, 7 * 86400)] == ["other"]
        delete_unit(transaction, "other")
        assert list_units(transaction, 7 * 86400) == []
