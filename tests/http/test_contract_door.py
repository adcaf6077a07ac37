"""Base URL, authentication, ids and the shape of every answer: what holds whatever is asked."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import yaml

from anex.db import Database
from anex.freeze import lift_freeze, set_freeze
from anex.orgs.keys import create_key, revoke_key
from tests.support.contract import LINES, UNKNOWN_INPUT, UNKNOWN_JOB, Place, Promise, expect, keep, promised
from tests.support.spine import MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.contract import Check
    from tests.support.contract_bench import Bench
    from tests.support.tenant import Tenant

READS = [("GET", "/inputs/{input}"), ("GET", "/jobs/{job}"), ("GET", "/jobs/{job}/result")]
CHANGES = [
    ("POST", "/inputs"),
    ("POST", "/jobs"),
    ("POST", "/jobs/{job}/approve"),
    ("POST", "/jobs/{job}/cancel"),
    ("DELETE", "/jobs/{job}/data"),
]
ENDPOINTS = [*READS, *CHANGES]
NAMED = [(method, path) for method, path in ENDPOINTS if "{" in path]
"""Those that name an input or a job in their address."""

OPTIONAL = (
    *("input_s3_uri", "max_output_tokens", "max_tokens", "reasoning", "reasoning_budget", "reasoning_effort"),
    *("video_fps", "response_format", "dimensions", "data_residency"),
)

BASE, ERRORS = "REF: Base URL and authentication", "REF: Errors"


def address(path: str, job: str = UNKNOWN_JOB, input_id: str = UNKNOWN_INPUT) -> str:
    return path.format(job=job, input=input_id)


def needs_a_header(method: str, path: str) -> Check:
    def check(bench: Bench) -> None:
        for header in ({}, {"Authorization": " "}):
            response = bench.app.test_client().open(
                f"/batch/v1{address(path)}", method=method, headers=header
            )
            assert list(expect(response, 422, "invalid_request_shape")["errors"]) == ["Authorization"]

    return check


def refuses_another_key(method: str, path: str) -> Check:
    def check(bench: Bench) -> None:
        for presented in (
            "Basic dTpw",
            "Bearer sk-unknown",
            f"Basic {bench.anyone.key}",
            bench.anyone.key,
            "Bearer",
        ):
            response = bench.app.test_client().open(
                f"/batch/v1{address(path)}", method=method, headers={"Authorization": presented}
            )
            expect(response, 401, "invalid_api_key")
            assert response.headers["WWW-Authenticate"] == "Bearer"

    return check


def refuses_a_revoked_key(method: str, path: str) -> Check:
    def check(bench: Bench) -> None:
        tenant, body = bench.tenant(), {"colour": "blue"}
        assert tenant.call(method, address(path), body).status_code != 401
        with bench.spine.services.database.transaction() as transaction:
            revoke_key(transaction, tenant.key_id)
        expect(tenant.call(method, address(path), body), 401, "invalid_api_key")

    return check


def hides_what_is_foreign(method: str, path: str, unknown: str) -> Check:
    """Check that another organization's id is answered like ``unknown``, to the byte and the header."""

    def check(bench: Bench) -> None:
        owner, stranger = bench.tenant(), bench.anyone
        job = bench.job(Place.COST_READY, owner)
        with bench.spine.services.database.transaction() as transaction:
            found = transaction.fetch_dict("SELECT input_id FROM jobs WHERE id = %(id)s", {"id": job.id})
        assert found is not None
        foreign = stranger.call(method, address(path, job.id, found["input_id"]), X_Request_Id="same")
        missing = stranger.call(method, address(path, unknown, unknown), X_Request_Id="same")
        expect(foreign, 404)
        assert foreign.get_data() == missing.get_data()
        assert dict(foreign.headers) == dict(missing.headers)
        assert job.poll()["status"] == "cost_ready"

    return check


def hides_a_foreign_input_at_submit(bench: Bench) -> None:
    owner = bench.tenant()
    input_id = owner.upload(LINES)
    uri = expect(owner.call("GET", f"/inputs/{input_id}"), 200)["input_s3_uri"]
    for name, foreign, unknown in (
        ("input_id", input_id, (UNKNOWN_INPUT, "x", "")),
        ("input_s3_uri", uri, ("s3://elsewhere/x", "x", "")),
    ):
        bodies = {
            bench.anyone.call("POST", "/jobs", {"model": MODEL, name: each}, X_Request_Id="same").get_data()
            for each in (foreign, *unknown)
        }
        assert len(bodies) == 1
    expect(bench.submit(bench.anyone, input_id=input_id), 404, "input_not_found")


def lets_every_key_manage(bench: Bench) -> None:
    job = bench.job(Place.COST_READY)
    with bench.spine.services.database.transaction() as transaction:
        key, secret = create_key(transaction, job.tenant.org_id, "second", datetime.now(UTC))
    other = replace(job, tenant=replace(job.tenant, key_id=key.id, key=secret))
    assert other.poll() == job.poll()
    bench.start(other)
    expect(other.cancel(), 200)


def makes_keys_of_one_shape(bench: Bench) -> None:
    assert re.fullmatch(r"sk-[A-Za-z0-9_-]{43}", bench.anyone.key)
    kept = bench.change(
        "SELECT 1 FROM api_keys WHERE hint = %s AND id = %s", bench.anyone.key[:8], bench.anyone.key_id
    )
    assert kept == 1


def makes_ids_of_one_shape(bench: Bench) -> None:
    suffix = "[0-9A-HJKMNP-TV-Z]{26}"
    assert re.fullmatch(f"job_{suffix}", bench.job(Place.SUBMITTED).id)
    assert re.fullmatch(f"inp_{suffix}", bench.anyone.upload(LINES))


def tells_times_in_utc(bench: Bench) -> None:
    job = bench.job(Place.DONE)
    expect(job.delete(), 200)
    polled = job.poll()
    times = {name: polled[name] for name in polled if name.endswith("_at")}
    assert {"created_at", "approved_at", "finished_at", "data_expires_at", "data_deleted_at"} == set(times)
    for text in times.values():
        assert datetime.fromisoformat(text).utcoffset() == timedelta(0)


def echoes_a_sane_request_id(bench: Bench) -> None:
    for path in ("/jobs/x", "/inputs/x", "/nothing"):
        assert bench.anyone.call("GET", path, X_Request_Id="a-1").headers["X-Request-Id"] == "a-1"
        made = {
            bench.anyone.call("GET", path, X_Request_Id=asked).headers["X-Request-Id"]
            for asked in ("é", "x" * 500)
        }
        assert len(made) == 2
        assert all(identifier.startswith("req_") for identifier in made)


def takes_null_for_absent(bench: Bench) -> None:
    bare = {"input_id": UNKNOWN_INPUT, "model": MODEL}
    nulls = dict.fromkeys(OPTIONAL)
    assert bench.anyone.call("POST", "/jobs", {**bare, **nulls}).get_json() == expect(
        bench.anyone.call("POST", "/jobs", bare), 404
    )
    for body in (
        {"format": None},
        {"format": None, "source_url": None, "callback_url": None, "data_residency": None},
    ):
        expect(bench.anyone.call("POST", "/inputs", body), 400, "invalid_request")
    expect(bench.anyone.call("POST", "/inputs", {"format": "jsonl", "callback_url": None}), 200)


def names_an_unknown_field(path: str, body: dict[str, Any]) -> Check:
    def check(bench: Bench) -> None:
        refused = expect(
            bench.anyone.call("POST", path, {**body, "colour": "blue"}), 422, "invalid_request_shape"
        )
        assert list(refused["errors"]) == ["colour"]
        assert "colour" in refused["detail"]

    return check


def maps_fields_to_messages(bench: Bench) -> None:
    refused = expect(bench.anyone.call("POST", "/jobs", {"max_tokens": "5"}), 422, "invalid_request_shape")
    assert set(refused["errors"]) == {"model", "max_tokens"} | ({"input_id"} & set(refused["errors"]))
    assert all(isinstance(text, str) for told in refused["errors"].values() for text in told)


def bounds_the_body(bench: Bench) -> None:
    for path in ("/jobs", "/inputs"):
        expect(bench.anyone.call("POST", path, {"model": "x" * (1 << 20)}), 413, "request_too_large")


def lists_nothing(bench: Bench) -> None:
    assert bench.anyone.call("GET", "/jobs").status_code == 405
    assert bench.anyone.call("GET", "/models").status_code == 404


def documents_itself(bench: Bench) -> None:
    client = bench.app.test_client()
    document = client.get("/openapi.json").get_json()
    assert document["openapi"].startswith("3.1")
    assert yaml.safe_load(client.get("/openapi.yaml").get_data(as_text=True)) == document
    operations = {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if path.startswith("/batch/v1/") and method != "parameters"
    }
    documented = {(method, re.sub("{.*?}", "{id}", path)) for method, path in operations}
    assert documented == {(method, f"/batch/v1{re.sub('{.*?}', '{id}', path)}") for method, path in ENDPOINTS}
    assert len({operation["operationId"] for operation in operations.values()}) == 8


@contextmanager
def frozen(bench: Bench) -> Iterator[None]:
    with bench.spine.services.database.transaction() as transaction:
        set_freeze(transaction, "maintenance")
    try:
        yield
    finally:
        with bench.spine.services.database.transaction() as transaction:
            lift_freeze(transaction)


def waits_while_frozen(method: str, path: str) -> Check:
    def check(bench: Bench) -> None:
        with frozen(bench):
            response = bench.anyone.call(method, address(path))
        expect(response, 503, "api_frozen")
        assert int(response.headers["Retry-After"]) > 0

    return check


def polls_while_frozen(bench: Bench) -> None:
    job = bench.job(Place.DONE)
    ready = bench.uploaded(LINES)
    with frozen(bench):
        assert job.poll()["status"] == "done"
        expect(job.result(), 200)
        expect(bench.anyone.call("GET", f"/inputs/{ready}"), 200)


def says_when_it_is_too_fast(bench: Bench) -> None:
    eager, other = (bench.tenant(on=bench.one_an_hour) for _ in range(2))
    expect(eager.call("GET", "/jobs/x"), 404)
    response = eager.call("GET", "/jobs/x")
    expect(response, 429, "rate_limit_exceeded")
    assert 1 <= int(response.headers["Retry-After"]) <= 3600
    expect(other.call("GET", "/jobs/x"), 404)


def waits_for_a_key_that_cannot_be_checked(bench: Bench) -> None:
    away = Database("postgresql://anex_api@127.0.0.1:1/anex", connect_timeout_seconds=1).open()
    try:
        response = replace(bench.anyone, app=bench.serve(database=away)).call("GET", "/jobs/x")
    finally:
        away.close()
    expect(response, 503, "service_unavailable")
    assert int(response.headers["Retry-After"]) > 0
    assert "127.0.0.1" not in response.get_data(as_text=True)


def answers_200_all_the_way(bench: Bench) -> None:
    tenant: Tenant = bench.tenant()
    expect(tenant.call("POST", "/inputs", {"format": "jsonl"}), 200)
    expect(tenant.call("POST", "/inputs", {"source_url": "https://files.example.com/a.jsonl"}), 200)
    job = bench.job(Place.DONE, tenant)
    expect(job.result(), 200)
    expect(job.delete(), 200)
    expect(bench.job(Place.ESTIMATING, tenant).delete(), 202)


UNKNOWN = {
    "unknown": None,
    "malformed": "x",
    "another kind's": "org_00000000000000000000000000",
    "NUL": "%00",
}

KEYS = [
    *(
        Promise(BASE, "needs an API key", needs_a_header(method, path), f"{method} {path}")
        for method, path in ENDPOINTS
    ),
    *(
        Promise(
            "Ruling 1",
            "another scheme than Bearer included",
            refuses_another_key(method, path),
            f"{method} {path}",
        )
        for method, path in ENDPOINTS
    ),
    *(
        Promise(
            ERRORS, "invalid or no longer active", refuses_a_revoked_key(method, path), f"{method} {path}"
        )
        for method, path in ENDPOINTS
    ),
    Promise(BASE, "any key of an organization can see and manage", lets_every_key_manage),
    Promise("Ruling 1", "`sk-` + 43 url-safe random characters", makes_keys_of_one_shape),
    Promise(ERRORS, "the key could not be validated", waits_for_a_key_that_cannot_be_checked),
]

IDS = [
    *(
        Promise(
            BASE,
            "the same as an id that does not exist",
            hides_what_is_foreign(
                method, path, unknown or (UNKNOWN_INPUT if "inputs" in path else UNKNOWN_JOB)
            ),
            f"{method} {path}, {kind}",
        )
        for method, path in NAMED
        for kind, unknown in UNKNOWN.items()
    ),
    Promise(
        BASE, "the same as an id that does not exist", hides_a_foreign_input_at_submit, "an input at submit"
    ),
    Promise("Ruling 1", "26 characters of Crockford base32", makes_ids_of_one_shape),
]

ANSWERS = [
    Promise("Ruling 1", "Times are RFC 3339, UTC, with offset", tells_times_in_utc),
    Promise("Ruling 1", "the caller's, if it sent a sane one", echoes_a_sane_request_id),
    Promise("Ruling 1", "In requests and in rows `null` equals absent", takes_null_for_absent),
    Promise(
        "Ruling 1",
        "An unknown field in a request body is 422",
        names_an_unknown_field("/jobs", {"input_id": "x", "model": MODEL}),
        "/jobs",
    ),
    Promise(
        "Ruling 1",
        "An unknown field in a request body is 422",
        names_an_unknown_field("/inputs", {"format": "jsonl"}),
        "/inputs",
    ),
    Promise("Ruling 1", "a map from field to messages", maps_fields_to_messages),
    Promise("Ruling 1", "Every success is 200, except DELETE's 202", answers_200_all_the_way),
    Promise("Ruling 11", "JSON bodies over 1 MiB are 413", bounds_the_body),
    Promise(BASE, "There is no list-jobs and no list-models endpoint", lists_nothing),
    Promise(BASE, "every operation has an id", documents_itself),
]

DOOR = [
    *(
        Promise(
            ERRORS, "an operator has the API frozen", waits_while_frozen(method, path), f"{method} {path}"
        )
        for method, path in CHANGES
    ),
    Promise("Ruling 11", "polling and downloading results answers 503", polls_while_frozen),
    Promise("REF: POST /jobs", "error.code is rate_limit_exceeded", says_when_it_is_too_fast),
]


@promised(KEYS, IDS, ANSWERS, DOOR)
def test_it_holds_for_every_request(promise: Promise, bench: Bench) -> None:
    keep(promise, bench)
