"""``POST /inputs`` with a source URL: what is judged before anything is copied, and what the answer tells."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from anex.outbound import Outbound, OutboundPolicy, OutboundTimeout
from anex.services import Limits, Timings
from tests.support.tls_server import run_tls_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flask import Flask

    from anex.db import Database
    from anex.services import Services
    from tests.support.spine import RecordingDispatcher
    from tests.support.tenant import Tenant

SOURCE = "https://files.example.com/input.jsonl"
HOOK = "https://hooks.example.com/ingest"
KEYS = {"id", "status", "upload_url", "fields", "expires_at", "input_s3_uri", "callback_secret"}


def resolve_public(host: str) -> list[str]:
    """Give a public address for every name; an address is its own."""
    return ["93.184.216.34"] if host.endswith(".com") else [host]


class SilentOutbound(Outbound):
    """Judges as the real one, and never calls: whoever is asked is too slow to answer."""

    def __init__(self, outbound: Outbound) -> None:
        self._hosts = outbound._hosts
        self.called: list[str] = []

    def request(self, method: str, url: str, **_: Any) -> Any:
        self.called.append(f"{method} {url}")
        raise OutboundTimeout("files.example.com did not answer in time")


@pytest.fixture
def outbound() -> SilentOutbound:
    """Return a client for which every name is public, and nobody answers."""
    return SilentOutbound(Outbound(OutboundPolicy(), resolve=resolve_public))


def test_a_copy_is_accepted_as_pending(tenant: Tenant, dispatcher: RecordingDispatcher) -> None:
    response = tenant.call("POST", "/inputs", {"source_url": SOURCE})
    answer = response.get_json()
    assert response.status_code == 200
    assert set(answer) == KEYS
    assert (answer["status"], answer["callback_secret"], answer["upload_url"], answer["fields"]) == (
        "pending",
        None,
        None,
        None,
    )
    assert answer["expires_at"] is None
    assert answer["input_s3_uri"].endswith(f"{answer['id']}.jsonl")
    assert ("copy", answer["id"]) in dispatcher.rings
    polled = tenant.call("GET", f"/inputs/{answer['id']}").get_json()
    assert polled == {
        "id": answer["id"],
        "status": "pending",
        "input_s3_uri": answer["input_s3_uri"],
        "error": None,
        "expires_at": None,
    }


def test_a_callbacks_secret_is_told_once(tenant: Tenant) -> None:
    asked = {"source_url": SOURCE, "callback_url": HOOK, "format": "jsonl"}
    answer = tenant.call("POST", "/inputs", asked).get_json()
    prefix, _, encoded = answer["callback_secret"].partition("_")
    assert (prefix, len(base64.b64decode(encoded, validate=True))) == ("whsec", 32)
    assert "callback_secret" not in tenant.call("GET", f"/inputs/{answer['id']}").get_json()
    again = tenant.call("POST", "/inputs", asked).get_json()
    assert again["callback_secret"] != answer["callback_secret"]


@pytest.mark.parametrize("field", ["source_url", "callback_url"])
@pytest.mark.parametrize(
    "url",
    [
        "http://files.example.com/a",
        "ftp://files.example.com/a",
        "files.example.com/a",
        "https://",
        "",
        "https://127.0.0.1/a",
        "https://[::1]/a",
        "https://169.254.169.254/latest/meta-data",
        "https://good@169.254.169.254/",
        "https://files.example.com:22/",
    ],
)
def test_an_address_that_is_not_allowed_is_400_and_names_its_field(
    tenant: Tenant, outbound: SilentOutbound, field: str, url: str
) -> None:
    asked = {"source_url": SOURCE, "callback_url": HOOK, field: url}
    refused = tenant.call("POST", "/inputs", asked)
    assert refused.status_code == 400
    assert refused.get_json()["detail"].startswith(f"{field}: ")
    assert outbound.called == []


def test_a_name_that_leads_inside_is_400(
    make_app: Callable[..., Flask], make_tenant: Callable[..., Tenant]
) -> None:
    inside = Outbound(OutboundPolicy(), resolve=lambda _: ["93.184.216.34", "10.0.0.7"])
    tenant = make_tenant(on=make_app(outbound=inside))
    assert tenant.call("POST", "/inputs", {"source_url": SOURCE}).status_code == 400


def test_without_credits_nobody_is_contacted_and_nothing_is_made(
    make_tenant: Callable[..., Tenant], outbound: SilentOutbound, work_database: Database
) -> None:
    poor = make_tenant(cents=0)
    assert poor.call("POST", "/inputs", {"source_url": SOURCE}).status_code == 402
    assert outbound.called == []
    with work_database.transaction() as transaction:
        made = transaction.fetch_dict(
            "SELECT count(*) AS inputs FROM inputs WHERE org_id = %(org)s", {"org": poor.org_id}
        )
    assert made == {"inputs": 0}


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_a_source_that_advertises_too_much_is_413(
    services: Services,
    make_app: Callable[..., Flask],
    make_tenant: Callable[..., Tenant],
    tmp_path: Path,
    *,
    knows_ranges: bool,
) -> None:
    def answer(exchange: Any) -> None:
        if knows_ranges:
            exchange.respond(206, b"{", {"Content-Range": "bytes 0-0/1001"})
        else:
            exchange.respond(200, b"{" * 1001)

    with run_tls_server(tmp_path, answer) as server:
        changes = {
            "outbound": Outbound(server.policy),
            "limits": replace(services.limits, input_max_bytes=1000),
        }
        tenant = make_tenant(on=make_app(**changes))
        refused = tenant.call("POST", "/inputs", {"source_url": server.url()})
        exact = make_tenant(on=make_app(**{**changes, "limits": Limits(input_max_bytes=1001)}))
        assert exact.call("POST", "/inputs", {"source_url": server.url()}).status_code == 200
    assert refused.status_code == 413
    assert refused.get_json()["error"]["code"] == "source_too_large"
    assert "1001 bytes" in refused.get_json()["detail"]


def test_a_source_that_says_nothing_in_time_is_accepted(
    make_app: Callable[..., Flask], make_tenant: Callable[..., Tenant], tmp_path: Path
) -> None:
    with run_tls_server(tmp_path, lambda exchange: exchange.stay_silent()) as server:
        app = make_app(outbound=Outbound(server.policy), timings=Timings(source_probe_seconds=0.2))
        accepted = make_tenant(on=app).call("POST", "/inputs", {"source_url": server.url()})
    assert accepted.get_json()["status"] == "pending"


def test_a_job_against_a_copy_that_is_not_ready_is_409(
    tenant: Tenant, change_database: Callable[..., int]
) -> None:
    input_id = tenant.call("POST", "/inputs", {"source_url": SOURCE}).get_json()["id"]
    asked = {"input_id": input_id, "model": "fake-chat"}
    waiting = tenant.call("POST", "/jobs", asked)
    assert (waiting.status_code, waiting.get_json()["error"]["code"]) == (409, "input_not_ready")
    change_database(
        "UPDATE inputs SET status = 'failed', error = 'the source answered 404 Not Found' WHERE id = %s",
        input_id,
    )
    failed = tenant.call("POST", "/jobs", asked)
    assert (failed.status_code, failed.get_json()["error"]["code"]) == (409, "input_failed")
    assert "404 Not Found" in failed.get_json()["detail"]
    polled = tenant.call("GET", f"/inputs/{input_id}").get_json()
    assert (polled["status"], polled["error"]) == ("failed", "the source answered 404 Not Found")
