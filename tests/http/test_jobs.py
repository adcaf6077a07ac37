"""The job's endpoints: what each answers, in each state, and to whom."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from anex.services import Limits
from tests.support.row_samples import chat_line, join_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask
    from werkzeug.test import TestResponse

    from tests.support.spine import RecordingDispatcher
    from tests.support.tenant import Tenant

LINES = join_lines(chat_line("a"), chat_line("b"))
UNKNOWN_JOB = "job_00000000000000000000000000"

MAKE_COST_READY = """
UPDATE jobs SET status = 'cost_ready', step = NULL, total_rows = 2, est_input_tok = 120, est_output_tok = 40,
    est_cost_cents = 72, est_processing_seconds = 9, max_output_tokens = 600, terms = '{}', cost_ready_at = now(),
    approval_expires_at = now() + interval '24 hours', model_revision = '1'
WHERE id = %s
"""

FIELDS = set(
    """
    id status est_input_tok est_output_tok est_cost_cents est_processing_seconds max_output_tokens max_tokens
    reasoning_budget success_rows error_rows format_error_rows truncated_rows pending_rows created_at approved_at
    finished_at data_expires_at data_deleted_at partial failure_code failure_reason cost_cents model reasoning
    reasoning_effort task_type format response_format dimensions video_fps data_residency
    """.split()  # noqa: SIM905 - a list of names reads as one
)


def submit(tenant: Tenant, **changes: Any) -> TestResponse:
    body = {"model": "fake-chat", "max_output_tokens": 20, **changes}
    if "input_id" not in body and "input_s3_uri" not in body:
        body["input_id"] = tenant.upload(LINES)
    return tenant.call("POST", "/jobs", body)


def submitted(tenant: Tenant, **changes: Any) -> str:
    response = submit(tenant, **changes)
    assert response.status_code == 200, response.get_json()
    return str(response.get_json()["id"])


def poll(tenant: Tenant, job_id: str) -> dict[str, Any]:
    response = tenant.call("GET", f"/jobs/{job_id}")
    assert response.status_code == 200
    job: dict[str, Any] = response.get_json()
    return job


def code_of(response: TestResponse) -> tuple[int, str]:
    return response.status_code, response.get_json()["error"]["code"]


def test_a_job_is_submitted_right_after_the_upload(tenant: Tenant, dispatcher: RecordingDispatcher) -> None:
    response = submit(tenant)

    assert response.status_code == 200
    body = response.get_json()
    assert set(body) == {"id", "status"}
    assert body["status"] == "submitted"
    assert list(dispatcher.rings) == [("validate", body["id"])]


def test_a_poll_carries_every_field(tenant: Tenant) -> None:
    job = poll(tenant, submitted(tenant, response_format={"type": "json_object"}))

    assert set(job) == FIELDS
    assert job["max_output_tokens"] == job["max_tokens"] == 20
    assert job["response_format"] == {"type": "json_object"}
    assert (job["model"], job["task_type"], job["format"]) == ("fake-chat", "chat", "jsonl")
    assert (job["data_residency"], job["reasoning"], job["est_cost_cents"]) == ("world", None, None)
    assert datetime.fromisoformat(job["created_at"]).utcoffset() == timedelta(0)


def test_the_former_name_of_the_cap_is_taken_and_echoed(tenant: Tenant) -> None:
    job = poll(tenant, submitted(tenant, max_output_tokens=None, max_tokens=33))

    assert (job["max_output_tokens"], job["max_tokens"]) == (33, 33)


def test_an_input_has_two_names(tenant: Tenant) -> None:
    input_id = tenant.upload(LINES)
    uri = tenant.call("GET", f"/inputs/{input_id}").get_json()["input_s3_uri"]

    assert submit(tenant, input_s3_uri=uri).status_code == 200


def test_another_organizations_input_is_unknown_by_both_names(make_tenant: Callable[..., Tenant]) -> None:
    owner, stranger = make_tenant(), make_tenant()
    input_id = owner.upload(LINES)
    uri = owner.call("GET", f"/inputs/{input_id}").get_json()["input_s3_uri"]

    assert code_of(submit(stranger, input_id=input_id)) == (404, "input_not_found")
    assert code_of(submit(stranger, input_s3_uri=uri)) == (404, "input_not_found")
    assert code_of(submit(stranger, input_s3_uri="s3://elsewhere/x")) == (404, "input_not_found")


def test_an_input_that_has_not_arrived_is_409(tenant: Tenant) -> None:
    answer = tenant.call("POST", "/inputs", {"format": "jsonl"}).get_json()

    assert code_of(submit(tenant, input_id=answer["id"])) == (409, "input_not_ready")


def test_an_expired_input_is_409(tenant: Tenant, shift_clock: Callable[[timedelta], None]) -> None:
    answer = tenant.call("POST", "/inputs", {"format": "jsonl"}).get_json()

    shift_clock(timedelta(hours=2))

    assert code_of(submit(tenant, input_id=answer["id"])) == (409, "input_expired")


def test_a_failed_input_is_409(tenant: Tenant, change_database: Callable[..., int]) -> None:
    input_id = tenant.upload(LINES)
    change_database(
        "UPDATE inputs SET status = 'failed', error = 'the host said 404' WHERE id = %s", input_id
    )

    response = submit(tenant, input_id=input_id)

    assert code_of(response) == (409, "input_failed")
    assert "the host said 404" in response.get_json()["detail"]


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"model": "gpt-9"}, 422, "unknown_model"),
        ({"dimensions": 32}, 422, "invalid_setting"),
        ({"reasoning": True}, 422, "invalid_setting"),
        ({"reasoning_budget": 5}, 422, "invalid_setting"),
        ({"reasoning_effort": "low"}, 422, "invalid_setting"),
        ({"video_fps": 2}, 422, "invalid_setting"),
        ({"response_format": {"type": "xml"}}, 400, "invalid_request"),
        ({"response_format": {}}, 400, "invalid_request"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_before_the_input_is_looked_for(
    tenant: Tenant, changes: dict[str, Any], status: int, code: str
) -> None:
    assert code_of(submit(tenant, input_id="inp_x", **changes)) == (status, code)


@pytest.mark.parametrize(
    "content", [b"not json\n", b"[1]\n", b"\xff\xfe{\x00", b"\x1f\x8b\x08\x00", b'{"a": "\xff"}\n']
)
def test_a_file_that_is_no_jsonl_is_400(tenant: Tenant, content: bytes) -> None:
    assert code_of(submit(tenant, input_id=tenant.upload(content))) == (400, "invalid_input_file")


def test_an_object_over_the_cap_is_400(make_app: Callable[..., Flask], tenant: Tenant) -> None:
    input_id = tenant.upload(LINES)
    strict = make_app(limits=Limits(input_max_bytes=10))

    response = strict.test_client().post(
        "/batch/v1/jobs",
        json={"input_id": input_id, "model": "fake-chat"},
        headers={"Authorization": f"Bearer {tenant.key}"},
    )

    assert code_of(response) == (400, "invalid_input_file")


def test_a_balance_of_zero_is_402_before_the_input_is_looked_for(make_tenant: Callable[..., Tenant]) -> None:
    poor = make_tenant(cents=0)

    assert code_of(submit(poor, input_id="inp_x")) == (402, "insufficient_credits")


def test_a_job_elsewhere_is_refused_before_the_balance(make_tenant: Callable[..., Tenant]) -> None:
    assert code_of(submit(make_tenant(cents=0), input_id="inp_x", data_residency="eu")) == (
        403,
        "region_not_enabled",
    )
    assert code_of(submit(make_tenant(cents=0, eu_routing=True), input_id="inp_x")) == (421, "wrong_region")


def test_a_job_and_its_input_must_be_in_one_region(
    tenant: Tenant, change_database: Callable[..., int]
) -> None:
    input_id = tenant.upload(LINES)
    change_database("UPDATE inputs SET region = 'eu' WHERE id = %s", input_id)

    response = submit(tenant, input_id=input_id)

    assert code_of(response) == (422, "invalid_setting")
    assert list(response.get_json()["errors"]) == ["data_residency"]
    assert code_of(tenant.call("GET", f"/inputs/{input_id}")) == (421, "wrong_region")


def test_eleven_concurrent_submits_make_ten_jobs(tenant: Tenant) -> None:
    input_id = tenant.upload(LINES)
    with ThreadPoolExecutor(11) as threads:
        responses = list(threads.map(lambda _: submit(tenant, input_id=input_id), range(11)))

    statuses = sorted(response.status_code for response in responses)
    assert statuses == [200] * 10 + [429]
    refused = next(response for response in responses if response.status_code == 429)
    assert refused.headers["Retry-After"] == "60"
    assert refused.get_json()["error"]["code"] == "approval_queue_full"
    assert "approval queue" in refused.get_json()["detail"]


def test_approval_holds_the_estimate_and_starts_the_job(
    tenant: Tenant, change_database: Callable[..., int]
) -> None:
    job_id = submitted(tenant)
    assert code_of(tenant.call("POST", f"/jobs/{job_id}/approve")) == (409, "job_state_conflict")
    change_database(MAKE_COST_READY, job_id)
    assert poll(tenant, job_id)["est_cost_cents"] == 72

    response = tenant.call("POST", f"/jobs/{job_id}/approve")

    assert response.get_json() == {"id": job_id, "status": "in_progress"}
    assert poll(tenant, job_id)["approved_at"] is not None
    assert change_database("SELECT 1 FROM holds WHERE job_id = %s", job_id) == 1
    assert code_of(tenant.call("POST", f"/jobs/{job_id}/approve")) == (409, "job_state_conflict")


def test_approval_over_the_balance_is_402_and_leaves_the_job(
    make_tenant: Callable[..., Tenant], change_database: Callable[..., int]
) -> None:
    short = make_tenant(cents=71)
    job_id = submitted(short)
    change_database(MAKE_COST_READY, job_id)

    assert code_of(short.call("POST", f"/jobs/{job_id}/approve")) == (402, "insufficient_credits")

    assert poll(short, job_id)["status"] == "cost_ready"


def test_cancel_stops_a_job_that_has_not_started(tenant: Tenant) -> None:
    job_id = submitted(tenant)

    response = tenant.call("POST", f"/jobs/{job_id}/cancel")

    assert response.get_json() == {"id": job_id, "status": "cancelled"}
    job = poll(tenant, job_id)
    assert (job["cost_cents"], job["partial"]) == (0, False)
    assert job["finished_at"] is not None
    assert code_of(tenant.call("POST", f"/jobs/{job_id}/cancel")) == (409, "job_state_conflict")


def test_an_estimating_job_can_not_be_cancelled(tenant: Tenant, change_database: Callable[..., int]) -> None:
    job_id = submitted(tenant)
    change_database("UPDATE jobs SET status = 'estimating' WHERE id = %s", job_id)

    assert code_of(tenant.call("POST", f"/jobs/{job_id}/cancel")) == (409, "job_state_conflict")


def test_a_result_is_409_until_there_is_one_and_410_once_it_is_deleted(tenant: Tenant) -> None:
    job_id = submitted(tenant)
    assert code_of(tenant.call("GET", f"/jobs/{job_id}/result")) == (409, "result_unavailable")

    assert tenant.call("DELETE", f"/jobs/{job_id}/data").status_code == 200

    assert code_of(tenant.call("GET", f"/jobs/{job_id}/result")) == (410, "data_deleted")


def test_deletion_cancels_purges_and_repeats_itself(tenant: Tenant) -> None:
    input_id = tenant.upload(LINES)
    job_id = submitted(tenant, input_id=input_id)

    first = tenant.call("DELETE", f"/jobs/{job_id}/data")
    second = tenant.call("DELETE", f"/jobs/{job_id}/data")

    assert first.status_code == second.status_code == 200
    assert first.get_json() == second.get_json()
    assert set(first.get_json()) == {"id", "status", "data_deleted_at", "message"}
    assert first.get_json()["status"] == "cancelled"
    assert datetime.fromisoformat(first.get_json()["data_deleted_at"]).utcoffset() == timedelta(0)
    assert tenant.call("GET", f"/inputs/{input_id}").get_json()["status"] == "expired"
    assert code_of(submit(tenant, input_id=input_id)) == (409, "input_expired")


def test_deletion_of_a_job_in_flight_is_202_with_a_message(
    tenant: Tenant, change_database: Callable[..., int]
) -> None:
    job_id = submitted(tenant)
    change_database("UPDATE jobs SET status = 'estimating' WHERE id = %s", job_id)

    response = tenant.call("DELETE", f"/jobs/{job_id}/data")

    assert response.status_code == 202
    assert response.get_json()["data_deleted_at"] is None
    assert response.get_json()["message"]
    assert tenant.call("DELETE", f"/jobs/{job_id}/data").get_json() == response.get_json()


@pytest.mark.parametrize("unknown", [UNKNOWN_JOB, "job_x", "inp_1", "%00", "é", "x" * 2000])
@pytest.mark.parametrize(
    ("method", "rest"),
    [("GET", ""), ("POST", "/approve"), ("POST", "/cancel"), ("GET", "/result"), ("DELETE", "/data")],
)
def test_another_organizations_job_is_answered_like_an_unknown_one(
    make_tenant: Callable[..., Tenant], method: str, rest: str, unknown: str
) -> None:
    owner, stranger = make_tenant(), make_tenant()
    job_id = submitted(owner)

    foreign = stranger.call(method, f"/jobs/{job_id}{rest}", X_Request_Id="same")
    missing = stranger.call(method, f"/jobs/{unknown}{rest}", X_Request_Id="same")

    assert code_of(foreign) == (404, "job_not_found")
    assert foreign.get_data() == missing.get_data()
    assert dict(foreign.headers) == dict(missing.headers)
    assert poll(owner, job_id)["status"] == "submitted"
