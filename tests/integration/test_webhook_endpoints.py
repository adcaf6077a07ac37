"""Endpoints and callbacks: secrets that change, receivers that are dead for days, events sent once more, and ingests told of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from cryptography.fernet import Fernet

from anex.errors import EventNotFound, WebhookDisabled
from anex.ids import new_id
from anex.inputs.create import create_input
from anex.inputs.ingest import copy_input
from anex.inputs.model import InputRequest
from anex.jobs.sweep import sweep
from anex.outbound import OutboundRefused
from anex.webhooks import endpoints
from tests.support.factories import make_job, make_priced_job
from tests.support.hooks import PATH, accept, check_signature, run_hooks
from tests.support.sources import look

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from anex.webhooks.model import Endpoint
    from tests.support.cli import CommandLine
    from tests.support.hooks import Hooks
    from tests.support.servers import DatabaseUrls
    from tests.support.spine import Spine
    from tests.support.tls_server import Exchange

DAY_SECONDS = 24 * 3600
CALLBACK = "/callbacks"


@pytest.fixture
def hooks(spine: Spine, fresh_database_urls: DatabaseUrls, tmp_path: Path) -> Iterator[Hooks]:
    with run_hooks(spine, fresh_database_urls, tmp_path) as running:
        yield running


def refuse(exchange: Exchange) -> None:
    exchange.respond(500)


def make_event(hooks: Hooks) -> None:
    with hooks.spine.services.database.transaction() as transaction:
        make_job(transaction, hooks.spine.caller)


def read_endpoint(hooks: Hooks) -> Endpoint:
    with hooks.spine.services.database.transaction() as transaction:
        return endpoints.get_endpoint(transaction, hooks.spine.caller.org_id)


def send_again(hooks: Hooks, event_id: str) -> None:
    with hooks.spine.services.database.transaction() as transaction:
        endpoints.redeliver(transaction, event_id)


# Secrets


def test_after_a_rotation_both_secrets_sign_for_a_day(hooks: Hooks) -> None:
    spine = hooks.spine
    with spine.services.database.transaction() as transaction:
        _, secret = endpoints.rotate_secret(
            transaction, spine.services.sealer, spine.caller.org_id, DAY_SECONDS
        )
    for ahead, secrets in ((DAY_SECONDS - 60, [secret, hooks.secret]), (120, [secret])):
        hooks.shift(ahead)
        make_event(hooks)
        hooks.deliver()
        check_signature(hooks.server.requests[-1], *secrets)


def test_secrets_are_kept_sealed_and_the_api_reads_none(hooks: Hooks) -> None:
    (row,) = hooks.read("SELECT secret FROM webhook_endpoints")
    assert hooks.secret.removeprefix("whsec_").encode() not in row["secret"]
    assert hooks.spine.services.sealer.open(row["secret"]) == hooks.secret
    with (
        pytest.raises(psycopg.errors.InsufficientPrivilege),
        hooks.spine.api.database.transaction(hooks.spine.caller.org_id) as transaction,
    ):
        transaction.fetch_dicts("SELECT secret FROM webhook_endpoints")


# Dead receivers


def test_five_days_without_a_success_disable_an_endpoint(hooks: Hooks) -> None:
    hooks.answer = refuse
    make_event(hooks)
    hooks.deliver()
    hooks.shift(5 * DAY_SECONDS - 60)
    make_event(hooks)
    hooks.deliver()
    assert read_endpoint(hooks).disabled_at is None

    hooks.shift(120)
    make_event(hooks)
    hooks.deliver()
    found = read_endpoint(hooks)
    assert found.disabled_at is not None
    assert found.disabled_reason == endpoints.BY_RULE
    assert {row["state"] for row in hooks.read("SELECT state FROM deliveries")} == {"given_up"}

    asked = len(hooks.server.requests)
    make_event(hooks)
    hooks.shift(DAY_SECONDS)
    assert hooks.deliver() == 0
    assert len(hooks.server.requests) == asked


def test_one_success_begins_the_five_days_anew(hooks: Hooks) -> None:
    for answer, ahead in ((refuse, 4 * DAY_SECONDS), (accept, 2 * DAY_SECONDS), (refuse, 2 * DAY_SECONDS)):
        hooks.answer = answer
        make_event(hooks)
        hooks.deliver()
        hooks.shift(ahead)
    make_event(hooks)
    hooks.deliver()
    found = read_endpoint(hooks)
    assert found.disabled_at is None
    assert found.failing_since is not None
    assert found.last_success_at is not None
    assert found.failing_since > found.last_success_at


def test_what_happened_while_disabled_can_be_sent_later_under_its_id(hooks: Hooks) -> None:
    spine = hooks.spine
    with spine.services.database.transaction() as transaction:
        endpoints.disable_endpoint(transaction, spine.caller.org_id)
        make_priced_job(transaction, spine.caller)
    events = hooks.read("SELECT id FROM job_events ORDER BY at")
    assert not hooks.read("SELECT 1 FROM deliveries")
    with pytest.raises(WebhookDisabled):
        send_again(hooks, events[0]["id"])

    with spine.services.database.transaction() as transaction:
        endpoints.enable_endpoint(transaction, spine.caller.org_id)
    send_again(hooks, events[0]["id"])
    assert hooks.deliver() == 1
    (told,) = hooks.received
    assert (told["id"], told["type"]) == (events[0]["id"], "submitted")

    send_again(hooks, events[0]["id"])
    assert hooks.deliver() == 1
    assert hooks.received == [told, told]
    assert [row["attempt"] for row in hooks.read("SELECT attempt FROM delivery_attempts")] == [1, 2]
    with pytest.raises(EventNotFound):
        send_again(hooks, new_id("evt", spine.services.clock.now()))


def test_an_attempt_under_way_while_the_endpoint_is_disabled_still_counts(hooks: Hooks) -> None:
    spine = hooks.spine

    def disable_and(answer: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
        def run(exchange: Exchange) -> None:
            with spine.services.database.transaction() as transaction:
                endpoints.disable_endpoint(transaction, spine.caller.org_id)
            answer(exchange)

        return run

    for answer, state in ((accept, "delivered"), (refuse, "given_up")):
        with spine.services.database.transaction() as transaction:
            endpoints.enable_endpoint(transaction, spine.caller.org_id)
        hooks.answer = disable_and(answer)
        make_event(hooks)
        assert hooks.deliver() == 1
        (last,) = hooks.read("SELECT state, attempts FROM deliveries ORDER BY place DESC LIMIT 1")
        assert last == {"state": state, "attempts": 1}


def test_a_new_address_takes_what_waits(hooks: Hooks) -> None:
    spine = hooks.spine
    hooks.answer = refuse
    make_event(hooks)
    hooks.deliver()
    with spine.services.database.transaction() as transaction:
        changed, secret = endpoints.set_endpoint(
            transaction, spine.services.sealer, spine.caller.org_id, hooks.server.url("/new")
        )
    assert secret is None, "the secret stays"
    assert changed.failing_since is None
    hooks.answer = accept
    hooks.shift(6)
    hooks.deliver()
    assert [request.path for request in hooks.server.requests] == [PATH, "/new"]
    check_signature(hooks.server.requests[1], hooks.secret)


def test_an_address_that_is_not_https_makes_no_endpoint(hooks: Hooks) -> None:
    spine = hooks.spine
    with pytest.raises(OutboundRefused), spine.services.database.transaction() as transaction:
        endpoints.set_endpoint(
            transaction, spine.services.sealer, spine.caller.org_id, "http://localhost/hooks"
        )
    assert read_endpoint(hooks).url == hooks.server.url(PATH)


# Ingest callbacks


def serve_source_and_callback(status: int, callback_status: int = 200) -> Callable[[Exchange], None]:
    def answer(exchange: Exchange) -> None:
        if exchange.request.path == CALLBACK:
            exchange.respond(callback_status)
        else:
            exchange.respond(status, b'{"custom_id":"a"}\n')

    return answer


def ingest(hooks: Hooks) -> tuple[str, str]:
    """Copy an input with a callback; return its id and the callback's secret."""
    request = InputRequest(source_url=hooks.server.url("/source"), callback_url=hooks.server.url(CALLBACK))
    created = create_input(hooks.spine.api, hooks.spine.caller, request)
    assert created.callback_secret is not None
    copy_input(hooks.spine.services, created.input.id)
    return created.input.id, created.callback_secret


@pytest.mark.parametrize(("status", "outcome"), [(200, "ready"), (404, "failed")])
def test_an_ingest_is_told_of_with_its_own_secret(hooks: Hooks, status: int, outcome: str) -> None:
    hooks.answer = serve_source_and_callback(status)
    input_id, secret = ingest(hooks)
    found = look(hooks.spine, input_id)
    assert found.status == outcome
    assert ("deliver", "0.0") in hooks.spine.dispatcher.rings

    assert hooks.deliver() == 1
    request, told = hooks.server.requests[-1], hooks.received_at(CALLBACK)[0]
    check_signature(request, secret)
    assert list(told) == ["type", "timestamp", "id", "data"]
    assert told["type"] == f"input.{outcome}"
    assert type(told["timestamp"]) is int
    assert request.headers["webhook-id"] == told["id"]
    assert told["data"] == {
        "input_id": input_id,
        "status": outcome,
        "input_s3_uri": found.object_uri,
        "error": found.error,
    }
    assert (told["data"]["error"] is None) == (outcome == "ready")


def test_a_callback_follows_the_schedule_and_disables_nothing(hooks: Hooks) -> None:
    hooks.answer = serve_source_and_callback(200, callback_status=503)
    ingest(hooks)
    for _ in range(12):
        hooks.deliver()
        hooks.shift(DAY_SECONDS)
    told = hooks.received_at(CALLBACK)
    assert len(told) == 1 + len(hooks.spine.services.timings.delivery_retry_seconds)
    assert len({event["id"] for event in told}) == 1
    assert hooks.read("SELECT state FROM deliveries") == [{"state": "given_up"}]
    assert read_endpoint(hooks).failing_since is None
    assert read_endpoint(hooks).disabled_at is None


def test_a_disabled_endpoint_keeps_no_callback_back(hooks: Hooks) -> None:
    with hooks.spine.services.database.transaction() as transaction:
        endpoints.disable_endpoint(transaction, hooks.spine.caller.org_id)
    hooks.answer = serve_source_and_callback(200)
    ingest(hooks)
    sweep(hooks.spine.services)
    assert hooks.deliver() == 1
    assert len(hooks.received_at(CALLBACK)) == 1


# The command


def test_operators_set_watch_and_repair_an_endpoint(anex: CommandLine, hooks: Hooks) -> None:
    org_id, other = hooks.spine.caller.org_id, anex.read("org", "create", "Other")["id"]
    assert "ANEX_SECRET_KEY is not set" in anex.refuse("webhook", "set", other, "https://example.com/hooks")
    anex.environment["ANEX_SECRET_KEY"] = Fernet.generate_key().decode()
    assert "10.0.0.1" in anex.refuse("webhook", "set", other, "https://10.0.0.1/hooks")
    anex.environment["ANEX_OUTBOUND_ALLOWED_NETWORKS"] = "127.0.0.0/8"
    assert "has no webhook endpoint" in anex.refuse("webhook", "show", other)
    made = anex.read("webhook", "set", other, hooks.server.url("/other"))
    assert made["secret"].startswith("whsec_")
    assert anex.read("webhook", "set", other, hooks.server.url("/other"))["secret"] is None
    assert anex.read("webhook", "rotate", other)["secret"] != made["secret"]
    assert "secret" not in anex.read("webhook", "show", other)

    event_id = anex.read("webhook", "test", org_id)["event_id"]
    hooks.deliver()
    (told,) = hooks.received
    assert (told["type"], told["id"], told["data"]) == ("test", event_id, {"job_id": None})
    check_signature(hooks.server.requests[0], hooks.secret)
    (listed,) = anex.read("webhook", "deliveries", org_id)["deliveries"]
    assert (listed["event_id"], listed["state"], listed["last_status"]) == (event_id, "delivered", 200)
    (attempt,) = anex.read("webhook", "deliveries", org_id, "--event", event_id)["attempts"]
    assert (attempt["attempt"], attempt["answer"]) == (1, "thanks")
    assert anex.read("webhook", "deliveries", other, "--event", event_id)["attempts"] == []

    assert anex.read("webhook", "redeliver", event_id) == {"event_id": event_id}
    assert hooks.deliver() == 1
    assert anex.read("webhook", "disable", org_id)["disabled_reason"] == endpoints.BY_HAND
    assert "disabled" in anex.refuse("webhook", "test", org_id)
    assert anex.read("webhook", "enable", org_id)["disabled_at"] is None
    told_people = anex.run("webhook", "deliveries", org_id).stdout
    assert event_id in told_people
    assert "thanks" in anex.run("webhook", "deliveries", org_id, "--event", event_id).stdout
