"""What approve, cancel, result and delete answer in each state of a job, and where they leave it: the lifecycle as a table."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from anex.jobs.show import describe_job
from anex.orgs.keys import create_key
from tests.support.contract import Place, Promise, expect, keep, promised

if TYPE_CHECKING:
    from werkzeug.test import TestResponse

    from tests.support.contract import BenchJob, Check
    from tests.support.contract_bench import Bench
    from tests.support.tenant import Tenant

APPROVE, CANCEL, RESULT, DELETE = "POST approve", "POST cancel", "GET result", "DELETE data"
ENDED = (Place.DONE, Place.FAILED, Place.PARTLY_FAILED, Place.CANCELLED, Place.PARTLY_CANCELLED)


def act(job: BenchJob, action: str) -> TestResponse:
    return {APPROVE: job.approve, CANCEL: job.cancel, RESULT: job.result, DELETE: job.delete}[action]()


def answers(place: Place, action: str, status: int, then: str) -> Check:
    """Check an action on a job at a place: ``then`` is the state it moves to, or the code of the refusal."""

    def check(bench: Bench) -> None:
        job = bench.shared(place) if status == 409 or action == RESULT else bench.job(place)
        body = expect(act(job, action), status, then if status >= 300 else None)
        left = then if status < 300 else place.status
        assert job.poll()["status"] == left
        if status < 300:
            assert (body["id"], body["status"]) == (job.id, left)

    return check


def row(source: str, sentence: str, action: str, place: Place, status: int, then: str) -> Promise:
    return Promise(source, sentence, answers(place, action, status, then), f"{place} {status}")


REF_APPROVE, REF_CANCEL = "REF: POST /jobs/{id}/approve", "REF: POST /jobs/{id}/cancel"
REF_RESULT, REF_DELETE = "REF: GET /jobs/{id}/result", "REF: DELETE /jobs/{id}/data"
CONFLICT, NOTHING = "job_state_conflict", "result_unavailable"

APPROVALS = [
    row(REF_APPROVE, "Approval is what starts paid GPU work", APPROVE, Place.COST_READY, 200, "in_progress"),
    *(
        row(REF_APPROVE, "any other state answers 409", APPROVE, place, 409, CONFLICT)
        for place in Place
        if place is not Place.COST_READY
    ),
]

CANCELS = [
    *(
        row(REF_CANCEL, "A job with no work in flight stops immediately", CANCEL, place, 200, "cancelled")
        for place in (Place.SUBMITTED, Place.COST_READY, Place.WAITING)
    ),
    row(
        REF_CANCEL,
        "A job that has already started answers cancelling",
        CANCEL,
        Place.RUNNING,
        200,
        "cancelling",
    ),
    row("Ruling 2", "answers 200 `cancelling` again", CANCEL, Place.CANCELLING, 200, "cancelling"),
    row(REF_CANCEL, "A job that is estimating answers 409 too", CANCEL, Place.ESTIMATING, 409, CONFLICT),
    *(
        row(REF_CANCEL, "finalizing or already terminal it is too late", CANCEL, place, 409, CONFLICT)
        for place in (Place.FINALIZING, *ENDED)
    ),
]

RESULTS = [
    row(REF_RESULT, "A result exists for a done job", RESULT, Place.DONE, 200, "done"),
    row(
        REF_RESULT,
        "failed or cancelled job that delivered the rows",
        RESULT,
        Place.PARTLY_FAILED,
        200,
        "failed",
    ),
    row(
        REF_RESULT,
        "failed or cancelled job that delivered the rows",
        RESULT,
        Place.PARTLY_CANCELLED,
        200,
        "cancelled",
    ),
    *(
        row(REF_RESULT, "A job with nothing to deliver answers 409", RESULT, place, 409, NOTHING)
        for place in Place
        if place not in (Place.DONE, Place.PARTLY_FAILED, Place.PARTLY_CANCELLED)
    ),
]

DELETIONS = [
    *(
        row("Ruling 2", "cancelled and purged in the same call, 200", DELETE, place, 200, "cancelled")
        for place in (Place.SUBMITTED, Place.COST_READY, Place.WAITING)
    ),
    row("Ruling 2", "`estimating`: 202, marked", DELETE, Place.ESTIMATING, 202, "estimating"),
    row(REF_DELETE, "A job still in flight is first cancelled", DELETE, Place.RUNNING, 202, "cancelling"),
    row(REF_DELETE, "202 again while the job is still stopping", DELETE, Place.CANCELLING, 202, "cancelling"),
    row("Ruling 2", "`finalizing`: 202, the job ends `done`", DELETE, Place.FINALIZING, 202, "finalizing"),
    *(
        row(REF_DELETE, "is purged at once and the call answers 200", DELETE, place, 200, place.status)
        for place in ENDED
    ),
]


def delete_again(place: Place) -> Check:
    def check(bench: Bench) -> None:
        job = bench.job(place)
        first, second = job.delete(), job.delete()
        assert (first.status_code, first.get_json()) == (second.status_code, second.get_json())
        if first.status_code == 200:
            assert job.poll()["data_deleted_at"] == first.get_json()["data_deleted_at"] is not None
            expect(job.result(), 410, "data_deleted")

    return check


def delete_a_running_job(bench: Bench) -> None:
    job = bench.job(Place.RUNNING)
    body = expect(job.delete(), 202)
    assert body["data_deleted_at"] is None
    assert (
        body["message"]
        == "the job is being cancelled; its input and any result will be deleted once it stops"
    )
    bench.let_go()
    ended = job.poll()
    assert (ended["status"], ended["cost_cents"]) == ("cancelled", 0)
    assert ended["data_deleted_at"] is not None
    expect(job.result(), 410, "data_deleted")
    expect(job.delete(), 200)


def delete_a_finalizing_job(bench: Bench) -> None:
    job = bench.job(Place.FINALIZING)
    body = expect(job.delete(), 202)
    assert "charged" in body["message"]
    bench.spine.dispatcher.rings.append(("finalize", job.id))
    bench.spine.answer_rings()
    ended = job.poll()
    assert ended["status"] == "done"
    assert ended["cost_cents"] >= 1
    assert ended["data_deleted_at"] is not None


def delete_an_estimating_job(bench: Bench) -> None:
    tenant = bench.tenant()
    bench.change("UPDATE organizations SET auto_approve = true WHERE id = %s", tenant.org_id)
    job = bench.job(Place.ESTIMATING, tenant)
    assert expect(job.delete(), 202)["message"]
    expect(job.cancel(), 409, CONFLICT)
    bench.spine.answer_rings()
    bench.sweep()
    ended = job.poll()
    assert ended["status"] == "cancelled"
    assert ended["data_deleted_at"] is not None
    assert (
        bench.change("SELECT 1 FROM job_events WHERE job_id = %s AND to_status = 'cost_ready'", job.id) == 0
    )


def delete_beside_another_job(bench: Bench) -> None:
    tenant = bench.tenant()
    input_id = tenant.upload(b'{"a": 1}\n')
    job, other = (bench.job(Place.SUBMITTED, tenant, input_id=input_id) for _ in range(2))
    body = expect(job.delete(), 202)
    assert (body["status"], body["data_deleted_at"]) == ("cancelled", None)
    assert "input" in body["message"]
    expect(bench.submit(tenant, input_id=input_id), 409, "input_expired")
    expect(other.cancel(), 200)
    bench.sweep()
    assert job.poll()["data_deleted_at"] is not None
    assert expect(tenant.call("GET", f"/inputs/{input_id}"), 200)["status"] == "expired"


def delete_everything(bench: Bench) -> None:
    """Keep the record, and no object of the job or its input."""
    job = bench.job(Place.DONE)
    before = job.poll()
    expect(job.delete(), 200)
    after = job.poll()
    assert {**after, "data_deleted_at": None} == before
    org_id = job.tenant.org_id
    assert [*bench.spine.api.objects.list_keys(f"jobs/{org_id}/")] == []
    assert [*bench.spine.api.objects.list_keys(f"inputs/{org_id}/")] == []


def look_at_the_link(bench: Bench) -> None:
    job = bench.job(Place.DONE)
    body = expect(job.result(), 200)
    assert set(body) == {"id", "status", "result_url", "expires_in", "partial", "row_count"}
    assert (body["expires_in"], body["partial"], body["row_count"]) == (3600, False, 3)
    assert expect(job.result(), 200)["row_count"] == 3
    for place in (Place.PARTLY_CANCELLED, Place.PARTLY_FAILED):
        assert expect(bench.job(place).result(), 200)["partial"] is True


def leave_unapproved(bench: Bench) -> None:
    job = bench.job(Place.COST_READY)
    with bench.later(timedelta(hours=24, seconds=1)):
        expect(job.approve(), 409, CONFLICT)
        bench.sweep()
    ended = job.poll()
    assert (ended["status"], ended["cost_cents"], ended["approved_at"]) == ("cancelled", 0, None)


def approve_without_the_money(bench: Bench) -> None:
    tenant = bench.tenant()
    job = bench.job(Place.COST_READY, tenant)
    drain(bench, tenant)
    expect(job.approve(), 402, "insufficient_credits")
    assert job.poll()["status"] == "cost_ready"
    assert count_holds(bench, job) == 0


def approve_again_without_the_money(bench: Bench) -> None:
    tenant = bench.tenant()
    job = bench.job(Place.WAITING, tenant)
    drain(bench, tenant)
    expect(job.approve(), 409, CONFLICT)
    assert count_holds(bench, job) == 1


def count_holds(bench: Bench, job: BenchJob) -> int:
    return bench.change("SELECT 1 FROM holds WHERE job_id = %s", job.id)


def drain(bench: Bench, tenant: Tenant) -> None:
    """Leave an organization less than a cent: another job holds the rest."""
    other = bench.job(Place.COST_READY, tenant)
    bench.change(
        "UPDATE jobs SET est_cost_cents = (SELECT available_nanos / 10000000 FROM accounts WHERE org_id = %s)"
        " WHERE id = %s",
        tenant.org_id,
        other.id,
    )
    bench.start(other)


def hold_the_estimate(bench: Bench) -> None:
    job = bench.job(Place.COST_READY)
    cents = job.poll()["est_cost_cents"]
    bench.start(job)
    held = bench.change(
        "SELECT 1 FROM accounts WHERE org_id = %s AND held_nanos = %s", job.tenant.org_id, cents * 10_000_000
    )
    assert held == 1
    assert job.poll()["approved_at"] is not None


def act_with_many_keys(bench: Bench) -> None:
    tenant = bench.tenant()
    job = bench.job(Place.COST_READY, tenant)
    approver, canceller, deleter = (make_key(bench, tenant) for _ in range(3))
    bench.start(replace(job, tenant=approver))
    bench.claim()
    for key in (canceller, tenant):
        expect(replace(job, tenant=key).cancel(), 200)
    expect(replace(job, tenant=deleter).delete(), 202)
    with bench.spine.services.database.transaction() as transaction:
        described = describe_job(transaction, job.id)
    assert [(action["action"], action["key_id"]) for action in described["actions"]] == [
        ("submit", tenant.key_id),
        ("approve", approver.key_id),
        ("cancel", canceller.key_id),
        ("cancel", tenant.key_id),
        ("delete", deleter.key_id),
    ]
    bench.let_go()


def settles_unseen(bench: Bench) -> None:
    job = bench.job(Place.PARTLY_CANCELLED)
    assert (
        bench.change("SELECT 1 FROM job_events WHERE job_id = %s AND to_status = 'finalizing'", job.id) == 0
    )


def make_key(bench: Bench, tenant: Tenant) -> Tenant:
    with bench.spine.services.database.transaction() as transaction:
        key, secret = create_key(transaction, tenant.org_id, "another", datetime.now(UTC))
    return replace(tenant, key_id=key.id, key=secret)


def european_job(bench: Bench, place: Place) -> BenchJob:
    return bench.job(place, bench.tenant(eu_routing=True, on=bench.eu_app))


def cancel_an_estimating_job_in_the_eea(bench: Bench) -> None:
    job = european_job(bench, Place.ESTIMATING)
    assert expect(job.cancel(), 200)["status"] == "cancelled"
    assert job.poll()["cost_cents"] == 0


def delete_an_estimating_job_in_the_eea(bench: Bench) -> None:
    job = european_job(bench, Place.ESTIMATING)
    body = expect(job.delete(), 200)
    assert body["status"] == "cancelled"
    assert body["data_deleted_at"] is not None


def act_through_the_other_api(bench: Bench) -> None:
    """Poll, approve, cancel and delete are answered by either; the result is where the data is."""
    job = european_job(bench, Place.COST_READY)
    afar = replace(job, tenant=replace(job.tenant, app=bench.app))
    assert afar.poll()["data_residency"] == "eu"
    bench.start(afar)
    body = expect(afar.result(), 421, "wrong_region")
    assert body["detail"] == "this job is stored in the EU region; use https://api-eu.anex.sh"
    assert (body["residency"], body["api"]) == ("eu", "https://api-eu.anex.sh")
    expect(afar.cancel(), 200)
    expect(job.result(), 409, NOTHING)
    assert expect(afar.delete(), 202)["data_deleted_at"] is None
    bench.sweep()
    assert afar.poll()["data_deleted_at"] is not None


LATER = [
    *(
        Promise(REF_DELETE, "The call is idempotent", delete_again(place), place)
        for place in Place
        if place is not Place.RUNNING  # it is cancelling the second time
    ),
    Promise(
        REF_DELETE, "its data is deleted automatically as soon as the job has stopped", delete_a_running_job
    ),
    Promise("Ruling 2", "is purged in the step after, with a message that says so", delete_a_finalizing_job),
    Promise("Ruling 2", "never reaches `cost_ready` or auto-approve", delete_an_estimating_job),
    Promise("Ruling 2", "another unfinished job still uses is marked", delete_beside_another_job),
    Promise("Ruling 2", "without showing `finalizing`", settles_unseen),
    Promise(REF_DELETE, "The job record - statuses, row counts, cost, dates - stays", delete_everything),
    Promise(REF_RESULT, "row_count is the number of rows actually in the file", look_at_the_link),
    Promise(REF_APPROVE, "is cancelled automatically, free of charge", leave_unapproved),
    Promise(REF_APPROVE, "A balance that does not cover the estimate answers 402", approve_without_the_money),
    Promise(REF_APPROVE, "any other state answers 409", approve_again_without_the_money, "and no balance"),
    Promise(REF_APPROVE, "It holds est_cost_cents against your prepaid balance", hold_the_estimate),
    Promise(
        "REF: Base URL and authentication", "each action records which key performed it", act_with_many_keys
    ),
    Promise(
        REF_CANCEL,
        "cancelling it while it is estimating stops it immediately",
        cancel_an_estimating_job_in_the_eea,
    ),
    Promise(
        "Ruling 2",
        "any job whose cancel settles at once",
        delete_an_estimating_job_in_the_eea,
        "estimating in the EEA",
    ),
    Promise("Ruling 13", "are answered by either API", act_through_the_other_api),
]


@promised(APPROVALS, CANCELS, RESULTS, DELETIONS)
def test_an_action_in_a_state(promise: Promise, bench: Bench) -> None:
    keep(promise, bench)


@promised(LATER)
def test_what_follows_an_action(promise: Promise, bench: Bench) -> None:
    keep(promise, bench)
