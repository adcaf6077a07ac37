"""What a body may hold: strict types, bounds, named unknown fields, ``null`` the same as absent."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

    from werkzeug.test import TestResponse

    from tests.support.tenant import Tenant

UNKNOWN_INPUT = "inp_00000000000000000000000000"
GOOD: dict[str, Any] = {"input_id": UNKNOWN_INPUT, "model": "fake-chat"}

WRONG: list[tuple[str, Any]] = [
    ("model", 5),
    ("model", ""),
    ("model", None),
    ("model", "x" * 257),
    ("input_id", 7),
    ("input_id", None),
    ("input_s3_uri", "s3://both/given"),
    ("max_output_tokens", "5"),
    ("max_output_tokens", True),
    ("max_output_tokens", 1.0),
    ("max_output_tokens", 0),
    ("max_output_tokens", 32_769),
    ("max_output_tokens", 10**30),
    ("max_tokens", 0),
    ("max_tokens", [5]),
    ("reasoning", 1),
    ("reasoning", "true"),
    ("reasoning_budget", -1),
    ("reasoning_budget", 32_769),
    ("reasoning_budget", False),
    ("reasoning_effort", 3),
    ("reasoning_effort", ""),
    ("video_fps", 0),
    ("video_fps", -2.5),
    ("video_fps", "20"),
    ("video_fps", True),
    ("response_format", "json_object"),
    ("response_format", []),
    ("dimensions", 0),
    ("dimensions", "32"),
    ("data_residency", "mars"),
    ("data_residency", 1),
    ("colour", "blue"),
]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted({name for name, _ in WRONG})
BODIES = st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, JSON))


def submit(tenant: Tenant, **changes: Any) -> TestResponse:
    return tenant.call("POST", "/jobs", {**GOOD, **changes})


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_field_is_422_and_named(tenant: Tenant, name: str, value: Any) -> None:
    response = submit(tenant, **{name: value})

    assert response.status_code == 422
    named = response.get_json()["errors"]
    assert list(named) == [name if name != "input_s3_uri" else "input_id"]
    assert all(isinstance(message, str) for message in named.popitem()[1])


@pytest.mark.parametrize(
    "field",
    ["max_output_tokens", "max_tokens", "reasoning", "reasoning_budget", "video_fps", "response_format"],
)
def test_null_equals_absent(tenant: Tenant, field: str) -> None:
    assert submit(tenant, **{field: None}).get_json() == submit(tenant).get_json()
    assert submit(tenant, **{field: None}).status_code == 404


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=BODIES, is_whole=st.booleans())
def test_no_body_is_a_fault_of_ours(tenant: Tenant, changes: dict[str, Any], *, is_whole: bool) -> None:
    """Whatever stands in the fields, the answer is a refusal that names something."""
    response = tenant.call("POST", "/jobs", {**GOOD, **changes} if is_whole else changes)

    assert response.status_code in {400, 404, 422}
    assert response.get_json()["error"]["message"]


def test_the_two_names_of_the_cap_may_agree_but_not_differ(tenant: Tenant) -> None:
    assert submit(tenant, max_tokens=5, max_output_tokens=5).status_code == 404

    response = submit(tenant, max_tokens=5, max_output_tokens=6)
    assert response.status_code == 422
    assert list(response.get_json()["errors"]) == ["max_tokens"]


def test_several_faults_are_told_at_once(tenant: Tenant) -> None:
    response = tenant.call("POST", "/jobs", {"max_tokens": "5", "colour": "blue"})

    assert set(response.get_json()["errors"]) == {"input_id", "model", "max_tokens", "colour"}


@pytest.mark.parametrize("body", [{}, {"model": None, "input_id": None}])
def test_everything_that_is_missing_is_told_at_once(tenant: Tenant, body: dict[str, Any]) -> None:
    """The input was told of only when the model was there."""
    response = tenant.call("POST", "/jobs", body)

    assert response.get_json()["errors"] == {
        "input_id": ["give exactly one of input_id and input_s3_uri"],
        "model": ["this field is required"],
    }


TAKES_NONE = [("POST", "/jobs/x/approve"), ("POST", "/jobs/x/cancel"), ("DELETE", "/jobs/x/data")]


@pytest.mark.parametrize(("method", "path"), TAKES_NONE)
@pytest.mark.parametrize(
    ("raw", "status", "named"),
    [
        (b"", 404, None),
        (b" \n", 404, None),
        (b"{}", 404, None),
        (b'{"x": null}', 404, None),
        (b'{"x": 1}', 422, "x"),
        (b"{", 422, "body"),
        (b"[]", 422, "body"),
        (b"null", 422, "body"),
        (b" " * ((1 << 20) + 1), 413, None),
    ],
)
def test_a_body_is_judged_where_none_is_expected(
    tenant: Tenant, method: str, path: str, raw: bytes, status: int, named: str | None
) -> None:
    """``approve`` took any body without a word."""
    response = tenant.app.test_client().open(
        f"/batch/v1{path}", method=method, data=raw, headers={"Authorization": f"Bearer {tenant.key}"}
    )

    assert response.status_code == status
    assert list(response.get_json().get("errors", {})) == ([] if named is None else [named])


def test_the_body_of_a_get_means_nothing(tenant: Tenant) -> None:
    response = tenant.app.test_client().get(
        "/batch/v1/jobs/x", data=b"{", headers={"Authorization": f"Bearer {tenant.key}"}
    )

    assert response.status_code == 404


def test_an_unknown_fields_long_name_is_cut(tenant: Tenant) -> None:
    response = submit(tenant, **{"x" * 100_000: 1, **{f"y{number}": 1 for number in range(1000)}})

    assert response.status_code == 422
    assert len(response.get_data()) < 10_000


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"[]",
        b"5",
        b'"text"',
        b"null",
        b"\xff\xfe{\x00}\x00",
        b'{"model": NaN}',
        b'{"model": "\\ud800"}',
        b'{"model": "\\u0000"}',
        b'{"\\u0000": 1}',
        b'{"response_format": {"a": ["\\u0000"]}}',
        b"[" * 200_000,
        b'{"a":' * 100_000,
    ],
)
def test_a_body_that_is_no_clean_json_object_is_422(tenant: Tenant, raw: bytes) -> None:
    response = tenant.app.test_client().post(
        "/batch/v1/jobs", data=raw, headers={"Authorization": f"Bearer {tenant.key}"}
    )

    assert response.status_code == 422
    assert list(response.get_json()["errors"]) == ["body"]


@pytest.mark.parametrize(("size", "status"), [(1 << 20, 422), ((1 << 20) + 1, 413), (3 << 20, 413)])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_over_a_mebibyte_is_413_however_it_is_sent(
    tenant: Tenant, size: int, status: int, *, is_chunked: bool
) -> None:
    """A chunked body was once cut at the bound and answered as broken JSON."""
    response = tenant.app.test_client().post(
        "/batch/v1/jobs",
        input_stream=io.BytesIO(b" " * size),
        content_length=None if is_chunked else size,
        headers={"Authorization": f"Bearer {tenant.key}"},
        environ_overrides={"wsgi.input_terminated": True} if is_chunked else {},
    )

    assert response.status_code == status


def test_an_empty_body_names_what_is_missing(tenant: Tenant) -> None:
    response = tenant.app.test_client().post(
        "/batch/v1/jobs", headers={"Authorization": f"Bearer {tenant.key}"}
    )

    assert response.status_code == 422
    assert "model" in response.get_json()["errors"]


def test_json_is_read_whatever_type_is_declared(tenant: Tenant) -> None:
    """``curl -d`` declares a form."""
    response = tenant.app.test_client().post(
        "/batch/v1/inputs",
        data=b'{"format": "jsonl"}',
        content_type="application/x-www-form-urlencoded",
        headers={"Authorization": f"Bearer {tenant.key}"},
    )

    assert response.status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"format": None}, 400),
        ({"format": "csv"}, 422),
        ({"format": 1}, 422),
        ({"format": "jsonl", "callback_url": "https://a.example"}, 400),
        ({"source_url": "http://a.example/x.jsonl"}, 400),
        ({"source_url": "https://"}, 400),
        ({"source_url": "https://[broken"}, 400),
        ({"source_url": "https://a.example/x", "callback_url": "ftp://b.example"}, 400),
        ({"source_url": 5}, 422),
        ({"format": "jsonl", "data_residency": "moon"}, 422),
        ({"format": "jsonl", "extra": 1}, 422),
        ({"source_url": "https://a.example/x.jsonl"}, 200),
        ({"source_url": "https://a.example/x.jsonl", "callback_url": "https://b.example/y"}, 200),
    ],
)
def test_a_body_of_inputs(tenant: Tenant, body: dict[str, Any], status: int) -> None:
    assert tenant.call("POST", "/inputs", body).status_code == status


def test_shape_comes_before_region_and_balance(make_tenant: Callable[..., Tenant]) -> None:
    poor = make_tenant(cents=0)

    statuses = [
        poor.call("POST", "/inputs", body).status_code
        for body in (
            {"format": "csv", "data_residency": "eu"},
            {"data_residency": "eu"},
            {"format": "jsonl", "data_residency": "eu"},
            {"format": "jsonl"},
            {"source_url": "https://a.example/x"},
        )
    ]

    assert statuses == [422, 400, 403, 402, 402]
