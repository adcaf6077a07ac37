"""Webhooks over real deliveries: what is said and signed, in which order, when again, and to whom never."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import requests

from anex.errors import JobStateConflict
from anex.jobs.approve import approve_job
from anex.jobs.cancel import cancel_job
from anex.jobs.delete import delete_data
from anex.jobs.sweep import sweep
from anex.services import Timings
from anex.webhooks.deliver import deliver_next
from anex.webhooks.endpoints import set_endpoint
from anex.webhooks.store import claim_delivery
from tests.support.audit import audit
from tests.support.factories import make_job, make_priced_job
from tests.support.hooks import PATH, check_signature, run_hooks
from tests.support.spine import chat_rows, in_threads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from anex.orgs.model import Caller
    from anex.webhooks.model import Delivery
    from tests.support.hooks import Hooks
    from tests.support.servers import DatabaseUrls
    from tests.support.spine import Spine
    from tests.support.tls_server import Exchange

RETRY_SECONDS = Timings().delivery_retry_seconds
JITTER = 0.1


@pytest.fixture
def hooks(spine: Spine, fresh_database_urls: DatabaseUrls, tmp_path: Path) -> Iterator[Hooks]:
    with run_hooks(spine, fresh_database_urls, tmp_path) as running:
        yield running


def refuse(exchange: Exchange) -> None:
    exchange.respond(500, b"out of order")


def make_event(hooks: Hooks) -> str:
    """Make a job, whose one event is due; return the job's id."""
    with hooks.spine.services.database.transaction() as transaction:
        return make_job(transaction, hooks.spine.caller).id


def read_delivery(hooks: Hooks) -> dict[str, Any]:
    (row,) = hooks.read("SELECT * FROM deliveries")
    return row


def claim(hooks: Hooks, *, again: bool = False, host_max: int = 4) -> Delivery | None:
    with hooks.spine.services.database.transaction() as transaction:
        return claim_delivery(transaction, "world", again=again, lease_seconds=60, host_max=host_max)


# What is said


def test_a_jobs_events_come_in_order_signed_and_with_a_link_that_works(hooks: Hooks) -> None:
    spine = hooks.spine
    job = spine.submit(chat_rows(3))
    spine.answer_rings()
    approve_job(spine.api, spine.caller, job.id)
    spine.answer_rings()

    told = hooks.received
    assert [event["type"] for event in told] == [
        "submitted",
        "estimating",
        "cost_ready",
        "in_progress",
        "completed",
    ]
    for request, event in zip(hooks.server.requests, told, strict=True):
        check_signature(request, hooks.secret)
        assert (request.method, request.path, request.headers["content-type"]) == (
            "POST",
            PATH,
            "application/json",
        )
        assert list(event) == ["type", "timestamp", "id", "data"]
        assert request.headers["webhook-id"] == event["id"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", event["timestamp"])
    priced = spine.job(job.id)
    assert [event["data"] for event in told[:4]] == [
        {"job_id": job.id},
        {"job_id": job.id},
        {
            "job_id": job.id,
            "est_input_tok": priced.est_input_tok,
            "est_output_tok": priced.est_output_tok,
            "est_cost_cents": priced.est_cost_cents,
        },
        {"job_id": job.id},
    ]
    done = told[4]["data"]
    assert list(done) == ["job_id", "status", "result_url", "result_expires_in"]
    assert (done["status"], done["result_expires_in"]) == ("done", 3600)
    assert len(requests.get(done["result_url"], timeout=30).content.splitlines()) == 3
    # The history has finalizing too, which nobody is told of; ids are those of the history.
    ids = hooks.read("SELECT id FROM job_events WHERE to_status <> 'finalizing' ORDER BY at, id")
    assert {event["id"] for event in told} == {row["id"] for row in ids}
    audit(spine.services)


def test_the_end_of_a_cancelled_and_of_a_failed_job_says_why(hooks: Hooks) -> None:
    spine = hooks.spine
    cancelled = spine.submit(chat_rows(2), max_output_tokens=16)
    spine.dispatcher.rings.clear()
    cancel_job(spine.api, spine.caller, cancelled.id)
    failed = spine.submit([b'{"custom_id":7}\n'], max_output_tokens=16)
    spine.answer_rings()

    ends = {event["type"]: event["data"] for event in hooks.received if event["type"] != "submitted"}
    nothing = {"partial": False, "result_url": None, "result_expires_in": None}
    assert ends["cancelled"] == {
        "job_id": cancelled.id,
        "status": "cancelled",
        "failure_code": None,
        "failure_reason": None,
        **nothing,
    }
    assert ends["failed"] == {
        "job_id": failed.id,
        "status": "failed",
        "failure_code": "invalid_input",
        "failure_reason": spine.job(failed.id).failure_reason,
        **nothing,
    }
    keys = [
        "job_id",
        "status",
        "partial",
        "failure_code",
        "failure_reason",
        "result_url",
        "result_expires_in",
    ]
    assert [list(end) for end in ends.values()] == [keys, keys]


def test_each_attempt_mints_its_link_and_none_after_a_deletion(hooks: Hooks) -> None:
    spine = hooks.spine
    hooks.answer = refuse
    job = spine.submit(chat_rows(2), max_output_tokens=16)
    spine.answer_rings()
    approve_job(spine.api, spine.caller, job.id)
    spine.answer_rings()
    hooks.shift(6)
    hooks.deliver()
    delete_data(spine.api, spine.caller, job.id)
    hooks.shift(400)
    hooks.deliver()

    attempts = [event for event in hooks.received if event["type"] == "completed"]
    links = [event["data"]["result_url"] for event in attempts]
    assert len({event["id"] for event in attempts}) == 1
    assert len(links) == 3
    assert [link is None for link in links] == [False, False, True]
    assert attempts[2]["data"]["result_expires_in"] is None


# The outbox


def test_a_transition_that_is_rolled_back_tells_nothing(hooks: Hooks) -> None:
    spine = hooks.spine

    def cancel_and_fail() -> None:
        with spine.services.database.transaction() as transaction:
            make_priced_job(transaction, spine.caller)
            raise JobStateConflict("no")

    with pytest.raises(JobStateConflict):
        cancel_and_fail()

    assert hooks.deliver() == 0
    assert not hooks.read("SELECT 1 FROM deliveries UNION ALL SELECT 1 FROM job_events")
    assert not spine.dispatcher.rings


def test_an_event_whose_ring_was_lost_is_rung_for_by_the_sweeper(hooks: Hooks) -> None:
    """The process was killed between its commit and its ring: nothing but the row says that there is something to tell."""
    hooks.spine.submit(chat_rows(1), max_output_tokens=16)
    hooks.spine.dispatcher.rings.clear()

    assert sweep(hooks.spine.services).delivery_rings == 1
    assert sweep(hooks.spine.services).delivery_rings == 0, "it is rung for already"
    hooks.spine.answer_rings()

    assert "submitted" in [event["type"] for event in hooks.received]


def test_who_dies_after_sending_leaves_the_event_to_be_sent_again(hooks: Hooks) -> None:
    make_event(hooks)
    held = claim(hooks)
    assert held is not None
    assert hooks.deliver() == 0, "somebody holds it"
    hooks.shift(61)
    assert hooks.deliver() == 1
    assert [event["id"] for event in hooks.received] == [held.event_id]
    assert read_delivery(hooks)["attempts"] == 1


def test_an_organization_without_an_endpoint_keeps_no_deliveries(spine: Spine) -> None:
    spine.submit(chat_rows(1), max_output_tokens=16)
    with spine.services.database.transaction() as transaction:
        assert not transaction.fetch_dicts("SELECT 1 FROM deliveries")
    assert {what for what, _ in spine.dispatcher.rings} == {"validate"}


# When, and in which order


def test_the_schedule_is_kept_with_one_id_and_fresh_signatures(hooks: Hooks) -> None:
    hooks.answer = refuse
    make_event(hooks)
    assert hooks.deliver() == 1
    for delay in RETRY_SECONDS:
        assert hooks.deliver() == 0, "it is not due yet"
        wait = read_delivery(hooks)["due_at"] - hooks.now()
        assert timedelta(seconds=delay * (1 - JITTER) - 5) <= wait <= timedelta(seconds=delay * (1 + JITTER))
        hooks.shift(wait.total_seconds())
        assert hooks.deliver() == 1
    hooks.shift(30 * 24 * 3600)
    assert hooks.deliver() == 0

    sent = hooks.server.requests
    assert len(sent) == len(RETRY_SECONDS) + 1
    assert len({request.headers["webhook-id"] for request in sent}) == 1
    assert len({request.headers["webhook-timestamp"] for request in sent}) == len(sent)
    assert len({request.body for request in sent}) == 1
    for request in sent:
        check_signature(request, hooks.secret)
    delivery = read_delivery(hooks)
    assert (delivery["state"], delivery["attempts"]) == ("given_up", len(sent))
    kept = hooks.read("SELECT attempt, status, answer, error FROM delivery_attempts ORDER BY attempt")
    assert kept == [
        {"attempt": number, "status": 500, "answer": "out of order", "error": None}
        for number in range(1, len(sent) + 1)
    ]


def test_the_second_attempt_is_rung_for_at_its_time(hooks: Hooks) -> None:
    hooks.answer = refuse
    make_event(hooks)
    hooks.deliver()
    ((lane, seconds),) = hooks.spine.dispatcher.rings
    assert lane == "deliver again"
    assert 4.5 <= float(seconds) <= 5.5


def test_first_attempts_wait_for_each_other_and_never_for_retries(hooks: Hooks) -> None:
    hooks.answer = refuse
    with hooks.spine.services.database.transaction() as transaction:
        make_priced_job(transaction, hooks.spine.caller)  # two events at one time
    first = claim(hooks)
    assert first is not None
    assert first.type == "submitted"
    assert claim(hooks) is None, "the second waits for the first one's first attempt"
    hooks.shift(61)
    hooks.deliver()
    assert [event["type"] for event in hooks.received] == ["submitted", "cost_ready"]
    assert hooks.deliver() == 0
    hooks.shift(6)
    assert hooks.deliver() == 2
    assert len(hooks.received) == 4


def test_a_dead_receiver_takes_nothing_from_the_lane_of_the_others(
    hooks: Hooks, poor: Caller, spine: Spine
) -> None:
    """What goes to an endpoint that failed last is tried in the lane of retries, its first attempt too."""
    hooks.answer = lambda exchange: exchange.respond(500 if exchange.request.path == PATH else 200)
    make_event(hooks)
    hooks.deliver()
    with spine.services.database.transaction() as transaction:
        set_endpoint(transaction, spine.services.sealer, poor.org_id, hooks.server.url("/theirs"))
        make_job(transaction, spine.caller)
        theirs = make_job(transaction, poor)
    assert deliver_next(spine.services, again=False)
    assert not deliver_next(spine.services, again=False)
    assert hooks.received_at("/theirs")[0]["data"]["job_id"] == theirs.id
    assert deliver_next(spine.services, again=True), "at once all the same"


def test_of_claims_at_once_one_gets_a_delivery_and_a_host_only_so_many(hooks: Hooks) -> None:
    make_event(hooks)
    claimed = in_threads(6, lambda _: claim(hooks))
    assert sum(each is not None for each in claimed) == 1
    hooks.shift(3600)
    for _ in range(5):
        make_event(hooks)
    claimed = in_threads(6, lambda _: claim(hooks, host_max=3))
    held = [each.event_id for each in claimed if each is not None]
    assert len(set(held)) == len(held) == 3


def test_only_the_region_of_a_job_tells_of_it(hooks: Hooks) -> None:
    make_event(hooks)
    elsewhere = replace(hooks.spine.services, region="eu")
    assert not deliver_next(elsewhere, again=False)
    assert hooks.deliver() == 1


def test_a_secret_that_does_not_open_is_an_attempt_that_failed(hooks: Hooks) -> None:
    make_event(hooks)
    with hooks.spine.services.database.transaction() as transaction:
        transaction.execute("UPDATE webhook_endpoints SET secret = 'no seal'")
    hooks.deliver()
    assert not hooks.server.requests
    (attempt,) = hooks.read("SELECT error FROM delivery_attempts")
    assert json.dumps(attempt["error"]).startswith('"the event could not be made')
