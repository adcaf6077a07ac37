"""How a run ends when it does not end well: what ran is delivered and billed, and nothing waits for ever."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from anex.errors import LeaseLost
from anex.jobs.approve import approve_job
from anex.jobs.cancel import cancel_job
from anex.jobs.chunks import claim_chunk, list_parts
from anex.jobs.delete import delete_data
from anex.jobs.finalize import finalize_job
from anex.jobs.run_chunk import run_next_chunk
from anex.jobs.sweep import sweep
from anex.objects import ObjectHead, ObjectStore, PartSource
from anex.units.model import Lease, StopSignals
from anex.units.store import list_stopped_jobs
from tests.support.audit import audit
from tests.support.spine import TWO_CHUNKS_CAP, TWO_CHUNKS_ROWS, chat_rows
from tests.support.wait import wait_until
from workers.engine_client import EngineClient

if TYPE_CHECKING:
    from pathlib import Path

    from anex.jobs.chunks import Chunk
    from anex.jobs.model import Job
    from tests.support.spine import Spine

TWO_SPANS_ROWS = 9000
"""One span holds 8,192 at most."""


class DrainAfter(threading.Event):
    """A drain that begins once it has been asked about ``rows`` times: a slot asks before each row."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows_left = rows

    def is_set(self) -> bool:
        self.rows_left -= 1
        return self.rows_left < 0


def approve(spine: Spine, rows: int = 20, cap: int = 16) -> Job:
    job = spine.submit(chat_rows(rows), max_output_tokens=cap)
    spine.answer_rings()
    return approve_job(spine.api, spine.caller, job.id)


def run_and_drain(spine: Spine, rows: int) -> None:
    """Run the next chunk until ``rows`` of its rows were begun, and give it back."""
    stop = StopSignals(draining=DrainAfter(rows))
    assert run_next_chunk(spine.services, spine.engine, spine.unit, stop, spine.leases)


def claim(spine: Spine) -> Chunk:
    with spine.services.database.transaction() as transaction:
        chunk = claim_chunk(transaction, spine.unit, lease_seconds=600)
    assert chunk is not None
    return chunk


def count_left_objects(spine: Spine, job: Job) -> int:
    keys = spine.services.objects.list_keys(f"jobs/{job.org_id}/{job.id}/")
    return sum("/result/" not in key for key in keys)


def lose_checkpoint(spine: Spine) -> None:
    with spine.services.database.transaction() as transaction:
        row = transaction.fetch_dict("SELECT checkpoint_key FROM chunks")
    assert row is not None
    spine.services.objects.delete([row["checkpoint_key"]])


def test_a_cancel_delivers_the_rows_of_a_chunk_that_was_given_back(spine: Spine) -> None:
    job = approve(spine)
    run_and_drain(spine, rows=7)
    assert cancel_job(spine.api, spine.caller, job.id).status == "cancelling"
    spine.answer_rings()
    ended = spine.job(job.id)
    assert (ended.status, ended.partial, ended.pending_rows) == ("cancelled", True, 13)
    assert [line["custom_id"] for line in spine.result_lines(job.id)] == [f"row-{n}" for n in range(1, 8)]
    assert ended.cost_cents
    assert count_left_objects(spine, job) == 0
    audit(spine.services)


def test_a_dead_workers_checkpoint_is_delivered_when_its_job_is_being_cancelled(spine: Spine) -> None:
    job = approve(spine)
    run_and_drain(spine, rows=4)
    claim(spine)
    assert cancel_job(spine.api, spine.caller, job.id).status == "cancelling"
    with spine.services.database.transaction() as transaction:
        transaction.execute("UPDATE chunks SET lease_until = anex_now() - interval '1 s'")
    sweep(spine.services)
    spine.answer_rings()
    ended = spine.job(job.id)
    assert (ended.status, ended.pending_rows, len(spine.result_lines(job.id))) == ("cancelled", 16, 4)
    audit(spine.services)


def test_a_lost_checkpoint_does_not_keep_a_cancel_from_settling(spine: Spine) -> None:
    job = approve(spine)
    run_and_drain(spine, rows=4)
    lose_checkpoint(spine)
    cancel_job(spine.api, spine.caller, job.id)
    spine.answer_rings()
    ended = spine.job(job.id)
    assert (ended.status, ended.cost_cents, ended.pending_rows) == ("cancelled", 0, 20)
    audit(spine.services)


def test_the_rows_of_a_lost_checkpoint_run_again(spine: Spine) -> None:
    job = approve(spine)
    run_and_drain(spine, rows=4)
    lose_checkpoint(spine)
    spine.answer_rings()
    assert spine.job(job.id).status == "done"
    assert len(spine.result_lines(job.id)) == 20
    audit(spine.services)


def test_rows_that_are_missing_at_the_end_fail_the_job_with_what_there_is(spine: Spine) -> None:
    job = approve(spine, TWO_CHUNKS_ROWS, TWO_CHUNKS_CAP)
    spine.run_chunk()
    spine.run_chunk()
    with spine.services.database.transaction() as transaction:
        transaction.execute("UPDATE chunks SET state = 'dropped' WHERE chunk_index = 1")
    spine.answer_rings()
    ended = spine.job(job.id)
    assert (ended.status, ended.failure_code, ended.partial) == ("failed", "internal_error", True)
    assert ended.failure_reason is not None
    delivered = len(spine.result_lines(job.id))
    assert f"{delivered} of {TWO_CHUNKS_ROWS} rows" in ended.failure_reason
    assert ended.pending_rows == TWO_CHUNKS_ROWS - delivered > 0
    assert ended.cost_cents
    audit(spine.services)


def test_a_job_that_failed_stops_its_other_chunks(spine: Spine) -> None:
    job = approve(spine, TWO_CHUNKS_ROWS, TWO_CHUNKS_CAP)
    held = claim(spine)
    with spine.services.database.transaction() as transaction:
        row = transaction.fetch_dict("SELECT object_key FROM inputs WHERE id = %(id)s", {"id": job.input_id})
    assert row is not None
    spine.services.objects.put(
        row["object_key"], b"".join(chat_rows(TWO_CHUNKS_ROWS, "Something else {number}"))
    )
    lease = Lease(held.job_id, held.chunk_index, held.fence)
    with spine.services.database.transaction() as transaction:
        assert list_stopped_jobs(transaction, [lease]) == frozenset()
    spine.answer_rings()
    assert spine.job(job.id).status == "failed"
    with spine.services.database.transaction() as transaction:
        assert list_stopped_jobs(transaction, [lease]) == {job.id}
        states = transaction.fetch_dicts("SELECT DISTINCT state, lease_until FROM chunks")
    assert states == [{"state": "dropped", "lease_until": None}]
    audit(spine.services)


def test_a_cancel_is_heard_while_the_engine_is_full_of_other_rows(
    spine: Spine, fake_engine_socket: Path
) -> None:
    """The slot waits for room at the engine and gets none; it must not begin a row once it has."""
    job = approve(spine, rows=3)
    full = EngineClient(fake_engine_socket, 1, progress_seconds=0.2)
    full._budget.acquire(0)
    stop = StopSignals()
    running = threading.Thread(
        target=run_next_chunk, args=(spine.services, full, spine.unit, stop, spine.leases)
    )
    running.start()
    wait_until(lambda: full._budget._queue, what="the slot waits for room")
    assert cancel_job(spine.api, spine.caller, job.id).status == "cancelling"
    stop.note_stopped(frozenset({job.id}))
    running.join(30)
    assert not running.is_alive()
    full.close()
    spine.answer_rings()
    assert (spine.job(job.id).status, spine.job(job.id).pending_rows) == ("cancelled", 3)
    audit(spine.services)


def test_a_drain_is_heard_while_the_engine_is_full_and_gives_the_chunk_back(
    spine: Spine, fake_engine_socket: Path
) -> None:
    job = approve(spine, rows=3)
    full = EngineClient(fake_engine_socket, 1, progress_seconds=0.2)
    full._budget.acquire(0)
    stop = StopSignals()
    running = threading.Thread(
        target=run_next_chunk, args=(spine.services, full, spine.unit, stop, spine.leases)
    )
    running.start()
    wait_until(lambda: full._budget._queue, what="the slot waits for room")
    stop.draining.set()
    running.join(30)
    assert not running.is_alive()
    full.close()
    with spine.services.database.transaction() as transaction:
        assert transaction.fetch_dicts("SELECT state, attempts FROM chunks") == [
            {"state": "ready", "attempts": 0}
        ]
    spine.answer_rings()
    assert spine.job(job.id).status == "done"


def test_a_late_finalizer_brings_no_result_back(spine: Spine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands still between reading the parts and writing the result; meanwhile the job ends and is deleted."""
    job = approve(spine)
    spine.run_chunk()
    with spine.services.database.transaction() as transaction:
        parts = [PartSource(**part) for part in list_parts(transaction, job.id)]
    kept = [spine.services.objects.read_range(part.key, 0, part.size_bytes) for part in parts]

    def join_late(_store: ObjectStore, key: str, _parts: list[PartSource]) -> ObjectHead:
        monkeypatch.undo()
        with spine.services.database.transaction() as transaction:
            transaction.execute("UPDATE jobs SET step_lease_until = anex_now() - interval '1 s'")
        finalize_job(spine.services, job.id)
        assert delete_data(spine.api, spine.caller, job.id).message is None
        data = b"".join(kept)
        return ObjectHead(len(data), spine.services.objects.put(key, data))

    monkeypatch.setattr(ObjectStore, "join", join_late)
    with pytest.raises(LeaseLost):
        finalize_job(spine.services, job.id)
    audit(spine.services)


@pytest.fixture
def impatient(spine: Spine) -> Spine:
    """Return an installation whose estimates must get on every hundred seconds."""
    spine.services = replace(
        spine.services, timings=replace(spine.services.timings, estimate_stall_seconds=100)
    )
    return spine


def test_counting_that_gets_on_is_not_stalled_however_long_it_takes(impatient: Spine) -> None:
    job = impatient.submit(chat_rows(TWO_SPANS_ROWS), max_output_tokens=16)
    impatient.answer_one()  # validate: two spans
    database = impatient.services.database
    with database.transaction() as transaction:
        transaction.execute("UPDATE jobs SET step_started_at = step_started_at - interval '101 s'")
    impatient.answer_one()  # one span counted
    sweep(impatient.services)
    assert impatient.job(job.id).status == "submitted"
    with database.transaction() as transaction:
        transaction.execute("UPDATE jobs SET step_started_at = step_started_at - interval '101 s'")
    sweep(impatient.services)
    stalled = impatient.job(job.id)
    assert (stalled.status, stalled.failure_code) == ("failed", "invalid_input")
    assert (stalled.failure_reason or "").startswith(
        "We could not prepare a price for this job automatically."
    )


def test_progress_is_what_was_counted_not_when_the_job_was_made(impatient: Spine) -> None:
    job = impatient.submit(chat_rows(3), max_output_tokens=16)
    with impatient.services.database.transaction() as transaction:
        before = transaction.fetch_dict("SELECT step_started_at FROM jobs WHERE id = %(id)s", {"id": job.id})
    impatient.answer_rings()
    after = impatient.job(job.id)
    assert after.cost_ready_at is not None
    assert before is not None
    assert after.cost_ready_at - (before["step_started_at"] or after.created_at) < timedelta(seconds=100)
