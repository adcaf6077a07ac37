"""``POST /jobs``: the input that a job is submitted against, its first bytes, its region, the balance and the approval queue."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import TYPE_CHECKING

from anex.orgs.model import Caller
from tests.support.contract import (
    BROKEN_LINES,
    LINES,
    UNKNOWN_INPUT,
    BenchJob,
    Place,
    Promise,
    expect,
    keep,
    promised,
)
from tests.support.factories import make_job
from tests.support.row_samples import chat_line

if TYPE_CHECKING:
    from tests.support.contract import Check
    from tests.support.contract_bench import Bench
    from tests.support.tenant import Tenant

SUBMIT, ERRORS = "REF: POST /jobs", "REF: Errors"
LOOK_BYTES = 64 << 10
LONG_ROW = chat_line("long", padding="é" * LOOK_BYTES)
"""A first line that does not end within the first look, which ends in the middle of a character."""

TAKEN: dict[str, bytes] = {
    "one row without a newline": chat_line("a"),
    "CRLF": LINES.replace(b"\n", b"\r\n"),
    "a byte-order mark": b"\xef\xbb\xbf" + LINES,
    "blank lines first": b"\n \t\r\n\n" + LINES,
    "a first line over 64 KiB": LONG_ROW,
    "a first line over 64 KiB, off by a byte": b" " + LONG_ROW,
    "64 KiB of blank lines": b"\n" * (LOOK_BYTES + 1) + LINES,
    "a row that is wrong": b'{"a": 1}\n',
    "a second line that is no JSON": BROKEN_LINES,
    "a second line that is no UTF-8": LINES + b"\xff\n",
}
REFUSED: dict[str, bytes] = {
    "CSV": b"custom_id,prompt\n1,hello\n",
    "an array": b"[1]\n",
    "a string": b'"text"\n',
    "a number": b"5\n",
    "null": b"null\n",
    "two objects in a line": b'{"a": 1} {"a": 2}\n',
    "a broken object after blank lines": b"\n\n{'a': 1}\n",
    "a pretty-printed object": b'{\n"a": 1\n}\n',
    "UTF-16 with a mark": LINES.decode().encode("utf-16"),
    "UTF-16 big-endian with a mark": b"\xfe\xff" + LINES.decode().encode("utf-16-be"),
    "UTF-32 with a mark": LINES.decode().encode("utf-32"),
    "UTF-16 without a mark": LINES.decode().encode("utf-16-le"),
    "gzip": gzip.compress(LINES, mtime=0),
    "Latin-1": '{"a": "é"}\n'.encode("latin-1"),
    "a zip archive": b"PK\x03\x04" + b"\x00" * 60,
    "an array over 64 KiB": b"[" + LONG_ROW + b"]",
    "a first line over 64 KiB that is no UTF-8": b'{"a": "\xff' + b"x" * (LOOK_BYTES + 1) + b'"}\n',
}


def takes_content(lines: bytes) -> Check:
    def check(bench: Bench) -> None:
        tenant = bench.tenant()
        assert expect(bench.submit(tenant, lines=lines), 200)["status"] == "submitted"
        assert bench.count("jobs", tenant) == 1

    return check


def refuses_content(lines: bytes) -> Check:
    def check(bench: Bench) -> None:
        tenant = bench.tenant()
        expect(bench.submit(tenant, lines=lines), 400, "invalid_input_file")
        assert bench.count("jobs", tenant) == 0

    return check


def fails_in_the_job(lines: bytes) -> Check:
    def check(bench: Bench) -> None:
        job = BenchJob(bench.tenant(), "")
        job = replace(job, id=expect(bench.submit(job.tenant, lines=lines), 200)["id"])
        bench.spine.answer_rings()
        failed = job.poll()
        assert (failed["status"], failed["failure_code"], failed["cost_cents"]) == (
            "failed",
            "invalid_input",
            0,
        )

    return check


CONTENT = [
    *(
        Promise("Ruling 2", "the first 64 KiB of the object, no more", takes_content(lines), case)
        for case, lines in TAKEN.items()
    ),
    *(
        Promise("Ruling 2", "bytes are not JSONL", refuses_content(lines), case)
        for case, lines in REFUSED.items()
    ),
    Promise(SUBMIT, "invalid input fails the job asynchronously", fails_in_the_job(BROKEN_LINES)),
    Promise("Ruling 3", "An empty file (no rows) fails `invalid_input`", fails_in_the_job(b""), "no byte"),
    Promise(
        "Ruling 3", "An empty file (no rows) fails `invalid_input`", fails_in_the_job(b"\n\n"), "blank lines"
    ),
    Promise(
        "Ruling 3",
        "An empty file (no rows) fails `invalid_input`",
        fails_in_the_job(b"\n" * (LOOK_BYTES + 1)),
        "over 64 KiB of blank lines",
    ),
]


def refuses_with(status: int, code: str, change: str) -> Check:
    """Check a submit against an input that was changed since it became ready; nothing is created, by either name."""

    def check(bench: Bench) -> None:
        tenant = bench.tenant()
        input_id = tenant.upload(LINES)
        uri = expect(tenant.call("GET", f"/inputs/{input_id}"), 200)["input_s3_uri"]
        bench.change(f"UPDATE inputs SET {change} WHERE id = %s", input_id)  # noqa: S608 - a test's constant
        expect(bench.submit(tenant, input_id=input_id), status, code)
        expect(bench.submit(tenant, input_s3_uri=uri), status, code)
        assert bench.count("jobs", tenant) == 0

    return check


def misses_its_object(bench: Bench) -> None:
    tenant = bench.tenant()
    input_id = tenant.upload(LINES)
    expect(tenant.call("GET", f"/inputs/{input_id}"), 200)
    bench.spine.api.objects.delete_prefix(f"inputs/{tenant.org_id}/")
    expect(bench.submit(tenant, input_id=input_id), 409, "input_expired")


def tells_why_the_copy_failed(bench: Bench) -> None:
    tenant = bench.tenant()
    input_id = tenant.upload(LINES)
    bench.change("UPDATE inputs SET status = 'failed', error = 'the host said 404' WHERE id = %s", input_id)
    refused = expect(bench.submit(tenant, input_id=input_id), 409, "input_failed")
    assert "the host said 404" in refused["detail"]


def is_submitted_by_either_name(bench: Bench) -> None:
    tenant = bench.tenant()
    input_id = tenant.upload(LINES)
    uri = expect(tenant.call("GET", f"/inputs/{input_id}"), 200)["input_s3_uri"]
    for response in (bench.submit(tenant, input_id=input_id), bench.submit(tenant, input_s3_uri=uri)):
        body = expect(response, 200)
        assert set(body) == {"id", "status"}
        assert body["status"] == "submitted"
        assert ("validate", body["id"]) in bench.spine.dispatcher.rings


def makes_a_job_each_time(bench: Bench) -> None:
    tenant = bench.tenant()
    input_id = tenant.upload(LINES)
    ids = {expect(bench.submit(tenant, input_id=input_id), 200)["id"] for _ in range(3)}
    assert len(ids) == bench.count("jobs", tenant) == 3


def needs_a_balance(bench: Bench) -> None:
    poor = bench.tenant(cents=0)
    for input_id in (UNKNOWN_INPUT, bench.uploaded(LINES)):
        expect(bench.submit(poor, input_id=input_id), 402, "insufficient_credits")
    assert bench.count("jobs", poor) == 0


def needs_any_balance_at_all(bench: Bench) -> None:
    """Submit with a single cent, whatever the job will cost."""
    job = bench.job(Place.COST_READY, bench.tenant(cents=1))
    bench.change("UPDATE jobs SET est_cost_cents = 2 WHERE id = %s", job.id)
    expect(job.approve(), 402, "insufficient_credits")


def compiles_the_format_first(bench: Bench) -> None:
    tenant = bench.tenant()
    schema = {"$ref": "https://example.com/schema"}
    asked = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    expect(bench.submit(tenant, response_format=asked), 400, "invalid_request")
    assert bench.count("jobs", tenant) == 0


INPUTS = [
    Promise(SUBMIT, "The input_s3_uri from an ingest", is_submitted_by_either_name),
    Promise(SUBMIT, "every POST /jobs that succeeds creates a new job", makes_a_job_each_time),
    Promise(
        ERRORS,
        "submitting an input_id that is not ready yet",
        refuses_with(409, "input_not_ready", "status = 'copying', source_url = 'https://a', rung_at = now()"),
        "copying",
    ),
    Promise(
        ERRORS,
        "submitting an input_id that is not ready yet",
        refuses_with(409, "input_not_ready", "status = 'pending', source_url = 'https://a', rung_at = now()"),
        "pending",
    ),
    Promise(
        "Ruling 2",
        "`input_not_ready`, `input_expired` or `input_failed`",
        tells_why_the_copy_failed,
        "failed",
    ),
    Promise(
        "Ruling 2",
        "`input_not_ready`, `input_expired` or `input_failed`",
        refuses_with(409, "input_expired", "status = 'expired'"),
        "expired",
    ),
    Promise(
        "REF: POST /inputs - ingest",
        "a submit against it is refused",
        refuses_with(409, "input_expired", "data_expires_at = anex_now()"),
    ),
    Promise(
        "Ruling 2",
        "no new submit may use it (409 `input_expired`)",
        refuses_with(409, "input_expired", "data_deleted_at = anex_now()"),
    ),
    Promise("Ruling 2", "An input whose object is gone", misses_its_object),
    Promise(
        ERRORS,
        "a file over the size cap",
        refuses_with(400, "invalid_input_file", f"size_bytes = {(1 << 30) + 1}"),
    ),
    Promise(
        SUBMIT,
        "The input must be stored in the same region",
        refuses_with(422, "invalid_setting", "region = 'eu'"),
    ),
    Promise(
        SUBMIT, "the shape of response_format are checked before the job exists", compiles_the_format_first
    ),
    Promise(SUBMIT, "A credit balance of zero or below answers 402", needs_a_balance),
    Promise(SUBMIT, "whether you have any balance at all", needs_any_balance_at_all),
]


def fill_the_queue(bench: Bench, tenant: Tenant, status: str, count: int = 10) -> list[BenchJob]:
    with bench.spine.services.database.transaction() as transaction:
        jobs = [make_job(transaction, Caller(tenant.org_id, tenant.key_id)).id for _ in range(count)]
        if status != "submitted":
            transaction.execute(
                "UPDATE jobs SET status = %(status)s, est_cost_cents = 1, terms = '{}', total_rows = 1,"
                " approval_expires_at = anex_now() + '1 day' WHERE org_id = %(org)s",
                {"status": status, "org": tenant.org_id},
            )
    return [BenchJob(tenant, job) for job in jobs]


def is_full_of(status: str) -> Check:
    def check(bench: Bench) -> None:
        tenant = bench.tenant()
        input_id = tenant.upload(LINES)
        fill_the_queue(bench, tenant, status, 9)
        expect(bench.submit(tenant, input_id=input_id), 200)
        response = bench.submit(tenant, input_id=input_id)
        assert "approval queue" in expect(response, 429, "approval_queue_full")["detail"]
        assert response.headers["Retry-After"] == "60"
        assert bench.count("jobs", tenant) == 10

    return check


def has_room_again(bench: Bench) -> None:
    tenant = bench.tenant()
    input_id = tenant.upload(LINES)
    waiting = fill_the_queue(bench, tenant, "submitted")
    expect(bench.submit(tenant, input_id=input_id), 429, "approval_queue_full")
    expect(waiting[0].cancel(), 200)
    expect(bench.submit(tenant, input_id=input_id), 200)
    expect(bench.submit(tenant, input_id=input_id), 429, "approval_queue_full")
    expect(bench.submit(bench.anyone, input_id=UNKNOWN_INPUT), 404)


def does_not_count(place: Place) -> Check:
    """Check that a job which left the queue leaves room, beside nine that wait."""

    def check(bench: Bench) -> None:
        tenant = bench.tenant()
        bench.job(place, tenant)
        fill_the_queue(bench, tenant, "submitted", 9)
        expect(bench.submit(tenant), 200)
        expect(bench.submit(tenant), 429, "approval_queue_full")

    return check


QUEUE = [
    *(
        Promise("Ruling 2", "counts `submitted`, `estimating` and `cost_ready`", is_full_of(status), status)
        for status in ("submitted", "estimating", "cost_ready")
    ),
    *(
        Promise(SUBMIT, "until some are approved, cancelled, or expired", does_not_count(place), place)
        for place in (
            Place.RUNNING,
            Place.CANCELLING,
            Place.FINALIZING,
            Place.DONE,
            Place.FAILED,
            Place.CANCELLED,
        )
    ),
    Promise(SUBMIT, "the cap's message names the approval queue", has_room_again),
]


@promised(CONTENT)
def test_the_first_bytes_are_looked_at(promise: Promise, bench: Bench) -> None:
    keep(promise, bench)


@promised(INPUTS, QUEUE)
def test_a_submit_keeps_its_promises(promise: Promise, bench: Bench) -> None:
    keep(promise, bench)
