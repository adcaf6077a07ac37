"""``/inputs``: both ways to bring a file in, every status of an input, and its two windows."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from anex.outbound import Outbound, OutboundPolicy
from anex.services import Limits
from tests.support.contract import LINES, Promise, expect, keep, promised
from tests.support.spine import MODEL
from tests.support.tenant import send_form
from tests.support.tls_server import run_tls_server

if TYPE_CHECKING:
    from werkzeug.test import TestResponse

    from tests.support.contract import Check
    from tests.support.contract_bench import Bench
    from tests.support.tenant import Tenant
    from tests.support.tls_server import Exchange

COPY, UPLOAD = "REF: POST /inputs - ingest", "REF: POST /inputs - upload"
SOURCE = {"source_url": "https://files.example.com/a.jsonl?signature=x"}
HOOK = "https://hooks.example.com/ingest"
HOUR, DAY, MINUTE = timedelta(hours=1), timedelta(days=1), timedelta(minutes=1)
FIELDS = {"id", "status", "input_s3_uri", "error", "expires_at"}


def create(tenant: Tenant, **body: Any) -> dict[str, Any]:
    return expect(tenant.call("POST", "/inputs", body or {"format": "jsonl"}), 200)


def look(tenant: Tenant, created: dict[str, Any]) -> dict[str, Any]:
    found = expect(tenant.call("GET", f"/inputs/{created['id']}"), 200)
    assert set(found) == FIELDS
    assert found["id"] == created["id"]
    assert found["input_s3_uri"] == created["input_s3_uri"]
    return found


def send(created: dict[str, Any], data: bytes = LINES) -> None:
    assert send_form(created["upload_url"], created["fields"], data).ok


def submit(tenant: Tenant, created: dict[str, Any]) -> TestResponse:
    return tenant.call("POST", "/jobs", {"model": MODEL, "max_output_tokens": 5, "input_id": created["id"]})


def seconds_left(text: str) -> float:
    at = datetime.fromisoformat(text)
    assert at.utcoffset() == timedelta(0)
    return (at - datetime.now(UTC)).total_seconds()


def refuses(status: int, code: str, **body: Any) -> Check:
    def check(bench: Bench) -> None:
        before = bench.count("inputs", bench.anyone)
        expect(bench.anyone.call("POST", "/inputs", body), status, code)
        assert bench.count("inputs", bench.anyone) == before

    return check


# An upload ---------------------------------------------------------------------------------------------------------


def hands_out_a_form(bench: Bench) -> None:
    created = create(bench.anyone)
    assert created["status"] == "awaiting_upload"
    assert created["callback_secret"] is None
    assert list(created["fields"]) != []
    assert created["input_s3_uri"].startswith("s3://")
    assert created["input_s3_uri"].endswith(f"{created['id']}.jsonl")
    assert 3500 < seconds_left(created["expires_at"]) <= 3600
    assert look(bench.anyone, created)["expires_at"] == created["expires_at"]


def becomes_ready_when_the_object_lands(bench: Bench) -> None:
    created = create(bench.anyone)
    assert look(bench.anyone, created)["status"] == "awaiting_upload"
    send(created)
    ready = look(bench.anyone, created)
    assert (ready["status"], ready["error"]) == ("ready", None)
    assert 7 * 86_400 - 100 < seconds_left(ready["expires_at"]) <= 7 * 86_400
    assert look(bench.anyone, created) == ready


def settles_at_submit(bench: Bench) -> None:
    tenant = bench.tenant()
    created = create(tenant)
    expect(submit(tenant, created), 409, "input_not_ready")
    send(created)
    assert expect(submit(tenant, created), 200)["status"] == "submitted"


def goes_by_its_uri_too(bench: Bench) -> None:
    tenant = bench.tenant()
    created = create(tenant)
    send(created)
    asked = {"model": MODEL, "max_output_tokens": 5, "input_s3_uri": created["input_s3_uri"]}
    expect(tenant.call("POST", "/jobs", asked), 200)


def lapses(bench: Bench) -> None:
    created = create(bench.anyone)
    with bench.later(HOUR + MINUTE):
        lapsed = look(bench.anyone, created)
        assert (lapsed["status"], lapsed["expires_at"]) == ("expired", None)
        expect(submit(bench.anyone, created), 409, "input_expired")


def lands_late(bench: Bench) -> None:
    tenant = bench.tenant()
    created = create(tenant)
    with bench.later(2 * HOUR - MINUTE):
        assert look(tenant, created)["status"] == "expired"
        send(created)
        assert look(tenant, created)["status"] == "ready"
        expect(submit(tenant, created), 200)


def lands_too_late(bench: Bench) -> None:
    created = create(bench.anyone)
    with bench.later(2 * HOUR + MINUTE):
        assert look(bench.anyone, created)["status"] == "expired"
        send(created)
        assert look(bench.anyone, created)["status"] == "expired"


def landed_in_time_and_is_found_later(bench: Bench) -> None:
    tenant = bench.tenant()
    created = create(tenant)
    send(created)
    with bench.later(3 * HOUR):
        assert look(tenant, created)["status"] == "ready"
        expect(submit(tenant, created), 200)


def expires_after_its_week(bench: Bench) -> None:
    created = create(bench.anyone)
    send(created)
    assert look(bench.anyone, created)["status"] == "ready"
    with bench.later(7 * DAY + MINUTE):
        gone = look(bench.anyone, created)
        assert (gone["status"], gone["expires_at"]) == ("expired", None)
        expect(submit(bench.anyone, created), 409, "input_expired")


def is_refused_by_the_storage_when_too_large(bench: Bench) -> None:
    small = replace(bench.anyone, app=bench.serve(limits=Limits(input_max_bytes=100)))
    created = create(small)
    assert send_form(created["upload_url"], created["fields"], b"x" * 101).status_code == 400
    assert look(small, created)["status"] == "awaiting_upload"


def is_measured_again_at_submit(bench: Bench) -> None:
    created = create(bench.anyone)
    send(created)
    small = replace(bench.anyone, app=bench.serve(limits=Limits(input_max_bytes=len(LINES) - 1)))
    expect(submit(small, created), 400, "invalid_input_file")


def writes_its_own_object_only(bench: Bench) -> None:
    mine, other = create(bench.anyone), create(bench.anyone)
    moved = {**mine["fields"], "key": other["fields"]["key"]}
    assert send_form(mine["upload_url"], moved, LINES).status_code == 403


UPLOADS = [
    Promise(UPLOAD, "a presigned upload target rather than a copy job", hands_out_a_form),
    Promise(
        UPLOAD, "awaiting_upload until the object lands, then ready", becomes_ready_when_the_object_lands
    ),
    Promise(UPLOAD, "submission settles readiness itself", settles_at_submit),
    Promise(UPLOAD, "a lapsed window can't be refreshed", lapses),
    Promise("Ruling 2", "lands up to an hour later still becomes `ready`", lands_late),
    Promise("Ruling 2", "only after a look that found no object", landed_in_time_and_is_found_later),
    Promise("Ruling 2", "lands up to an hour later still becomes `ready`", lands_too_late, "and no later"),
    Promise(UPLOAD, "An uploaded object is kept for 7 days", expires_after_its_week),
    Promise(
        UPLOAD, "rejected by the upload itself, at the S3 level", is_refused_by_the_storage_when_too_large
    ),
    Promise("Ruling 2", "An object found larger at submit: 400", is_measured_again_at_submit),
    Promise(UPLOAD, "send every entry of fields as a form field", writes_its_own_object_only, "unchanged"),
    Promise(COPY, "input_id is preferred for job submission", goes_by_its_uri_too),
    Promise(
        UPLOAD,
        "rejected with 400 if supplied",
        refuses(400, "invalid_request", format="jsonl", callback_url=HOOK),
    ),
    Promise("REF: Errors", "a missing format on a direct upload", refuses(400, "invalid_request")),
    Promise(
        "Ruling 1",
        "enum values and one-of rules included, is 422",
        refuses(422, "invalid_request_shape", format="csv"),
    ),
    Promise(
        "Ruling 1",
        "enum values and one-of rules included, is 422",
        refuses(422, "invalid_request_shape", format="jsonl", data_residency="mars"),
        "data_residency",
    ),
    Promise(
        "REF: Errors",
        "a missing or wrongly typed body field",
        refuses(422, "invalid_request_shape", format=5),
        "format",
    ),
    Promise(
        "REF: Errors",
        "a missing or wrongly typed body field",
        refuses(422, "invalid_request_shape", source_url=5),
        "source_url",
    ),
]


# A copy ------------------------------------------------------------------------------------------------------------


def is_accepted_as_pending(bench: Bench) -> None:
    created = create(bench.anyone, **SOURCE)
    assert created["status"] == "pending"
    assert {created[name] for name in ("upload_url", "fields", "callback_secret", "expires_at")} == {None}
    assert created["input_s3_uri"].endswith(f"{created['id']}.jsonl")
    assert ("copy", created["id"]) in bench.spine.dispatcher.rings


def tells_every_status(bench: Bench) -> None:
    """Look at a copy in each state that its worker leaves it in; the deadline is told while there is one."""
    tenant = bench.tenant()
    created = create(tenant, **SOURCE)
    for change, status, has_deadline, refusal in (
        ("status = 'pending'", "pending", False, "input_not_ready"),
        ("status = 'copying'", "copying", False, "input_not_ready"),
        ("status = 'failed', error = 'gone', source_url = NULL", "failed", False, "input_failed"),
        (
            "status = 'ready', error = NULL, size_bytes = 1, data_expires_at = anex_now() + '7 days'",
            "ready",
            True,
            None,
        ),
        ("data_expires_at = anex_now()", "expired", False, "input_expired"),
    ):
        bench.change(f"UPDATE inputs SET {change} WHERE id = %s", created["id"])  # noqa: S608 - a test's constant
        found = look(tenant, created)
        assert found["status"] == status
        assert (found["expires_at"] is not None) == has_deadline
        assert found["error"] == ("gone" if status == "failed" else None)
        if refusal is not None:
            expect(submit(tenant, created), 409, refusal)


def tells_the_secret_once(bench: Bench) -> None:
    created = create(bench.anyone, **SOURCE, callback_url=HOOK, format="jsonl")
    prefix, _, encoded = created["callback_secret"].partition("_")
    assert (prefix, len(base64.b64decode(encoded, validate=True))) == ("whsec", 32)
    assert "callback_secret" not in look(bench.anyone, created)


def contacts_nobody_without_credits(bench: Bench) -> None:
    poor = bench.tenant(cents=0)
    for body in (SOURCE, {**SOURCE, "callback_url": HOOK}, {"format": "jsonl"}):
        expect(poor.call("POST", "/inputs", body), 402, "insufficient_credits")
    assert bench.count("inputs", poor) == 0
    assert not bench.spine.dispatcher.rings


def refuses_what_is_inside(field: str, url: str) -> Check:
    return refuses(400, "invalid_request", **{**SOURCE, "callback_url": HOOK, field: url})


def takes_what_does_not_resolve(bench: Bench) -> None:
    def resolve(host: str) -> list[str]:
        raise OSError(f"no such host: {host}")

    web = Outbound(OutboundPolicy(), resolve=resolve)
    lost = replace(bench.anyone, app=bench.serve(outbound=web))
    assert create(lost, **SOURCE)["status"] == "pending"


def refuses_what_advertises_too_much(bench: Bench) -> None:
    limits = Limits(input_max_bytes=1000)
    for size, status in ((1001, 413), (1000, 200)):

        def answer(exchange: Exchange, size: int = size) -> None:
            exchange.respond(206, b"{", {"Content-Range": f"bytes 0-0/{size}"})

        with TemporaryDirectory() as folder, run_tls_server(Path(folder), answer) as server:
            app = bench.serve(outbound=Outbound(server.policy), limits=limits)
            tenant = replace(bench.tenant(), app=app)
            expect(tenant.call("POST", "/inputs", {"source_url": server.url()}), status)
        assert bench.count("inputs", tenant) == (status == 200)


COPIES = [
    Promise(COPY, "over the input cap is refused with 413", refuses_what_advertises_too_much),
    Promise(COPY, "returned on this response only, never again", tells_the_secret_once),
    Promise(COPY, "or is too slow to answer, is accepted here", is_accepted_as_pending),
    Promise(COPY, "or failed with an error", tells_every_status),
    Promise(COPY, "whose balance is zero or below is answered 402", contacts_nobody_without_credits),
    Promise("Ruling 1", "a name that doesn't resolve is accepted", takes_what_does_not_resolve),
    *(
        Promise(
            COPY,
            "Both source_url and callback_url must be https://",
            refuses_what_is_inside(field, url),
            f"{field} {url}",
        )
        for field in ("source_url", "callback_url")
        for url in (
            "http://files.example.com/a",
            "ftp://files.example.com/a",
            "files.example.com/a",
            "https://",
            "",
        )
    ),
    *(
        Promise(
            "Ruling 1",
            "a non-https or forbidden-address",
            refuses_what_is_inside(field, url),
            f"{field} {url}",
        )
        for field in ("source_url", "callback_url")
        for url in (
            "https://127.0.0.1/a",
            "https://[::1]/a",
            "https://10.0.0.1/a",
            "https://169.254.169.254/latest",
            "https://[::ffff:10.0.0.1]/a",
            "https://100.64.0.1/a",
            "https://files.example.com:22/a",
        )
    ),
]


@promised(UPLOADS, COPIES)
def test_an_input_keeps_its_promises(promise: Promise, bench: Bench) -> None:
    keep(promise, bench)
