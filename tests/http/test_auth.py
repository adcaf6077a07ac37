"""Who is asking is judged first: before the address' id, the body and its size."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from anex.db import Database
from anex.orgs.keys import create_key, revoke_key
from api.auth import Door
from api.limits import NoRateLimit, name_address

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


def test_revocation_and_creation_work_from_their_commit_on(tenant: Tenant, work_database: Database) -> None:
    """The process knows the key as good: it is looked up all the same."""
    with work_database.transaction() as transaction:
        key, secret = create_key(transaction, tenant.org_id, "second", datetime.now(UTC))
        second = replace(tenant, key_id=key.id, key=secret)
        assert second.call("GET", "/jobs/x").status_code == 401
    assert second.call("GET", "/jobs/x").status_code == 404

    with work_database.transaction() as transaction:
        revoke_key(transaction, key.id)
        assert second.call("GET", "/jobs/x").status_code == 404
    assert second.call("GET", "/jobs/x").status_code == 401
    assert tenant.call("GET", "/jobs/x").status_code == 404


@pytest.mark.parametrize("header", ["", " ", "   "])
def test_an_empty_header_is_a_missing_one(app: Flask, header: str) -> None:
    response = app.test_client().get("/batch/v1/jobs/x", headers={"Authorization": header})

    assert response.status_code == 422


@pytest.mark.parametrize(
    "presented",
    [
        "{key},",
        "{key}x",
        "{key} {key}",
        "{key},Bearer {key}",
        "sk-unknown,Bearer {key}",
        "\u00a0{key}",
        "x" * 1_000_000,
        "sk-\x00",
    ],
)
def test_only_the_key_itself_opens(tenant: Tenant, presented: str) -> None:
    """Several headers arrive as one, joined by commas; which of them was meant is not guessed."""
    header = f"Bearer {presented.format(key=tenant.key)}"
    response = tenant.app.test_client().get(
        "/batch/v1/jobs/x", environ_overrides={"HTTP_AUTHORIZATION": header}
    )

    assert (response.status_code, response.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert tenant.key not in response.get_data(as_text=True)


def test_an_unknown_address_is_404_without_a_key(app: Flask) -> None:
    response = app.test_client().post("/batch/v1/nothing")

    assert (response.status_code, response.get_json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("remote", "counts_as"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("192.0.2.1:5678", "192.0.2.1:5678"),
        ("x" * 1000, "x" * 64),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_an_address_counts_as_its_network(remote: str | None, counts_as: str) -> None:
    assert name_address(remote) == counts_as


def test_good_keys_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.auth.KEYS_REMEMBERED_MAX", 2)
    door = Door(NoRateLimit())
    for key in ("first", "second", "first", "third"):
        door.remember(key)

    assert [door.knows(key) for key in ("first", "second", "third")] == [True, False, True]

    door.forget("first")
    door.forget("never seen")
    assert not door.knows("first")


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
    assert response.headers["Retry-After"] == "5"
    assert response.get_json()["error"]["code"] == "service_unavailable"
    assert "127.0.0.1" not in response.get_data(as_text=True)
