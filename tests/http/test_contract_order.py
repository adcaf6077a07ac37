"""The order of checks, pair by pair: a request that breaks two of them is told of the earlier one."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from itertools import combinations
from typing import TYPE_CHECKING, Any

from anex.freeze import lift_freeze, set_freeze
from anex.ids import new_id
from anex.orgs.model import Caller
from tests.support.contract import LINES, Place, Promise, expect, keep, promised
from tests.support.factories import make_job
from tests.support.spine import MODEL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from werkzeug.test import TestResponse

    from tests.support.contract import Check
    from tests.support.contract_bench import Bench
    from tests.support.tenant import Tenant


class Fault(StrEnum):
    """What a submit can get wrong, in the order of the checks."""

    NO_HEADER = "no Authorization"
    BAD_KEY = "bad key"
    TOO_FAST = "rate"
    FROZEN = "freeze"
    SHAPE = "unknown field"
    SETTING = "setting"
    FORMAT = "malformed format"
    FORBIDDEN = "no EU routing"
    ELSEWHERE = "other region's API"
    POOR = "no credits"
    FOREIGN = "foreign input"
    MISMATCH = "region mismatch"
    FAILED = "failed input"
    CONTENT = "no JSONL"
    QUEUE = "full queue"


ANSWERS = {
    Fault.NO_HEADER: (422, "invalid_request_shape"),
    Fault.BAD_KEY: (401, "invalid_api_key"),
    Fault.TOO_FAST: (429, "rate_limit_exceeded"),
    Fault.FROZEN: (503, "api_frozen"),
    Fault.SHAPE: (422, "invalid_request_shape"),
    Fault.SETTING: (422, "invalid_setting"),
    Fault.FORMAT: (400, "invalid_request"),
    Fault.FORBIDDEN: (403, "region_not_enabled"),
    Fault.ELSEWHERE: (421, "wrong_region"),
    Fault.POOR: (402, "insufficient_credits"),
    Fault.FOREIGN: (404, "input_not_found"),
    Fault.MISMATCH: (422, "invalid_setting"),
    Fault.FAILED: (409, "input_failed"),
    Fault.CONTENT: (400, "invalid_input_file"),
    Fault.QUEUE: (429, "approval_queue_full"),
}

ONE_STEP = {Fault.SHAPE, Fault.SETTING, Fault.FORMAT}
"""Checked in one step of the contract's order."""

KEYLESS = {Fault.NO_HEADER, Fault.BAD_KEY, Fault.TOO_FAST}
"""No two of these: without a good key there is none to be bad or too fast."""


def send(bench: Bench, faults: Collection[Fault]) -> TestResponse:
    """Submit a job with exactly these faults."""
    sender = make_sender(bench, faults)
    body: dict[str, Any] = {"model": MODEL, "max_output_tokens": 16}
    body["input_id"] = make_input(bench, faults, sender)
    if Fault.SHAPE in faults:
        body["colour"] = "blue"
    if Fault.SETTING in faults:
        body["video_fps"] = 2
    if Fault.FORMAT in faults:
        body["response_format"] = {"type": "xml"}
    if Fault.FORBIDDEN in faults:
        body["data_residency"] = "eu"
    with frozen(bench, faults):
        return sender.app.test_client().post(
            "/batch/v1/jobs", json=body, headers=make_headers(faults, sender)
        )


@contextmanager
def frozen(bench: Bench, faults: Collection[Fault]) -> Iterator[None]:
    database = bench.spine.services.database
    if Fault.FROZEN in faults:
        with database.transaction() as transaction:
            set_freeze(transaction, "maintenance")
    try:
        yield
    finally:
        with database.transaction() as transaction:
            lift_freeze(transaction)


def make_sender(bench: Bench, faults: Collection[Fault]) -> Tenant:
    sender = bench.tenant(
        cents=0 if Fault.POOR in faults else 1000,
        # Asking for "eu" without EU routing is wrong for both reasons at once.
        eu_routing=Fault.ELSEWHERE in faults and Fault.FORBIDDEN not in faults,
        on=bench.one_an_hour if Fault.TOO_FAST in faults else None,
    )
    if Fault.TOO_FAST in faults:
        expect(sender.call("GET", "/jobs/x"), 404)
    if Fault.QUEUE in faults:
        with bench.spine.services.database.transaction() as transaction:
            for _ in range(10):
                make_job(transaction, Caller(sender.org_id, sender.key_id))
    return sender


COPY_INPUT = """
INSERT INTO inputs (id, org_id, region, format, status, object_uri, object_key, size_bytes, data_expires_at, error, created_at)
SELECT %s, %s, %s, format, %s, %s, object_key, size_bytes, data_expires_at, %s, created_at FROM inputs WHERE id = %s
"""


def make_input(bench: Bench, faults: Collection[Fault], sender: Tenant) -> str:
    """Make an input over an uploaded file: the sender's, in the job's region and ready, as far as it should be."""
    file = bench.uploaded(b"no json\n" if Fault.CONTENT in faults else LINES)
    job_is_european = bool({Fault.ELSEWHERE, Fault.FORBIDDEN} & set(faults))
    region = "eu" if job_is_european is (Fault.MISMATCH not in faults) else "world"
    owner = bench.anyone if Fault.FOREIGN in faults else sender
    status, error = ("failed", "gone") if Fault.FAILED in faults else ("ready", None)
    input_id = new_id("inp", datetime.now(UTC))
    bench.change(COPY_INPUT, input_id, owner.org_id, region, status, f"s3://x/{input_id}", error, file)
    return input_id


def make_headers(faults: Collection[Fault], sender: Tenant) -> dict[str, str]:
    if Fault.NO_HEADER in faults:
        return {}
    return {"Authorization": f"Bearer {'sk-unknown' if Fault.BAD_KEY in faults else sender.key}"}


def refuses(*faults: Fault) -> Check:
    """Check that the first of the faults is told, and that nothing is created."""

    def check(bench: Bench) -> None:
        jobs = bench.change("SELECT 1 FROM jobs")
        response = send(bench, faults)
        expect(response, *ANSWERS[faults[0]])
        made = 10 if Fault.QUEUE in faults else 0
        assert bench.change("SELECT 1 FROM jobs") == jobs + made

    return check


def submit_without_fault(bench: Bench) -> None:
    assert expect(send(bench, ()), 200)["status"] == "submitted"


def can_meet(first: Fault, second: Fault) -> bool:
    return not any({first, second} <= group for group in (ONE_STEP, KEYLESS))


RULED = ("Ruling 1", "Order of checks")

ALONE = [
    Promise(*RULED, submit_without_fault, "no fault"),
    *(Promise(*RULED, refuses(fault), f"{fault} alone") for fault in Fault),
]
PAIRS = [
    Promise(*RULED, refuses(first, second), f"{first} before {second}")
    for first, second in combinations(Fault, 2)
    if can_meet(first, second)
]
CHAINS = [
    Promise(*RULED, refuses(*list(Fault)[start:]), f"everything from {list(Fault)[start]} on")
    for start in range(2, len(Fault))
]


@promised(ALONE, PAIRS, CHAINS)
def test_a_submit_is_told_of_its_first_fault(promise: Promise, bench: Bench) -> None:
    keep(promise, bench)


def creates_no_input(sender: dict[str, Any], body: dict[str, Any], status: int, code: str) -> Check:
    def check(bench: Bench) -> None:
        tenant = bench.tenant(**sender)
        expect(tenant.call("POST", "/inputs", body), status, code)
        assert bench.count("inputs", tenant) == 0

    return check


POOR_AND_ELSEWHERE: dict[str, Any] = {"cents": 0, "eu_routing": True}
POOR: dict[str, Any] = {"cents": 0}
COPY = {"source_url": "https://files.example.com/a.jsonl"}

INPUTS = [
    Promise(*RULED, creates_no_input(sender, body, status, code), case)
    for case, sender, body, status, code in (
        (
            "unknown field before 403",
            POOR,
            {"data_residency": "eu", "format": "jsonl", "x": 1},
            422,
            "invalid_request_shape",
        ),
        ("format before 403", POOR, {"data_residency": "eu", "format": "csv"}, 422, "invalid_request_shape"),
        ("no format before 403", POOR, {"data_residency": "eu"}, 400, "invalid_request"),
        ("no format before 421", POOR_AND_ELSEWHERE, {}, 400, "invalid_request"),
        ("no format before 402", POOR, {}, 400, "invalid_request"),
        (
            "http before 403",
            POOR,
            {"data_residency": "eu", "source_url": "http://a.example.com"},
            400,
            "invalid_request",
        ),
        ("http before 402", POOR, {"source_url": "http://a.example.com"}, 400, "invalid_request"),
        (
            "403 before 421 and 402",
            POOR,
            {"data_residency": "eu", "format": "jsonl"},
            403,
            "region_not_enabled",
        ),
        ("421 before 402", POOR_AND_ELSEWHERE, {"format": "jsonl"}, 421, "wrong_region"),
        ("421 before 402, copy", POOR_AND_ELSEWHERE, COPY, 421, "wrong_region"),
        ("402 before the source", POOR, COPY, 402, "insufficient_credits"),
    )
]


def read_a_foreign_input_elsewhere(bench: Bench) -> None:
    input_id = bench.anyone.upload(LINES)
    bench.change("UPDATE inputs SET region = 'eu' WHERE id = %s", input_id)
    expect(bench.tenant().call("GET", f"/inputs/{input_id}"), 404, "input_not_found")
    expect(bench.anyone.call("GET", f"/inputs/{input_id}"), 421, "wrong_region")


def download_elsewhere_what_is_gone(bench: Bench) -> None:
    job = bench.job(Place.CANCELLED)
    expect(job.delete(), 200)
    bench.change("UPDATE jobs SET region = 'eu' WHERE id = %s", job.id)
    expect(job.result(), 421, "wrong_region")
    expect(bench.tenant().call("GET", f"/jobs/{job.id}/result"), 404, "job_not_found")


def download_what_never_was_and_is_deleted(bench: Bench) -> None:
    job = bench.job(Place.CANCELLED)
    expect(job.result(), 409, "result_unavailable")
    expect(job.delete(), 200)
    expect(job.result(), 410, "data_deleted")


OTHERS = [
    Promise(*RULED, read_a_foreign_input_elsewhere, "GET input: 404 before 421"),
    Promise(*RULED, download_elsewhere_what_is_gone, "GET result: 404, then 421, then 410"),
    Promise("Ruling 7", "whether or not there ever was one", download_what_never_was_and_is_deleted),
]


@promised(INPUTS, OTHERS)
def test_the_other_endpoints_keep_the_order(promise: Promise, bench: Bench) -> None:
    keep(promise, bench)
