"""A GPU unit's life in processes of its own: start, stop in every way, and the death of each part."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from anex.jobs.cancel import cancel_job
from config.stack.proc import is_alive
from tests.support.gpu_unit import CATALOG, START_SECONDS, run_unit, serve_outside
from tests.support.wait import wait_until
from workers.engine_mark import find_mark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from anex.s3 import S3Location
    from tests.support.gpu_unit import Outside, RunningUnit
    from tests.support.servers import DatabaseUrls
    from tests.support.spine import Spine

LONG_ROWS = 300
"""At 16 rows in the engine and 0.2 s and more each: some seconds of work."""


@pytest.fixture
def place(
    spine: Spine, fresh_database_urls: DatabaseUrls, valkey_url: str, s3_location: S3Location
) -> Iterator[tuple[Outside, Path]]:
    with serve_outside(spine, fresh_database_urls, valkey_url, s3_location) as place:
        yield place


@pytest.fixture
def outside(place: tuple[Outside, Path]) -> Outside:
    return place[0]


@pytest.fixture
def folder(place: tuple[Outside, Path]) -> Path:
    return place[1]


@pytest.fixture
def unit(outside: Outside, folder: Path) -> Iterator[RunningUnit]:
    with run_unit(outside, folder) as unit:
        unit.wait_for_state("ready")
        yield unit


def start_and_wait(unit: RunningUnit, rows: int) -> str:
    """Start a job and wait until rows of it are in the engine; return its id."""
    job_id = unit.outside.start_job(rows)
    wait_until(
        unit.has_rows_in_engine, timeout_seconds=START_SECONDS, what="rows of the job are in the engine"
    )
    return job_id


def test_it_registers_gets_ready_and_runs_what_it_is_rung_for(outside: Outside, unit: RunningUnit) -> None:
    row = unit.row()
    assert row is not None
    assert (row.model, row.model_queue, row.model_revision, row.slots) == ("fake-chat", "fake-chat", "1", 3)
    assert row.detail.startswith("the engine is ready")
    outside.check_done(outside.start_job(20), rows=20)
    row = unit.row()
    assert row is not None
    assert row.claimed_at is not None


def test_sigterm_drains_and_the_next_claim_runs_only_what_is_missing(
    outside: Outside, folder: Path, unit: RunningUnit
) -> None:
    job_id = start_and_wait(unit, LONG_ROWS)
    unit.process.send_signal(signal.SIGTERM)
    assert unit.wait_for_end() == 0
    (chunk,) = outside.chunks(job_id)
    assert (chunk["state"], chunk["attempts"], chunk["leased_by"]) == ("ready", 0, None)
    assert 0 < chunk["rows_done"] < LONG_ROWS
    assert chunk["checkpoint_key"] is not None
    assert unit.row() is None
    assert "worker_drained" in unit.read_log()
    outside.ring()
    with run_unit(outside, folder, "second"):
        outside.check_done(job_id, rows=LONG_ROWS)


def test_a_second_signal_gives_back_without_waiting(outside: Outside, unit: RunningUnit) -> None:
    unit.set_switches(hang=True)
    job_id = start_and_wait(unit, 5)
    unit.process.send_signal(signal.SIGINT)
    unit.wait_for_state("draining")
    wait_until(lambda: unit.row() is not None and unit.process.poll() is None, what="the unit drains")
    assert outside.chunks(job_id)[0]["state"] == "leased"
    unit.process.send_signal(signal.SIGINT)
    assert unit.wait_for_end() == 0
    (chunk,) = outside.chunks(job_id)
    assert (chunk["state"], chunk["attempts"]) == ("ready", 0)


def test_a_unit_that_waits_for_its_engine_stops_when_told(outside: Outside, folder: Path) -> None:
    catalog = folder / "never.toml"
    never = '"--switches", \'{"unhealthy": true}\', "--answer-law"'
    catalog.write_text(CATALOG.read_text().replace('"--answer-law"', never))
    with run_unit(outside, folder, catalog=catalog) as unit:
        row = unit.wait_for_state("starting")
        assert unit.process.poll() is None, row
        unit.wait_for_generation(1)
        assert not [line for line in unit.others().values() if "workers.run" in line]
        unit.process.send_signal(signal.SIGTERM)
        assert unit.wait_for_end() == 0
        assert unit.row() is None


@pytest.mark.parametrize("hang", [False, True])
def test_a_killed_parent_leaves_no_process_and_no_lease(
    outside: Outside, unit: RunningUnit, *, hang: bool
) -> None:
    unit.set_switches(hang=hang)
    job_id = start_and_wait(unit, LONG_ROWS)
    assert len(unit.others()) >= 3  # the engine and two workers
    unit.process.kill()
    unit.wait_for_end()
    assert outside.chunks(job_id)[0]["state"] == "ready"


def test_a_deaf_engine_of_a_killed_parent_is_ended_by_the_worker_that_is_left(unit: RunningUnit) -> None:
    engine = unit.find("workers.engines.fake")
    os.kill(engine, signal.SIGSTOP)
    unit.process.kill()
    unit.wait_for_end()
    assert not is_alive(engine)


def test_a_killed_engine_is_started_again_and_the_chunk_runs_on(outside: Outside, unit: RunningUnit) -> None:
    job_id = start_and_wait(unit, LONG_ROWS)
    worker = unit.find("workers.run")
    mark = find_mark(unit.socket_path)
    assert mark is not None
    os.killpg(mark.process_id, signal.SIGKILL)
    outside.check_done(job_id, rows=LONG_ROWS)
    unit.wait_for_generation(2)
    assert outside.chunks(job_id)[0]["attempts"] == 1
    assert unit.find("workers.run") == worker
    unit.wait_for_state("ready")


@pytest.mark.parametrize("module", ["workers.run", "workers.quick"])
def test_a_killed_worker_is_replaced(outside: Outside, unit: RunningUnit, module: str) -> None:
    job_id = start_and_wait(unit, LONG_ROWS)
    engine, worker = unit.find("workers.engines.fake"), unit.find(module)
    os.kill(worker, signal.SIGKILL)
    outside.check_done(job_id, rows=LONG_ROWS)
    wait_until(
        lambda: any(module in line and pid != worker for pid, line in unit.others().items()),
        what="there is another worker",
    )
    assert unit.find("workers.engines.fake") == engine


def test_a_worker_that_hears_no_doorbell_is_replaced(outside: Outside, folder: Path) -> None:
    with run_unit(outside, folder, ANEX_WORKER_ALIVE_SECONDS="6") as unit:
        unit.wait_for_state("ready")
        outside.check_done(outside.start_job(1), rows=1)
        deaf = unit.find("workers.run")
        os.kill(deaf, signal.SIGSTOP)
        outside.check_done(outside.start_job(5), rows=5)
        assert not is_alive(deaf)


def test_an_engine_that_makes_no_progress_is_killed_and_its_chunk_runs_again(
    outside: Outside, unit: RunningUnit
) -> None:
    unit.set_switches(hang=True)
    job_id = start_and_wait(unit, 5)
    outside.check_done(job_id, rows=5)
    assert "engine_stalled" in unit.read_log()


def test_a_cancelled_jobs_finished_rows_become_its_part(outside: Outside, unit: RunningUnit) -> None:
    job_id = start_and_wait(unit, LONG_ROWS)
    spine = outside.spine
    assert cancel_job(spine.api, spine.caller, job_id).status == "cancelling"
    chunk = wait_until(
        lambda: next((c for c in outside.chunks(job_id) if c["state"] in ("done", "dropped")), None),
        what="the chunk has ended",
    )
    assert chunk is not None
    assert chunk["rows_done"] < LONG_ROWS


def test_an_idle_unit_ends_but_not_while_it_holds_a_chunk(outside: Outside, folder: Path) -> None:
    with run_unit(outside, folder, ANEX_ENGINE_IDLE_SECONDS="2") as unit:
        unit.wait_for_state("ready")
        unit.set_switches(delay_seconds=4.0)
        job_id = outside.start_job(1)
        outside.wait_for_state(job_id, "done")
        row = unit.row()
        assert row is not None
        assert row.engine_state == "ready"
        outside.check_done(job_id, rows=1)
        assert unit.wait_for_end() == 0
        assert unit.row() is None


def test_two_units_of_one_model_serve_side_by_side(outside: Outside, folder: Path, unit: RunningUnit) -> None:
    with run_unit(outside, folder, "second") as second:
        wait_until(
            lambda: any("workers.run" in line for line in second.others().values()),
            timeout_seconds=START_SECONDS,
            what="the second unit serves",
        )
        mark = find_mark(unit.socket_path)
        assert mark is not None
        assert mark.generation == 1
        assert len(list((folder / "run").glob("*.sock"))) == 2
        unit.process.kill()
        unit.wait_for_end()
        outside.check_done(outside.start_job(5), rows=5)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"ANEX_MODELS_OFFERED": "fake-chat", "ANEX_ALLOW_FAKE_ENGINE": "0"}, "fake"),
        ({"ANEX_DATABASE_WORK_URL": "postgresql://anex_work:x@127.0.0.1:1/none"}, "database"),
        ({"ANEX_LEASE_SECONDS": "soon"}, "ANEX_LEASE_SECONDS"),
    ],
)
def test_what_keeps_it_from_starting_is_said_in_one_line(
    outside: Outside, folder: Path, variables: dict[str, str], words: str
) -> None:
    with run_unit(outside, folder, catalog=CATALOG, **variables) as unit:
        assert unit.wait_for_end() == 1
        (line,) = [line for line in unit.read_log().splitlines() if "unit_refused" in line]
        assert words in line
        assert "Traceback" not in unit.read_log()
