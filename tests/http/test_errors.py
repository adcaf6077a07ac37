"""Every fault has one shape and the status that the contract gives it, and none tells what is inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import REGISTRY

from anex import errors as facts
from anex.errors import AnexError
from anex.residency import RegionElsewhere, RegionForbidden
from api.errors import STATUS_OF, RateLimitExceeded, ShapeInvalid

if TYPE_CHECKING:
    from flask import Flask
    from werkzeug.test import TestResponse

    from tests.support.tenant import Tenant

SECRET = "postgres://u:p@10.0.0.1 inputs/org_1/x.jsonl"

TOLD: list[tuple[AnexError, int, str]] = [
    (facts.InputContentInvalid("said"), 400, "invalid_input_file"),
    (facts.RequestRefused("said"), 400, "invalid_request"),
    (facts.KeyInvalid("said"), 401, "invalid_api_key"),
    (facts.BalanceTooLow("said"), 402, "insufficient_credits"),
    (RegionForbidden("said"), 403, "region_not_enabled"),
    (facts.JobNotFound("said"), 404, "job_not_found"),
    (facts.InputNotFound("said"), 404, "input_not_found"),
    (facts.JobStateConflict("said"), 409, "job_state_conflict"),
    (facts.ResultUnavailable("said"), 409, "result_unavailable"),
    (facts.InputNotReady("said"), 409, "input_not_ready"),
    (facts.InputExpired("said"), 409, "input_expired"),
    (facts.InputFailed("said"), 409, "input_failed"),
    (facts.DataDeleted("said"), 410, "data_deleted"),
    (facts.SourceTooLarge("said"), 413, "source_too_large"),
    (facts.ModelUnknown("said"), 422, "unknown_model"),
    (facts.SettingInvalid("video_fps", "said"), 422, "invalid_setting"),
    (facts.ApprovalQueueFull("said"), 429, "approval_queue_full"),
    (facts.SampleLimitReached("said", 1200), 429, "sample_limit_reached"),
    (facts.Frozen("said"), 503, "api_frozen"),
    (facts.GrammarBusy("said"), 503, "service_unavailable"),
]

UNTOLD: list[tuple[Exception, int]] = [
    (facts.DatabaseUnavailable(SECRET), 503),
    (facts.BrokerUnavailable(SECRET), 503),
    (facts.StorageUnavailable(SECRET), 503),
    (facts.ObjectMissing(SECRET), 500),
    (facts.LeaseLost(SECRET), 500),
    (facts.ModelFilesMissing(SECRET), 500),
    (facts.SealBroken(SECRET), 500),
    (AnexError(SECRET), 500),
    (ValueError(SECRET), 500),
    (KeyError(SECRET), 500),
]


def answer_to(app: Flask, fault: Exception, **headers: str) -> TestResponse:
    """Return the answer of a route that fails with ``fault``."""

    def fail() -> str:
        raise fault

    app.add_url_rule("/fail", view_func=fail)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return app.test_client().get("/fail", headers=named)


def assert_one_shape(response: TestResponse) -> dict[str, Any]:
    body: dict[str, Any] = response.get_json()
    assert body["detail"] == body["error"]["message"]
    assert set(body["error"]) == {"code", "message"}
    assert response.headers["X-Request-Id"]
    return body


@pytest.mark.parametrize(("fault", "status", "code"), TOLD, ids=lambda value: type(value).__name__)
def test_a_fact_is_told_with_its_status_and_code(
    app: Flask, fault: AnexError, status: int, code: str
) -> None:
    response = answer_to(app, fault)

    body = assert_one_shape(response)
    assert (response.status_code, body["error"]["code"], body["detail"]) == (status, code, "said")


@pytest.mark.parametrize(("fault", "status"), UNTOLD, ids=lambda value: type(value).__name__)
def test_a_fault_of_ours_tells_nothing_internal(app: Flask, fault: Exception, status: int) -> None:
    response = answer_to(app, fault)

    assert_one_shape(response)
    assert response.status_code == status
    assert "10.0.0.1" not in response.get_data(as_text=True)
    assert "org_1" not in response.get_data(as_text=True)


def test_a_500_says_internal_error_and_the_request_id(app: Flask) -> None:
    body = assert_one_shape(answer_to(app, RuntimeError(SECRET), X_Request_Id="mine-1"))

    assert body["detail"] == "internal error; the request id is mine-1"
    assert body["error"]["code"] == "internal_error"


def test_every_fact_that_is_told_is_tested() -> None:
    tested = {type(fault) for fault, *_ in (*TOLD, *UNTOLD)} | {
        RegionElsewhere,
        ShapeInvalid,
        RateLimitExceeded,
    }

    assert set(STATUS_OF) - tested == {facts.OrganizationNotFound, facts.KeyNotFound}


def test_a_setting_names_its_field(app: Flask) -> None:
    body = answer_to(app, facts.SettingInvalid("video_fps", "too high")).get_json()

    assert body["errors"] == {"video_fps": ["too high"]}


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        (facts.ApprovalQueueFull("x"), "60"),
        (facts.SampleLimitReached("x", 1200), "1200"),
        (facts.DatabaseUnavailable("x"), "5"),
        (facts.GrammarBusy("x"), "5"),
        (facts.Frozen("x"), "60"),
        (RateLimitExceeded(2), "2"),
    ],
)
def test_what_passes_says_when(app: Flask, fault: AnexError, seconds: str) -> None:
    assert answer_to(app, fault).headers["Retry-After"] == seconds


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        (1, "requests arrive faster than the API accepts; wait 1 second, then retry"),
        (2, "requests arrive faster than the API accepts; wait 2 seconds, then retry"),
    ],
)
def test_a_refusal_for_the_rate_says_how_long_to_wait(app: Flask, seconds: int, sentence: str) -> None:
    response = answer_to(app, RateLimitExceeded(seconds))

    body = assert_one_shape(response)
    assert (response.status_code, body["error"]["code"]) == (429, "rate_limit_exceeded")
    assert body["detail"] == sentence


def test_the_other_region_is_named_with_its_address(app: Flask) -> None:
    response = answer_to(app, RegionElsewhere("job", "eu"))

    body = assert_one_shape(response)
    assert response.status_code == 421
    assert body["detail"] == "this job is stored in the EU region; use https://api-eu.anex.sh"
    assert (body["residency"], body["api"]) == ("eu", "https://api-eu.anex.sh")


def test_flasks_own_refusals_have_the_same_shape(tenant: Tenant) -> None:
    unknown = tenant.app.test_client().get("/batch/v1/nothing")
    wrong_method = tenant.app.test_client().put("/batch/v1/jobs")
    too_large = tenant.call("POST", "/jobs", {"model": "x" * (2 << 20)})

    assert (unknown.status_code, assert_one_shape(unknown)["error"]["code"]) == (404, "not_found")
    assert assert_one_shape(wrong_method)["error"]["code"] == "method_not_allowed"
    assert "POST" in wrong_method.headers["Allow"]
    assert (too_large.status_code, assert_one_shape(too_large)["error"]["code"]) == (413, "request_too_large")


@pytest.mark.parametrize("host", ["a b", "[::1", "\xe9\xe9", "a/b", ""])
@pytest.mark.parametrize("path", ["/healthz", "/batch/v1/jobs/x", "/nothing", "/%ff", "/batch/v1/jobs/%00"])
def test_a_broken_request_is_no_fault_of_ours(app: Flask, host: str, path: str) -> None:
    response = app.test_client().get(path, environ_overrides={"HTTP_HOST": host})

    assert response.status_code in {200, 400, 404, 422}
    assert response.headers["X-Request-Id"].startswith("req_")
    if response.status_code != 200:
        assert_one_shape(response)


@pytest.mark.parametrize(
    ("method", "path", "labels"),
    [
        ("GET", "/healthz", ("GET", "/healthz", "200")),
        ("GET", "/batch/v1/jobs/job_1", ("GET", "/batch/v1/jobs/<job_id>", "422")),
        ("GET", "/made-up-by-a-client", ("GET", "other", "404")),
        ("MADEUP", "/healthz", ("other", "other", "405")),
    ],
)
def test_each_answer_is_counted_under_names_that_no_client_makes_up(
    app: Flask, method: str, path: str, labels: tuple[str, str, str]
) -> None:
    names = dict(zip(("method", "route", "status"), labels, strict=True))
    before = REGISTRY.get_sample_value("anex_http_requests_total", names) or 0

    app.test_client().open(path, method=method)

    assert REGISTRY.get_sample_value("anex_http_requests_total", names) == before + 1


@pytest.mark.parametrize("method", ["PUT", "TRACE", "CONNECT", "PROPFIND", "ODD"])
def test_any_other_method_is_405_and_says_which_ones_there_are(tenant: Tenant, method: str) -> None:
    response = tenant.call(method, "/jobs")

    assert (response.status_code, response.get_json()["error"]["code"]) == (405, "method_not_allowed")
    assert set(response.headers["Allow"].split(", ")) == {"POST", "OPTIONS"}


@pytest.mark.parametrize("path", ["/healthz", "/batch/v1/jobs", "/nothing"])
def test_a_sane_request_id_comes_back(app: Flask, path: str) -> None:
    response = app.test_client().get(path, headers={"X-Request-Id": "a-Z.0_9"})

    assert response.headers["X-Request-Id"] == "a-Z.0_9"


@pytest.mark.parametrize("asked", ["", "x" * 129, "two words", "semi;colon", "é"])
def test_another_request_id_is_replaced(app: Flask, asked: str) -> None:
    identifier = app.test_client().get("/healthz", headers={"X-Request-Id": asked}).headers["X-Request-Id"]

    assert identifier.startswith("req_")
    assert identifier != asked
