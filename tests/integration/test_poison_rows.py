"""Rows that kill their engine, and answers that say nothing of the row: the one ends alone, the others are asked again."""

from __future__ import annotations

import json
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from anex.errors import EngineGone
from anex.jobs.approve import approve_job
from anex.services import EngineAnswer
from tests.support.audit import audit
from tests.support.spine import chat_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from anex.jobs.model import Job
    from anex.services import Engine, EngineRequest
    from tests.support.spine import Spine

POISON = b"about row 7."


@dataclass(slots=True)
class Mortal:
    """An engine that dies, with all that it has in flight, of a request that holds one of ``poisons``."""

    engine: Engine
    poisons: tuple[bytes, ...] = ()
    fails: int = 0
    """Answer 503 to so many of the next requests."""
    deaths: int = 0
    sent: int = 0
    waiting: list[Future[EngineAnswer]] = field(default_factory=list)

    def submit(
        self, request: EngineRequest, meanwhile: Callable[[], bool] | None = None
    ) -> Future[EngineAnswer]:
        self.sent += 1
        future: Future[EngineAnswer] = Future()
        self.waiting.append(future)
        if any(poison in request.body for poison in self.poisons):
            self.deaths += 1
            for each in self.waiting:
                settle(each, EngineGone("it died"))
            self.waiting.clear()
        elif self.fails:
            self.fails -= 1
            future.set_result(EngineAnswer(503, b'{"error":{"message":"too busy"}}'))
        else:
            real = self.engine.submit(request, meanwhile)
            real.add_done_callback(lambda done: settle(future, done.result()))
        return future

    @contextmanager
    def alone(self, meanwhile: Callable[[], bool] | None = None) -> Iterator[None]:
        with self.engine.alone(meanwhile):
            yield

    def abort(self, futures: Sequence[Future[EngineAnswer]]) -> None:
        for future in futures:
            future.cancel()

    def progress(self) -> int:
        return self.engine.progress()

    def in_flight(self) -> int:
        return self.engine.in_flight()

    def is_ready(self) -> bool:
        return True


def settle(future: Future[EngineAnswer], outcome: EngineAnswer | EngineGone) -> None:
    """Give a future its outcome, unless it has one."""
    with suppress(InvalidStateError):
        if isinstance(outcome, EngineAnswer):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)


def run(spine: Spine, mortal: Mortal, rows: int) -> Job:
    job = spine.submit(chat_rows(rows), max_output_tokens=16)
    spine.answer_rings()
    approve_job(spine.api, spine.caller, job.id)
    spine.services = replace(spine.services, timings=replace(spine.services.timings, row_retry_seconds=0.001))
    spine.engine = mortal
    spine.answer_rings()
    ended = spine.job(job.id)
    assert ended.status == "done"
    audit(spine.services)
    return ended


def errors_of(spine: Spine, job: Job) -> dict[str, str]:
    lines = spine.result_lines(job.id)
    return {line["custom_id"]: line["error_type"] for line in lines if line["error"] is not None}


def test_a_row_that_kills_its_engine_each_time_ends_as_one_error_row(spine: Spine) -> None:
    mortal = Mortal(spine.engine, (POISON,))
    job = run(spine, mortal, rows=40)
    assert errors_of(spine, job) == {"row-7": "engine_error"}
    assert (job.error_rows, job.pending_rows, len(spine.result_lines(job.id))) == (1, 0, 40)
    assert 3 <= mortal.deaths <= 7
    [line] = [line for line in spine.result_lines(job.id) if line["custom_id"] == "row-7"]
    assert (line["response"], line["usage"]) == (None, {"input_tokens": 0, "output_tokens": 0})


def test_two_of_them_beside_each_other_end_as_two(spine: Spine) -> None:
    job = run(spine, Mortal(spine.engine, (POISON, b"about row 9.")), rows=20)
    assert errors_of(spine, job) == {"row-7": "engine_error", "row-9": "engine_error"}


def test_a_job_of_nothing_else_ends_too(spine: Spine) -> None:
    job = run(spine, Mortal(spine.engine, (b"about row",)), rows=2)
    assert errors_of(spine, job) == {"row-1": "engine_error", "row-2": "engine_error"}
    assert job.cost_cents == 0


def test_answers_that_say_nothing_of_the_row_are_asked_for_again(spine: Spine) -> None:
    mortal = Mortal(spine.engine, fails=9)
    job = run(spine, mortal, rows=10)
    assert errors_of(spine, job) == {}
    assert mortal.sent == 19


def test_a_row_that_fails_four_times_ends_as_its_error(spine: Spine) -> None:
    mortal = Mortal(spine.engine, fails=10**6)
    job = run(spine, mortal, rows=3)
    assert errors_of(spine, job) == dict.fromkeys(("row-1", "row-2", "row-3"), "engine_error")
    assert mortal.sent == 12
    [line, *_] = spine.result_lines(job.id)
    assert line["response"]["status_code"] == 503
    assert json.dumps(line).count("too busy") == 2


def test_a_sample_asks_again_too(spine: Spine) -> None:
    """A row that the engine failed for reasons of its own counted as one that writes nothing: the estimate was too low."""
    spine.services = replace(spine.services, timings=replace(spine.services.timings, row_retry_seconds=0.001))
    spine.engine = mortal = Mortal(spine.engine, fails=4)
    job = spine.submit(chat_rows(5))
    spine.answer_rings()
    with spine.services.database.transaction() as transaction:
        sample = transaction.fetch_dict("SELECT lengths FROM samples WHERE job_id = %(id)s", {"id": job.id})
    assert sample is not None
    assert all(row["output"] > 0 for row in sample["lengths"])
    assert mortal.sent == 9
