"""What is measured of a model's speed, and what an estimate makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from anex.estimating.chunks import ChunkPlan
from anex.jobs.chunks import insert_chunks
from anex.units.model import EngineState, Unit
from anex.units.speed import PACE_MAX, STARTS_KEPT, find_pace, find_start_seconds, note_start
from anex.units.store import note_heartbeat
from tests.support.factories import make_priced_job
from tests.support.spine import MODEL, chat_rows

if TYPE_CHECKING:
    from tests.support.spine import Spine

REVISION = "1"
UNIT = Unit("unit-measured", "world", MODEL, MODEL, REVISION, slots=3)


def find_start(spine: Spine) -> float | None:
    return find_start_seconds(spine.services.database.reader(), "world", MODEL, REVISION, alive_seconds=60)


def forget_units(spine: Spine) -> None:
    with spine.services.database.transaction() as transaction:
        transaction.execute("DELETE FROM units")


def run_chunks(spine: Spine, *times: tuple[str, float, float], expected_seconds: float = 120.0) -> None:
    """Record chunks that ran: by whom, from when to when in seconds ago."""
    with spine.services.database.transaction() as transaction:
        job = make_priced_job(transaction, spine.caller)
        insert_chunks(transaction, job, [ChunkPlan(1, 1, 0, 1, 1, 1, expected_seconds)] * len(times))
        for index, (unit, began, ended) in enumerate(times):
            transaction.execute(
                "UPDATE chunks SET state = 'done', part_key = 'x', part_etag = 'x', part_size_bytes = 1, ran_by = %(unit)s,"
                " claimed_at = now() - %(began)s * interval '1 s', ended_at = now() - %(ended)s * interval '1 s'"
                " WHERE job_id = %(job_id)s AND chunk_index = %(index)s",
                {"unit": unit, "began": began, "ended": ended, "job_id": job.id, "index": index},
            )


def test_a_ready_engine_makes_nobody_wait_and_another_as_long_as_its_like_did(spine: Spine) -> None:
    forget_units(spine)
    assert find_start(spine) is None
    with spine.services.database.transaction() as transaction:
        for seconds in [1000.0] * 5 + [float(number) for number in range(STARTS_KEPT)]:
            note_start(transaction, UNIT, seconds)
        note_start(transaction, replace(UNIT, model_revision="2"), 7.0)
    assert find_start(spine) == pytest.approx(10.0)  # 1 to 19: the other revision's start took a place
    with spine.services.database.transaction() as transaction:
        note_heartbeat(transaction, UNIT, EngineState.STARTING)
    assert find_start(spine) == pytest.approx(10.0)
    with spine.services.database.transaction() as transaction:
        note_heartbeat(transaction, UNIT, EngineState.READY)
    assert find_start(spine) == 0


def test_a_pace_is_work_against_the_time_in_which_a_unit_had_any(spine: Spine) -> None:
    reader = spine.services.database.reader()
    assert find_pace(reader, "world", MODEL, REVISION) is None
    run_chunks(spine, ("a", 100, 0), expected_seconds=1)  # small ones say nothing
    assert find_pace(reader, "world", MODEL, REVISION) is None
    # Unit a: 1,000 to 700 and 500 to 400 seconds ago, 400 s; unit b: 200 s. Five chunks of 120 s in 600 s.
    run_chunks(spine, ("a", 1000, 800), ("a", 900, 700), ("b", 900, 700), ("a", 500, 400), ("a", 480, 450))
    assert find_pace(reader, "world", MODEL, REVISION) == pytest.approx(1.0, rel=1e-6)
    run_chunks(spine, ("a", 2000, 1999.9), expected_seconds=10**6)
    assert find_pace(reader, "world", MODEL, REVISION) == PACE_MAX


def test_an_estimate_tells_what_was_measured(spine: Spine) -> None:
    forget_units(spine)

    def estimate() -> int:
        job = spine.submit(chat_rows(20), max_output_tokens=4000)
        spine.answer_rings()
        seconds = spine.job(job.id).est_processing_seconds
        assert seconds is not None
        return seconds

    by_catalog = estimate()
    run_chunks(spine, ("a", 240, 0), expected_seconds=120)
    with spine.services.database.transaction() as transaction:
        note_start(transaction, UNIT, 500.0)
    start = spine.services.catalog.get(MODEL).throughput.startup_seconds
    assert estimate() == pytest.approx(500 + 2 * (by_catalog - start), abs=2)
