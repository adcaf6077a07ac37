"""A decision job from its file to its result, on the fake engine: an answer a question, each row billed what it reads."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anex.decisions.tokens import DecisionTokenCounter, byte_reader
from anex.jobs.approve import approve_job
from anex.rows.decide import DecideRow
from tests.support.audit import audit
from tests.support.engines import open_client, run_fake_engine
from tests.support.factories import make_unit
from tests.support.spine import body_rows
from tests.support.spine_fixtures import serve_model
from tests.support.wait import wait_until

if TYPE_CHECKING:
    import pytest

    from anex.jobs.model import Job
    from tests.support.spine import Spine

MODEL = "fake-decide"
TEAM = {
    "type": "choice",
    "instructions": "Which team should handle this?",
    "criteria": {"billing": "invoices, refunds", "other": ""},
}
URGENT = {"type": "noul", "instructions": "Is it urgent?"}
MOOD = {"type": "score", "instructions": "How angry?", "criteria": ["calm", "annoyed", "angry"]}
ASKED = {"team": TEAM, "urgent": URGENT, "mood": MOOD}
OVER_BUDGET = {"type": "choice", "instructions": "Which?", "criteria": [f"option {n}" for n in range(150)]}


def decide_rows(*bodies: dict[str, Any]) -> list[bytes]:
    return body_rows("/v1/systemone", *bodies)


def price(spine: Spine, *bodies: dict[str, Any]) -> Job:
    job = spine.submit(decide_rows(*bodies), model=MODEL)
    spine.answer_rings()
    priced = spine.job(job.id)
    assert (priced.status, priced.failure_reason) == ("cost_ready", None)
    return priced


def run(spine: Spine, *bodies: dict[str, Any]) -> tuple[Job, list[dict[str, Any]]]:
    job = price(spine, *bodies)
    approve_job(spine.api, spine.caller, job.id)
    spine.answer_rings()
    audit(spine.services)
    return spine.job(job.id), spine.result_lines(job.id)


def count(body: dict[str, Any]) -> int:
    """Return what a row reads by the byte rule; ``tests/unit`` says what that is."""
    readers = {"english": byte_reader(512, 192), "multilingual": byte_reader(1024, 192)}
    row = DecideRow(
        row_number=1,
        custom_id="",
        state=body["state"],
        questions=body["questions"],
        lang=body.get("lang"),
    )
    return DecisionTokenCounter(readers).count_decisions([row])[0]


def test_each_row_gets_an_answer_a_question_and_bills_what_the_model_reads(decide_spine: Spine) -> None:
    states = [
        "We were billed twice for March, and we would like the money back today.",
        {"body": "Wir haben die Rechnung für März zweimal bezahlt.", "priority": 2},
        "This is a text that is long enough to be cut by the model. " * 40,
        "请今天退款",
    ]
    bodies: list[dict[str, Any]] = [{"state": states[n % 4], "questions": ASKED} for n in range(70)]
    bodies[4]["lang"] = "fr"
    job, lines = run(decide_spine, *bodies)
    assert (job.status, job.task_type, job.success_rows, job.error_rows) == ("done", "decide", 70, 0)
    assert (job.max_output_tokens, job.reasoning_budget, job.est_output_tok) == (0, None, 0)
    assert [line["custom_id"] for line in lines] == [f"row-{number}" for number in range(1, 71)]
    for line, body in zip(lines, bodies, strict=True):
        answer, tokens = line["response"]["body"], count(body)
        assert list(answer) == ["model", "answers", "usage", "routing"]
        assert (answer["model"], list(answer["answers"]), line["error"]) == (MODEL, list(ASKED), None)
        assert list(answer["routing"]) == ["model", "reason"]
        assert line["usage"] == answer["usage"] == {"input_tokens": tokens, "output_tokens": 0}
        assert answer["answers"]["team"]["choice"] in {"billing", "other"}
        assert set(answer["answers"]["mood"]["probabilities"]) == {"0", "1", "2"}
    routed = [line["response"]["body"]["routing"]["model"] for line in lines[:5]]
    assert routed == ["english", "multilingual", "english", "multilingual", "multilingual"]
    total = sum(map(count, bodies))
    assert (job.est_input_tok, job.input_tokens, job.output_tokens) == (total, total, 0)


def test_a_question_that_the_model_refuses_fails_its_row_alone(decide_spine: Spine) -> None:
    bad = [
        {"team": TEAM, "late": {"type": "noul", "instructions": "Late?", "criteria": {"maybe": "perhaps"}}},
        {"late": {"type": "noul"}},
        {"which": OVER_BUDGET},
    ]
    texts = ["The text of a row that is in English.", "Un texte pour les lecteurs, qui est dans la langue."]
    bodies = [
        {"state": texts[0], "questions": each} for each in ({"urgent": URGENT}, *bad, {"urgent": URGENT})
    ]
    # The wider checkpoint has room for these options.
    bodies.append({"state": texts[1], "questions": bad[2]})
    job, lines = run(decide_spine, *bodies)
    assert (job.status, job.success_rows, job.error_rows, job.pending_rows) == ("done", 3, 3, 0)
    assert [line["error"] is None for line in lines] == [True, False, False, False, True, True]
    for line, name in zip(lines[1:4], ("'late'", "'late'", "fit"), strict=True):
        assert name in line["error"]
        assert line["error_type"] == "invalid_request_error"
        assert line["response"]["status_code"] == 422
        assert line["response"]["body"]["error"]["message"] == line["error"]
        assert line["usage"] == {"input_tokens": 0, "output_tokens": 0}
    assert job.input_tokens == sum(count(bodies[place]) for place in (0, 4, 5)) == job.est_input_tok


def test_rows_that_are_asked_the_same_share_a_request(
    decide_spine: Spine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = decide_spine.engine
    submit, asked = engine.submit, []

    def note(request: Any, meanwhile: Any = None) -> Any:
        asked.append([row["state"] for row in json.loads(request.body)["rows"]])
        return submit(request, meanwhile)

    monkeypatch.setattr(engine, "submit", note)
    sets = [{"urgent": URGENT}, {"team": TEAM}, {"team": {**TEAM, "criteria": {"other": "", "billing": ""}}}]
    bodies = [{"state": f"Text {n}", "questions": sets[n % 3]} for n in range(100)]
    job, lines = run(decide_spine, *bodies)
    assert job.success_rows == len(lines) == 100
    assert sorted(map(len, asked)) == [1, 1, 2, 32, 32, 32]
    assert all(len({int(text.split()[1]) % 3 for text in texts}) == 1 for texts in asked)


def test_an_answer_that_can_not_be_read_is_asked_again_row_by_row(
    decide_spine: Spine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = decide_spine.engine
    submit = engine.submit

    def spoil(request: Any, meanwhile: Any = None) -> Any:
        if b"poison" in request.body:
            request = type(request)(request.path, b"[]", request.rows)
        return submit(request, meanwhile)

    monkeypatch.setattr(engine, "submit", spoil)
    job, lines = run(
        decide_spine, *({"state": text, "questions": {"urgent": URGENT}} for text in ("a", "poison", "c"))
    )
    assert (job.success_rows, job.error_rows) == (2, 1)
    assert [line["error"] is None for line in lines] == [True, False, True]


def test_an_engines_death_in_the_middle_costs_no_row_and_bills_none_twice(spine: Spine) -> None:
    bodies: list[dict[str, Any]] = [
        {"state": f"Text {n}", "questions": {"urgent": URGENT}} for n in range(200)
    ]
    job = price(spine, *bodies)
    approve_job(spine.api, spine.caller, job.id)
    spine.dispatcher.rings.clear()
    unit = make_unit(spine.services, spine.services.catalog.get(MODEL))
    with (
        run_fake_engine(MODEL, "--switches", '{"crash_at_request": 4}') as engine,
        open_client(engine.socket_path, rows_in_flight_max=64) as client,
    ):
        assert not replace(spine, engine=client, unit=unit).run_chunk()
        wait_until(lambda: engine.process.poll() is not None, what="the engine has died")
    assert spine.job(job.id).status == "in_progress"
    with serve_model(spine, MODEL) as served:
        assert served.run_chunk()
        served.answer_rings()
    audit(spine.services)
    done = spine.job(job.id)
    assert (done.status, done.success_rows) == ("done", 200)
    assert done.input_tokens == sum(map(count, bodies))
    assert [line["custom_id"] for line in spine.result_lines(job.id)] == [f"row-{n}" for n in range(1, 201)]
