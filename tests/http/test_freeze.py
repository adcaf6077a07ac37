"""While an operator holds the API, polling and downloads go on, and everything else says when to come again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis
from psycopg.errors import InsufficientPrivilege

from anex.freeze import find_freeze, lift_freeze, set_freeze
from api.app import create_app
from api.limits import RedisRateLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Flask

    from anex.db import Database
    from anex.services import Services
    from tests.support.tenant import Tenant

CHANGES = [
    ("POST", "/inputs"),
    ("POST", "/jobs"),
    ("POST", "/jobs/job_1/approve"),
    ("POST", "/jobs/job_1/cancel"),
    ("DELETE", "/jobs/job_1/data"),
]
READS = [
    ("GET", "/inputs/inp_1"),
    ("GET", "/jobs/job_1"),
    ("GET", "/jobs/job_1/result"),
    ("HEAD", "/jobs/job_1"),
]
REASON = "the new disks at 10.0.0.1"


@pytest.fixture
def freeze(work_database: Database) -> Iterator[Callable[[], None]]:
    """Return a function that freezes the API, for this test only."""

    def set_it() -> None:
        with work_database.transaction() as transaction:
            set_freeze(transaction, REASON)

    yield set_it
    with work_database.transaction() as transaction:
        lift_freeze(transaction)


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_what_changes_something_is_503_and_says_when(
    tenant: Tenant, freeze: Callable[[], None], method: str, path: str
) -> None:
    freeze()

    response = tenant.call(method, path, {"colour": "blue"})

    assert (response.status_code, response.get_json()["error"]["code"]) == (503, "api_frozen")
    assert response.headers["Retry-After"] == "60"
    assert response.get_json()["detail"] == response.get_json()["error"]["message"]
    assert "10.0.0.1" not in response.get_data(as_text=True)


@pytest.mark.parametrize(("method", "path"), READS)
def test_polling_and_downloads_go_on(
    tenant: Tenant, freeze: Callable[[], None], method: str, path: str
) -> None:
    freeze()

    assert tenant.call(method, path).status_code == 404


def test_it_holds_from_its_commit_on_until_it_is_lifted(
    tenant: Tenant, freeze: Callable[[], None], work_database: Database
) -> None:
    assert tenant.call("POST", "/inputs", {"format": "jsonl"}).status_code == 200

    freeze()
    assert tenant.call("POST", "/inputs", {"format": "jsonl"}).status_code == 503

    with work_database.transaction() as transaction:
        lift_freeze(transaction)
    assert tenant.call("POST", "/inputs", {"format": "jsonl"}).status_code == 200


def test_the_key_and_the_rate_are_judged_before_it(
    services: Services, valkey_url: str, make_tenant: Callable[..., Tenant], freeze: Callable[[], None]
) -> None:
    with redis.Redis.from_url(valkey_url) as valkey:
        valkey.flushdb()
    app = create_app(services, rate_limit=RedisRateLimit(valkey_url, "1 per 1 hour"))
    tenant = make_tenant(on=app)
    freeze()

    statuses = [tenant.call("POST", "/jobs", {}).status_code for _ in range(2)]

    assert statuses == [503, 429]
    bad_key = {"Authorization": "Bearer sk-unknown"}
    assert app.test_client().post("/batch/v1/jobs", headers=bad_key).status_code == 401


def test_an_address_that_does_not_exist_is_not_frozen(app: Flask, freeze: Callable[[], None]) -> None:
    freeze()

    assert app.test_client().post("/batch/v1/nothing").status_code == 404
    assert app.test_client().get("/readyz").status_code == 200


def test_a_second_freeze_keeps_the_time_and_takes_a_new_reason(
    work_database: Database, freeze: Callable[[], None]
) -> None:
    freeze()
    with work_database.transaction() as transaction:
        first = find_freeze(transaction)
    assert first is not None

    with work_database.transaction() as transaction:
        assert set_freeze(transaction, None) == first
        changed = set_freeze(transaction, "more disks")

    assert (changed.reason, changed.since) == ("more disks", first.since)


def test_the_api_itself_can_not_freeze_or_thaw(services: Services) -> None:
    with pytest.raises(InsufficientPrivilege), services.database.transaction() as transaction:
        set_freeze(transaction, None)
    with pytest.raises(InsufficientPrivilege), services.database.transaction() as transaction:
        lift_freeze(transaction)
