"""Requests that meet: whatever the order, money is held once, a job ends once, and the audit holds afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from anex.jobs.chunk_end import close_chunk
from anex.jobs.chunks import claim_chunk
from anex.jobs.sweep import sweep
from anex.money import cents_to_nanos
from anex.orgs.keys import revoke_key
from anex.orgs.model import Caller
from api.app import create_app
from tests.support.audit import audit
from tests.support.contract import LINES, BenchJob, expect
from tests.support.factories import make_caller, make_priced_job
from tests.support.spine import MODEL, in_threads
from tests.support.tenant import Tenant

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask
    from werkzeug.test import TestResponse

    from anex.jobs.chunks import Chunk
    from tests.support.spine import Spine

MANY = 50
ROUNDS = 6
"""How often two requests meet: threads that start together come in either order within a few."""


@dataclass(frozen=True, slots=True)
class Town:
    """The API over the spine's database."""

    spine: Spine
    app: Flask

    def tenant(self, cents: int = 1000) -> Tenant:
        caller, key = make_caller(self.spine.services.database, cents_to_nanos(cents))
        return Tenant(self.app, caller.org_id, caller.key_id or "", key)

    def submit(self, tenant: Tenant, input_id: str | None = None) -> TestResponse:
        asked = {"input_id": input_id or tenant.upload(LINES), "model": MODEL, "max_output_tokens": 16}
        return tenant.call("POST", "/jobs", asked)

    def priced_job(self, tenant: Tenant) -> BenchJob:
        """Return a job that awaits its approval."""
        job = BenchJob(tenant, expect(self.submit(tenant), 200)["id"])
        self.spine.answer_rings()
        assert job.poll()["status"] == "cost_ready"
        return job

    def running_job(self, tenant: Tenant) -> tuple[BenchJob, Chunk]:
        """Return a job whose one chunk a worker holds."""
        job = self.priced_job(tenant)
        expect(job.approve(), 200)
        self.spine.dispatcher.rings.clear()
        with self.spine.services.database.transaction() as transaction:
            chunk = claim_chunk(transaction, self.spine.unit, lease_seconds=600)
        assert chunk is not None
        return job, chunk

    def settle(self) -> None:
        """Answer what was rung, let the sweeper come by, and audit."""
        self.spine.answer_rings()
        sweep(self.spine.services)
        self.spine.answer_rings()
        audit(self.spine.services)

    def count_holds(self, job: BenchJob) -> int:
        return self.count("SELECT count(*) AS n FROM holds WHERE job_id = %(id)s", id=job.id)

    def count(self, query: str, **parameters: Any) -> int:
        with self.spine.services.database.transaction() as transaction:
            row = transaction.fetch_dict(query, parameters)
        assert row is not None
        return int(row["n"])


@pytest.fixture
def town(spine: Spine) -> Town:
    return Town(spine, create_app(spine.api))


def race(count: int, action: Callable[[int], TestResponse]) -> list[int]:
    """Send requests at once; return their statuses in order."""
    outcomes = in_threads(count, action)
    assert [outcome for outcome in outcomes if isinstance(outcome, Exception)] == []
    return [outcome.status_code for outcome in outcomes]


def choose(*actions: Callable[[], Any]) -> Callable[[int], Any]:
    """Return what threads run of which each does another thing."""
    return lambda place: actions[place]()


def test_fifty_approvals_of_a_job_make_one_hold(town: Town) -> None:
    job = town.priced_job(town.tenant())

    statuses = race(MANY, lambda _: job.approve())

    assert sorted(statuses) == [200] + [409] * (MANY - 1)
    assert town.count_holds(job) == 1
    town.settle()
    assert job.poll()["status"] == "done"


def test_fifty_cancels_of_a_waiting_job_end_it_once(town: Town) -> None:
    job = town.priced_job(town.tenant())

    statuses = race(MANY, lambda _: job.cancel())

    assert sorted(statuses) == [200] + [409] * (MANY - 1)
    ended = job.poll()
    assert (ended["status"], ended["cost_cents"]) == ("cancelled", 0)
    town.settle()


def test_fifty_cancels_of_a_running_job_are_answered_alike(town: Town) -> None:
    job, chunk = town.running_job(town.tenant())

    assert race(MANY, lambda _: job.cancel()) == [200] * MANY

    assert job.poll()["status"] == "cancelling"
    close_chunk(town.spine.services, chunk, {})
    town.settle()
    assert job.poll()["status"] == "cancelled"


def test_fifty_deletions_of_a_finished_job_tell_one_time(town: Town) -> None:
    job = town.priced_job(town.tenant())
    expect(job.approve(), 200)
    town.settle()
    assert job.poll()["status"] == "done"

    answers = in_threads(MANY, lambda _: job.delete())

    assert {answer.status_code for answer in answers} == {200}
    assert {answer.get_json()["data_deleted_at"] for answer in answers} == {job.poll()["data_deleted_at"]}
    expect(job.result(), 410, "data_deleted")
    town.settle()


def test_fifty_deletions_of_a_waiting_job_cancel_it_once(town: Town) -> None:
    job = town.priced_job(town.tenant())

    answers = in_threads(MANY, lambda _: job.delete())

    assert {answer.status_code for answer in answers} == {200}
    assert {answer.get_json()["data_deleted_at"] for answer in answers} == {job.poll()["data_deleted_at"]}
    assert job.poll()["status"] == "cancelled"
    town.settle()


def test_fifty_deletions_of_a_running_job_wait_for_its_end(town: Town) -> None:
    job, chunk = town.running_job(town.tenant())

    assert race(MANY, lambda _: job.delete()) == [202] * MANY

    close_chunk(town.spine.services, chunk, {})
    town.settle()
    ended = job.poll()
    assert ended["status"] == "cancelled"
    assert ended["data_deleted_at"] is not None


def test_of_forty_approvals_with_money_for_one_one_passes(town: Town) -> None:
    """The queue's cap is no part of this: forty jobs stand there at once."""
    tenant = town.tenant(cents=49)
    caller = Caller(tenant.org_id, tenant.key_id)
    with town.spine.services.database.transaction() as transaction:
        jobs = [BenchJob(tenant, make_priced_job(transaction, caller, cost_cents=25).id) for _ in range(40)]

    statuses = race(len(jobs), lambda place: jobs[place].approve())

    assert sorted(statuses) == [200] + [402] * 39
    held = "SELECT held_nanos AS n FROM accounts WHERE org_id = %(org)s"
    assert town.count(held, org=tenant.org_id) == cents_to_nanos(25)
    audit(town.spine.services)


def test_eleven_submits_make_ten_jobs(town: Town) -> None:
    tenant = town.tenant()
    input_id = tenant.upload(LINES)

    answers = in_threads(11, lambda _: town.submit(tenant, input_id))

    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(refused) == 1
    expect(refused[0], 429, "approval_queue_full")
    assert refused[0].headers["Retry-After"] == "60"
    assert town.count("SELECT count(*) AS n FROM jobs") == 10
    audit(town.spine.services)


def test_an_approval_and_a_cancel_leave_a_cancelled_job_without_a_hold(town: Town) -> None:
    tenant = town.tenant()
    for _ in range(ROUNDS):
        job = town.priced_job(tenant)

        approved, cancelled = race(2, choose(job.approve, job.cancel))

        assert (approved in {200, 409}, cancelled) == (True, 200)
        ended = job.poll()
        assert (ended["status"], ended["cost_cents"]) == ("cancelled", 0)
        assert town.count_holds(job) == (approved == 200)
    town.settle()


def test_an_approval_and_a_deletion_leave_nothing_behind(town: Town) -> None:
    tenant = town.tenant()
    for _ in range(ROUNDS):
        job = town.priced_job(tenant)

        approved, deleted = race(2, choose(job.approve, job.delete))

        assert (approved in {200, 409}, deleted) == (True, 200)
        ended = job.poll()
        assert (ended["status"], ended["cost_cents"]) == ("cancelled", 0)
        assert ended["data_deleted_at"] is not None
        assert town.count_holds(job) == (approved == 200)
    town.settle()


def test_a_cancel_and_a_deletion_agree(town: Town) -> None:
    tenant = town.tenant()
    for _ in range(ROUNDS):
        job = town.priced_job(tenant)

        cancelled, deleted = race(2, choose(job.cancel, job.delete))

        assert (cancelled in {200, 409}, deleted) == (True, 200)
        assert job.poll()["data_deleted_at"] is not None
    town.settle()


def test_a_cancel_and_the_last_chunk_leave_one_end(town: Town) -> None:
    tenant = town.tenant()
    for _ in range(ROUNDS):
        job = town.priced_job(tenant)
        expect(job.approve(), 200)
        town.spine.dispatcher.rings.clear()

        ran, cancelled = in_threads(2, choose(town.spine.run_chunk, job.cancel))

        assert ran in {True, False}
        assert cancelled.status_code in {200, 409}
        town.settle()
        ended = job.poll()
        assert ended["status"] == ("done" if cancelled.status_code == 409 else "cancelled")
        assert ended["pending_rows"] in {0, 3}
        assert (ended["cost_cents"] > 0) == (ended["pending_rows"] == 0)


def test_a_submit_and_a_deletion_of_its_input_agree(town: Town) -> None:
    """Either the submit came first, and its input stays until it has run, or it is told that the input is gone."""
    tenant = town.tenant()
    for _ in range(ROUNDS):
        input_id = tenant.upload(LINES)
        first = BenchJob(tenant, expect(town.submit(tenant, input_id), 200)["id"])

        deleting, submitting = in_threads(2, choose(first.delete, partial(town.submit, tenant, input_id)))

        if submitting.status_code == 200:
            second = BenchJob(tenant, submitting.get_json()["id"])
            assert deleting.status_code == 202
            town.spine.answer_rings()
            assert second.poll()["status"] == "cost_ready"
            expect(second.cancel(), 200)
        else:
            expect(submitting, 409, "input_expired")
            assert deleting.status_code == 200
        town.settle()
        assert first.poll()["data_deleted_at"] is not None


def test_a_revocation_and_an_approval_agree(town: Town) -> None:
    """An approval that was let in stands, with its key; from the revocation on the key opens nothing."""
    for _ in range(ROUNDS):
        tenant = town.tenant()
        job = town.priced_job(tenant)

        revoked, answer = in_threads(2, choose(partial(revoke, town, tenant), job.approve))

        assert revoked is None
        approved = answer.status_code
        assert approved in {200, 401}
        expect(job.cancel(), 401, "invalid_api_key")
        assert town.count_holds(job) == (approved == 200)
        approvals = "SELECT count(*) AS n FROM job_actions WHERE job_id = %(id)s AND action = 'approve' AND key_id = %(key)s"
        assert town.count(approvals, id=job.id, key=tenant.key_id) == (approved == 200)
    town.settle()


def revoke(town: Town, tenant: Tenant) -> None:
    with town.spine.services.database.transaction() as transaction:
        revoke_key(transaction, tenant.key_id)
