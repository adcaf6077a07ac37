"""``GET /jobs/{id}``: every field in every state, and when each is null."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.support.contract import ROWS, Place, Promise, expect, keep, promised

if TYPE_CHECKING:
    from tests.support.contract import Check
    from tests.support.contract_bench import Bench

POLL, SUBMIT, LIFE = "REF: GET /jobs/{id}", "REF: POST /jobs", "DOC: Job lifecycle"

ESTIMATE = ("est_input_tok", "est_output_tok", "est_cost_cents", "est_processing_seconds")
COUNTS = ("success_rows", "error_rows", "format_error_rows", "truncated_rows", "pending_rows")
FIELDS = {
    *("id", "status", *ESTIMATE, "max_output_tokens", "max_tokens", "reasoning_budget", *COUNTS),
    *("created_at", "approved_at", "finished_at", "data_expires_at", "data_deleted_at", "partial"),
    *("failure_code", "failure_reason", "cost_cents", "model", "reasoning", "reasoning_effort", "task_type"),
    *("format", "response_format", "dimensions", "video_fps", "data_residency"),
}

UNPRICED = {Place.SUBMITTED, Place.ESTIMATING, Place.FAILED, Place.CANCELLED}
"""The last two ended before their estimate here."""
UNAPPROVED = {*UNPRICED, Place.COST_READY}
ENDED = {Place.DONE, Place.FAILED, Place.PARTLY_FAILED, Place.CANCELLED, Place.PARTLY_CANCELLED}
FAILED = {Place.FAILED, Place.PARTLY_FAILED}
DELIVERED = {Place.DONE: ROWS, Place.PARTLY_FAILED: 1, Place.PARTLY_CANCELLED: 1}
"""Rows in the result."""

SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "a", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
}


def set_exactly_in(job: dict[str, Any], place: Place, fields: tuple[str, ...], places: set[Place]) -> None:
    for name in fields:
        assert (job[name] is not None) == (place in places), (name, job[name])


def has_every_field(_: Place, job: dict[str, Any]) -> None:
    assert set(job) == FIELDS


def has_an_estimate_from_cost_ready_on(place: Place, job: dict[str, Any]) -> None:
    set_exactly_in(job, place, ESTIMATE, set(Place) - UNPRICED)
    if place not in UNPRICED:
        assert all(type(job[name]) is int for name in ESTIMATE)
        assert job["est_cost_cents"] >= 1
        assert job["est_output_tok"] == ROWS * 16


def has_its_times(place: Place, job: dict[str, Any]) -> None:
    assert job["created_at"] is not None
    assert job["data_deleted_at"] is None
    set_exactly_in(job, place, ("approved_at",), set(Place) - UNAPPROVED)
    set_exactly_in(job, place, ("finished_at", "data_expires_at"), ENDED)


def is_kept_for_thirty_days(_: Place, job: dict[str, Any]) -> None:
    kept = datetime.fromisoformat(job["data_expires_at"]) - datetime.fromisoformat(job["finished_at"])
    assert kept == timedelta(days=30)


def tells_counts_at_the_end_only(place: Place, job: dict[str, Any]) -> None:
    delivered = DELIVERED.get(place)
    if delivered is None:
        assert {job[name] for name in COUNTS} == {None}
        return
    *four, pending = (job[name] for name in COUNTS)
    assert (sum(four), pending) == (delivered, ROWS - delivered)


def tells_partial(place: Place, job: dict[str, Any]) -> None:
    expected = None if place not in ENDED else place in {Place.PARTLY_FAILED, Place.PARTLY_CANCELLED}
    assert job["partial"] is expected


def tells_the_charge(place: Place, job: dict[str, Any]) -> None:
    set_exactly_in(job, place, ("cost_cents",), ENDED)
    if place in DELIVERED:
        assert 1 <= job["cost_cents"] <= job["est_cost_cents"]
    elif place in ENDED:
        assert job["cost_cents"] == 0


def tells_why_it_failed(place: Place, job: dict[str, Any]) -> None:
    set_exactly_in(job, place, ("failure_code", "failure_reason"), FAILED)
    codes = {Place.FAILED: "invalid_input", Place.PARTLY_FAILED: "internal_error"}
    assert job["failure_code"] == codes.get(place)


def names_the_line(_: Place, job: dict[str, Any]) -> None:
    assert job["failure_reason"].startswith("Line 2: ")


def has_one_cap_under_two_names(place: Place, job: dict[str, Any]) -> None:
    assert job["max_tokens"] == job["max_output_tokens"]
    assert job["max_output_tokens"] == (None if place is Place.ESTIMATING else 16)


def tells_what_it_is(_: Place, job: dict[str, Any]) -> None:
    assert (job["model"], job["task_type"], job["format"]) == ("fake-chat", "chat", "jsonl")
    assert job["data_residency"] == "world"
    unset = (
        "reasoning",
        "reasoning_effort",
        "reasoning_budget",
        "response_format",
        "dimensions",
        "video_fps",
    )
    assert {job[name] for name in unset} == {None}


def shows(place: Place, look: Any) -> Check:
    def check(bench: Bench) -> None:
        look(place, bench.shared(place).poll())

    return check


STATES = [
    *(
        Promise(source, sentence, shows(place, look), place)
        for source, sentence, look, places in (
            ("Ruling 1", "A field with no value is `null`, never left out", has_every_field, set(Place)),
            (
                POLL,
                "filled in when the job reaches cost_ready",
                has_an_estimate_from_cost_ready_on,
                set(Place),
            ),
            ("Ruling 1", "(null until terminal, then the charge, 0 when free)", tells_the_charge, set(Place)),
            (POLL, "Set once the job reaches a terminal state", has_its_times, set(Place)),
            (
                POLL,
                "Every row count is null until the job has finished",
                tells_counts_at_the_end_only,
                set(Place),
            ),
            ("Ruling 7", "`partial`: null before terminal", tells_partial, set(Place)),
            (POLL, "failure_code is a stable value", tells_why_it_failed, set(Place)),
            ("Ruling 1", "(always equal to `max_output_tokens`)", has_one_cap_under_two_names, set(Place)),
        )
        for place in Place
        if place in places
    ),
    *(
        Promise(POLL, "it is kept for 30 days after the job finishes", shows(p, is_kept_for_thirty_days), p)
        for p in Place
        if p in ENDED
    ),
    Promise(POLL, "failure_reason is a readable message", shows(Place.FAILED, names_the_line)),
    Promise(
        POLL,
        "the values and the order they come in",
        shows(Place.SUBMITTED, tells_what_it_is),
        "unset fields",
    ),
]


def echoes(model: str, shown: dict[str, Any], **asked: Any) -> Check:
    """Check how settings come back on the poll of a fresh job."""

    def check(bench: Bench) -> None:
        job = bench.job(Place.SUBMITTED, model=model, **asked).poll()
        assert {name: job[name] for name in shown} == shown

    return check


def ends_before_anything_ran(bench: Bench) -> None:
    for place in (Place.COST_READY, Place.WAITING):
        job = bench.job(place)
        expect(job.cancel(), 200)
        ended = job.poll()
        assert [ended[name] for name in COUNTS] == [0, 0, 0, 0, ROWS]
        assert (ended["partial"], ended["cost_cents"]) == (False, 0)


def estimates_the_cap(bench: Bench) -> None:
    job = bench.job(Place.ESTIMATING)
    before = job.poll()
    assert (before["max_output_tokens"], before["max_tokens"], before["reasoning_budget"]) == (
        None,
        None,
        None,
    )
    bench.spine.answer_rings()
    after = job.poll()
    assert after["status"] == "cost_ready"
    assert after["max_output_tokens"] == after["max_tokens"] >= 1
    assert after["est_output_tok"] <= ROWS * after["max_output_tokens"]
    assert after["reasoning_budget"] is None


def charges_within_the_estimate(bench: Bench) -> None:
    tenant = bench.tenant(cents=1000)
    job = bench.job(Place.DONE, tenant).poll()
    assert 1 <= job["cost_cents"] <= job["est_cost_cents"]
    left = bench.change(
        "SELECT 1 FROM accounts WHERE org_id = %s AND available_nanos = %s AND held_nanos = 0",
        tenant.org_id,
        (1000 - job["cost_cents"]) * 10_000_000,
    )
    assert left == 1


def is_told_in_the_eea(bench: Bench) -> None:
    tenant = bench.tenant(eu_routing=True, on=bench.eu_app)
    assert bench.job(Place.SUBMITTED, tenant).poll()["data_residency"] == "eu"
    other = bench.tenant(eu_routing=True)
    input_id = expect(other.call("POST", "/inputs", {"format": "jsonl", "data_residency": "world"}), 200)[
        "id"
    ]
    bench.change(
        "UPDATE inputs SET status = 'ready', size_bytes = 1, data_expires_at = now() + '1 day', object_key ="
        " (SELECT object_key FROM inputs WHERE id = %s) WHERE id = %s",
        bench.uploaded(b'{"a": 1}\n'),
        input_id,
    )
    job = bench.job(Place.SUBMITTED, other, input_id=input_id, data_residency="world")
    assert job.poll()["data_residency"] == "world"


SETTINGS = [
    Promise(
        SUBMIT,
        "Still accepted (and echoed back)",
        echoes("fake-chat", {"max_tokens": 9, "max_output_tokens": 9}, max_tokens=9, max_output_tokens=None),
    ),
    *(
        Promise(
            POLL,
            "null means you set no job-level default",
            echoes("fake-reasoner", {"reasoning": value}, reasoning=value),
            f"{value}",
        )
        for value in (None, True, False)
    ),
    Promise(
        POLL,
        "The job-level thinking effort level",
        echoes("fake-reasoner", {"reasoning_effort": "low"}, reasoning_effort="low"),
    ),
    Promise(
        POLL,
        "Always null on a non-reasoning model",
        echoes("fake-chat", {"reasoning_budget": None}, reasoning_budget=0),
    ),
    Promise(
        "Ruling 6",
        "0 when 0 was sent to a reasoning model",
        echoes("fake-reasoner", {"reasoning_budget": 0}, reasoning_budget=0),
    ),
    Promise(
        POLL,
        "The effective thinking budget: yours",
        echoes("fake-reasoner", {"reasoning_budget": 64}, reasoning_budget=64, max_output_tokens=128),
    ),
    Promise(
        POLL,
        "The effective thinking budget: yours, or the estimated one",
        echoes("fake-reasoner", {"reasoning_budget": None}),
        "not yet",
    ),
    Promise(
        POLL,
        "The video sampling rate you set at submit",
        echoes("qwen3.8-27b", {"video_fps": 2.5}, video_fps=2.5),
    ),
    *(
        Promise(
            POLL,
            "The job-wide structured-output schema",
            echoes("fake-chat", {"response_format": value}, response_format=value),
            str(value["type"]),
        )
        for value in ({"type": "json_object"}, {"type": "text"}, SCHEMA)
    ),
    Promise(
        "Ruling 7",
        "the four counts are 0 and `pending_rows` is the validated row count",
        ends_before_anything_ran,
    ),
    Promise(POLL, "yours, or the estimated one (null until estimated)", estimates_the_cap),
    Promise(POLL, "the most the job can consume", charges_within_the_estimate),
    Promise(POLL, "Where the job's payload is stored and processed", is_told_in_the_eea),
]


@promised(STATES)
def test_a_poll_in_a_state(promise: Promise, bench: Bench) -> None:
    keep(promise, bench)


@promised(SETTINGS)
def test_what_a_poll_tells_of_the_settings(promise: Promise, bench: Bench) -> None:
    keep(promise, bench)
