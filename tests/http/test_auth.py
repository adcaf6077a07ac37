"""Who is asking is judged first: before the address' id, the body and its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from anex.db import Database

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from tests.support.tenant import Tenant

ROUTES = [
    ("POST", "/inputs"),
    ("GET", "/inputs/inp_1"),
    ("POST", "/jobs"),
    ("GET", "/jobs/job_1"),
    ("POST", "/jobs/job_1/approve"),
    ("POST", "/jobs/job_1/cancel"),
    ("GET", "/jobs/job_1/result"),
    ("DELETE", "/jobs/job_1/data"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_missing_header_is_422_on_every_route(app: Flask, method: str, path: str) -> None:
    response = app.test_client().open(f"/batch/v1{path}", method=method)

    assert response.status_code == 422
    assert list(response.get_json()["errors"]) == ["Authorization"]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "header", ["Basic dXNlcjpwYXNz", "Bearer", "Bearer sk-unknown", "sk-bare", "Bearer \xe9\xe9"]
)
def test_another_scheme_or_a_bad_key_is_401_on_every_route(
    app: Flask, method: str, path: str, header: str
) -> None:
    response = app.test_client().open(
        f"/batch/v1{path}",
        method=method,
        headers={"Authorization": header.encode("latin-1").decode("latin-1")},
    )

    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert response.get_json()["error"]["code"] == "invalid_api_key"


def test_a_revoked_key_is_401(tenant: Tenant, change_database: Callable[..., int]) -> None:
    assert tenant.call("GET", "/jobs/x").status_code == 404

    assert change_database("UPDATE api_keys SET revoked_at = now() WHERE id = %s", tenant.key_id) == 1

    assert tenant.call("GET", "/jobs/x").status_code == 401


def test_the_key_is_judged_before_the_body(app: Flask) -> None:
    too_large = b"x" * (2 << 20)

    response = app.test_client().post(
        "/batch/v1/jobs", data=too_large, headers={"Authorization": "Bearer sk-unknown"}
    )

    assert response.status_code == 401


def test_the_scheme_is_read_in_any_case(tenant: Tenant) -> None:
    response = tenant.app.test_client().get(
        "/batch/v1/jobs/x", headers={"Authorization": f"bEARER  {tenant.key} "}
    )

    assert response.status_code == 404


def test_a_key_that_cannot_be_checked_is_503(make_app: Callable[..., Flask]) -> None:
    away = Database("postgresql://anex_api@127.0.0.1:1/anex", connect_timeout_seconds=1).open()
    try:
        response = (
            make_app(database=away)
            .test_client()
            .get("/batch/v1/jobs/x", headers={"Authorization": "Bearer sk-any"})
        )
    finally:
        away.close()

    assert response.status_code == 503
    assert int(response.headers["Retry-After"]) > 0
    assert "127.0.0.1" not in response.get_data(as_text=True)
