"""An input's life: the form, the upload, readiness, windows, and whose it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from anex.services import Limits
from tests.support.row_samples import chat_line, join_lines
from tests.support.tenant import send_form

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from anex.services import Services
    from tests.support.tenant import Tenant

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
LINES = join_lines(chat_line("a"), chat_line("b"))


def make_upload(tenant: Tenant) -> dict[str, Any]:
    response = tenant.call("POST", "/inputs", {"format": "jsonl"})
    assert response.status_code == 200
    answer: dict[str, Any] = response.get_json()
    return answer


def look(tenant: Tenant, answer: dict[str, Any]) -> dict[str, Any]:
    response = tenant.call("GET", f"/inputs/{answer['id']}")
    assert response.status_code == 200
    found: dict[str, Any] = response.get_json()
    return found


def seconds_until(text: str) -> float:
    at = datetime.fromisoformat(text)
    assert at.utcoffset() == timedelta(0)
    return (at - datetime.now(UTC)).total_seconds()


def test_a_form_is_handed_out_for_an_hour(tenant: Tenant) -> None:
    answer = make_upload(tenant)

    assert set(answer) == {
        "id",
        "status",
        "upload_url",
        "fields",
        "expires_at",
        "input_s3_uri",
        "callback_secret",
    }
    assert answer["status"] == "awaiting_upload"
    assert answer["id"].startswith("inp_")
    assert answer["input_s3_uri"].endswith(f"{answer['id']}.jsonl")
    assert "key" in answer["fields"]
    assert 3500 < seconds_until(answer["expires_at"]) <= 3600


def test_an_upload_becomes_ready_and_is_kept_for_a_week(tenant: Tenant) -> None:
    answer = make_upload(tenant)
    assert look(tenant, answer) == {
        "id": answer["id"],
        "status": "awaiting_upload",
        "input_s3_uri": answer["input_s3_uri"],
        "error": None,
        "expires_at": answer["expires_at"],
    }

    assert send_form(answer["upload_url"], answer["fields"], LINES).ok

    ready = look(tenant, answer)
    assert ready["status"] == "ready"
    assert 7 * 86_400 - 100 < seconds_until(ready["expires_at"]) <= 7 * 86_400
    assert look(tenant, answer) == ready


def test_a_file_over_the_cap_is_refused_by_the_storage(
    make_app: Callable[..., Flask], make_tenant: Callable[..., Tenant]
) -> None:
    small = make_tenant(on=make_app(limits=Limits(input_max_bytes=100)))
    answer = make_upload(small)

    refused = send_form(answer["upload_url"], answer["fields"], b"x" * 101)

    assert refused.status_code == 400
    assert "EntityTooLarge" in refused.text
    assert look(small, answer)["status"] == "awaiting_upload"
    assert send_form(answer["upload_url"], answer["fields"], b"x" * 100).ok


def test_the_form_writes_its_own_object_only(tenant: Tenant) -> None:
    mine, other = make_upload(tenant), make_upload(tenant)

    fields = {**mine["fields"], "key": other["fields"]["key"]}

    assert send_form(mine["upload_url"], fields, LINES).status_code == 403
    assert look(tenant, other)["status"] == "awaiting_upload"


def test_a_lapsed_window_is_expired_after_a_look(
    tenant: Tenant, shift_clock: Callable[[timedelta], None]
) -> None:
    answer = make_upload(tenant)

    shift_clock(HOUR + timedelta(minutes=1))

    lapsed = look(tenant, answer)
    assert (lapsed["status"], lapsed["expires_at"]) == ("expired", None)


def test_an_upload_that_lands_up_to_an_hour_late_still_becomes_ready(
    tenant: Tenant, shift_clock: Callable[[timedelta], None]
) -> None:
    answer = make_upload(tenant)
    shift_clock(HOUR + timedelta(minutes=59))
    assert look(tenant, answer)["status"] == "expired"

    assert send_form(answer["upload_url"], answer["fields"], LINES).ok

    assert look(tenant, answer)["status"] == "ready"


def test_an_upload_that_landed_in_time_is_found_by_a_late_look(
    tenant: Tenant, shift_clock: Callable[[timedelta], None]
) -> None:
    answer = make_upload(tenant)
    assert send_form(answer["upload_url"], answer["fields"], LINES).ok

    shift_clock(3 * DAY)

    ready = look(tenant, answer)
    assert ready["status"] == "ready"
    assert datetime.fromisoformat(ready["expires_at"]) == datetime.fromisoformat(answer["expires_at"]) + (
        HOUR + 7 * DAY
    )


def test_once_the_grace_is_over_an_input_stays_expired(
    tenant: Tenant, shift_clock: Callable[[timedelta], None]
) -> None:
    answer = make_upload(tenant)
    shift_clock(2 * HOUR)
    assert look(tenant, answer)["status"] == "expired"

    assert send_form(answer["upload_url"], answer["fields"], LINES).ok

    assert look(tenant, answer)["status"] == "expired"


def test_a_ready_input_expires_after_its_week(
    tenant: Tenant, shift_clock: Callable[[timedelta], None]
) -> None:
    input_id = tenant.upload(LINES)
    assert look(tenant, {"id": input_id})["status"] == "ready"
    shift_clock(7 * DAY - HOUR)
    assert look(tenant, {"id": input_id})["status"] == "ready"

    shift_clock(7 * DAY)

    assert look(tenant, {"id": input_id})["status"] == "expired"


def test_a_deleted_input_is_expired(tenant: Tenant, change_database: Callable[..., int]) -> None:
    input_id = tenant.upload(LINES)
    assert look(tenant, {"id": input_id})["status"] == "ready"

    change_database("UPDATE inputs SET data_deleted_at = now() WHERE id = %s", input_id)

    assert look(tenant, {"id": input_id})["status"] == "expired"


@pytest.mark.parametrize("cents", [0])
def test_without_credits_nothing_is_minted(
    make_tenant: Callable[..., Tenant], change_database: Callable[..., int], cents: int
) -> None:
    poor = make_tenant(cents=cents)

    response = poor.call("POST", "/inputs", {"format": "jsonl"})

    assert response.status_code == 402
    assert response.get_json()["error"]["code"] == "insufficient_credits"
    assert change_database("SELECT 1 FROM inputs WHERE org_id = %s", poor.org_id) == 0


@pytest.mark.parametrize(
    "unknown", ["inp_00000000000000000000000000", "inp_x", "job_1", "%00", "é", "x" * 2000]
)
def test_another_organizations_input_is_answered_like_an_unknown_one(
    make_tenant: Callable[..., Tenant], unknown: str
) -> None:
    owner, stranger = make_tenant(), make_tenant()
    answer = make_upload(owner)

    foreign = stranger.call("GET", f"/inputs/{answer['id']}", X_Request_Id="same")
    missing = stranger.call("GET", f"/inputs/{unknown}", X_Request_Id="same")

    assert foreign.status_code == missing.status_code == 404
    assert foreign.get_data() == missing.get_data()
    assert dict(foreign.headers) == dict(missing.headers)


def test_eu_data_is_sent_to_the_eu_api(make_tenant: Callable[..., Tenant]) -> None:
    european = make_tenant(eu_routing=True)

    for body in ({"format": "jsonl"}, {"format": "jsonl", "data_residency": "eu"}):
        response = european.call("POST", "/inputs", body)
        assert response.status_code == 421
        assert response.get_json()["api"] == "https://api-eu.anex.sh"
    assert european.call("POST", "/inputs", {"format": "jsonl", "data_residency": "world"}).status_code == 200


def test_an_input_is_read_on_its_own_regions_api(
    tenant: Tenant, services: Services, make_app: Callable[..., Flask]
) -> None:
    answer = make_upload(tenant)
    eu_app = make_app(region="eu")

    response = replace(tenant, app=eu_app).call("GET", f"/inputs/{answer['id']}")

    assert services.region == "world"
    assert response.status_code == 421
    assert (
        response.get_json()["detail"] == "this input is stored in the world region; use https://api.anex.sh"
    )


def test_storage_that_is_away_is_503(
    tenant: Tenant, make_app: Callable[..., Flask], unreachable_objects: Any
) -> None:
    answer = make_upload(tenant)

    response = replace(tenant, app=make_app(objects=unreachable_objects)).call(
        "GET", f"/inputs/{answer['id']}"
    )

    assert response.status_code == 503
