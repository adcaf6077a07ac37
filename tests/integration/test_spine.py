"""One job's way through the use cases, and what must not happen on it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import requests

from anex.errors import (
    ApprovalQueueFull,
    BalanceTooLow,
    InputContentInvalid,
    InputExpired,
    JobNotFound,
    JobStateConflict,
    ResultUnavailable,
)
from anex.inputs.create import create_input
from anex.inputs.model import InputRequest
from anex.jobs.approve import approve_job
from anex.jobs.cancel import cancel_job
from anex.jobs.delete import delete_data
from anex.jobs.result import get_result
from anex.jobs.submit import submit_job
from anex.jobs.submit_rules import SubmitRequest
from anex.jobs.sweep import sweep
from tests.support.audit import audit
from tests.support.spine import TWO_CHUNKS_CAP, TWO_CHUNKS_ROWS, chat_rows, in_threads

if TYPE_CHECKING:
    from anex.jobs.model import Job
    from anex.orgs.model import Caller
    from tests.support.spine import Spine

RESULT_KEYS = ["id", "custom_id", "response", "error", "error_type", "usage"]


def run_to_cost_ready(spine: Spine, rows: int = 20, **settings: object) -> Job:
    job = spine.submit(chat_rows(rows), **settings)
    spine.answer_rings()
    job = spine.job(job.id)
    assert job.status == "cost_ready", job.failure_reason
    return job


def test_a_job_goes_from_submit_to_done(spine: Spine) -> None:
    job = run_to_cost_ready(spine, rows=250)
    assert job.est_cost_cents is not None
    assert job.cost_cents is None
    approve_job(spine.api, spine.caller, job.id)
    spine.answer_rings()
    done = spine.job(job.id)
    assert done.status == "done"
    assert done.cost_cents is not None
    assert 1 <= done.cost_cents <= job.est_cost_cents
    lines = spine.result_lines(job.id)
    assert [line["custom_id"] for line in lines] == [f"row-{number}" for number in range(1, 251)]
    assert all(list(line) == RESULT_KEYS for line in lines)
    assert {line["response"]["body"]["model"] for line in lines} == {"fake-chat"}
    audit(spine.services)


def test_an_explicit_cap_takes_no_sample(spine: Spine) -> None:
    job = spine.submit(chat_rows(10), max_output_tokens=16)
    asked = [what for what, _ in spine.dispatcher.rings]
    while spine.dispatcher.rings:
        spine.answer_one()
        asked += [what for what, _ in spine.dispatcher.rings]
    job = spine.job(job.id)
    assert job.status == "cost_ready"
    assert job.max_output_tokens == 16
    assert job.est_output_tok == 160
    assert "sample" not in asked


def test_rows_that_break_the_contract_fail_the_job_with_their_lines(spine: Spine) -> None:
    rows = chat_rows(3)
    job = spine.submit([rows[0], b"{not json}\n", rows[2], rows[0]])
    spine.answer_rings()
    failed = spine.job(job.id)
    assert (failed.status, failed.failure_code) == ("failed", "invalid_input")
    assert failed.failure_reason is not None
    assert failed.failure_reason.startswith("Line 2:")
    assert failed.cost_cents == 0
    audit(spine.services)


def test_a_rows_format_that_would_kill_the_engine_fails_the_job_by_its_line(spine: Spine) -> None:
    rows = chat_rows(3)
    deadly = {"type": "integer", "multipleOf": 9999991}
    row = json.loads(rows[1])
    row["body"]["response_format"] = {"type": "json_schema", "json_schema": {"name": "n", "schema": deadly}}
    job = spine.submit([rows[0], json.dumps(row).encode() + b"\n", rows[2]])
    spine.answer_rings()
    failed = spine.job(job.id)
    assert (failed.status, failed.failure_code) == ("failed", "invalid_input")
    assert failed.failure_reason == (
        "Line 2: response_format could not be compiled within its limits of time and memory;"
        " make the schema smaller"
    )


def test_an_input_that_is_not_jsonl_creates_no_job(spine: Spine) -> None:
    with pytest.raises(InputContentInvalid):
        spine.submit([b"custom_id,prompt\n1,hello\n"])
    assert not spine.dispatcher.rings


def test_a_balance_that_does_not_cover_the_estimate_holds_nothing(spine: Spine, poor: Caller) -> None:
    spine.caller = poor
    job = run_to_cost_ready(spine)
    with pytest.raises(BalanceTooLow):
        approve_job(spine.api, spine.caller, job.id)
    assert spine.job(job.id).status == "cost_ready"
    audit(spine.services)


def test_another_organizations_job_is_not_found(spine: Spine, poor: Caller) -> None:
    job = spine.submit(chat_rows(1))
    for action in (approve_job, cancel_job, delete_data, get_result):
        with pytest.raises(JobNotFound):
            action(spine.api, poor, job.id)


def test_fifty_approvals_at_once_make_one_hold(spine: Spine) -> None:
    job = run_to_cost_ready(spine)
    outcomes = in_threads(50, lambda _: approve_job(spine.api, spine.caller, job.id))
    wins = [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
    assert len(wins) == 1
    assert all(
        isinstance(outcome, JobStateConflict) for outcome in outcomes if isinstance(outcome, Exception)
    )
    audit(spine.services)


def test_eleven_submits_at_once_make_ten_jobs(spine: Spine) -> None:
    outcomes = in_threads(11, lambda _: spine.submit(chat_rows(1)))
    refused = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert [type(outcome) for outcome in refused] == [ApprovalQueueFull]


def test_cancel_before_anything_ran_costs_nothing(spine: Spine) -> None:
    job = run_to_cost_ready(spine)
    approve_job(spine.api, spine.caller, job.id)
    assert cancel_job(spine.api, spine.caller, job.id).status == "cancelled"
    spine.answer_rings()
    ended = spine.job(job.id)
    assert (ended.cost_cents, ended.pending_rows, ended.success_rows) == (0, 20, 0)
    with pytest.raises(ResultUnavailable):
        get_result(spine.api, spine.caller, job.id)
    audit(spine.services)


def test_cancel_in_the_middle_delivers_and_bills_what_ran(spine: Spine) -> None:
    job = run_to_cost_ready(spine, rows=TWO_CHUNKS_ROWS, max_output_tokens=TWO_CHUNKS_CAP)
    approve_job(spine.api, spine.caller, job.id)
    assert spine.run_chunk()
    assert cancel_job(spine.api, spine.caller, job.id).status == "cancelling"
    assert cancel_job(spine.api, spine.caller, job.id).status == "cancelling"
    spine.answer_rings()
    ended = spine.job(job.id)
    assert (ended.status, ended.partial) == ("cancelled", True)
    assert ended.cost_cents
    assert len(spine.result_lines(job.id)) == TWO_CHUNKS_ROWS - (ended.pending_rows or 0)
    audit(spine.services)


def test_a_result_is_gone_after_its_data_is_deleted(spine: Spine) -> None:
    job = run_to_cost_ready(spine)
    approve_job(spine.api, spine.caller, job.id)
    spine.answer_rings()
    deletion = delete_data(spine.api, spine.caller, job.id)
    assert deletion.message is None
    assert deletion.job.data_deleted_at is not None
    again = delete_data(spine.api, spine.caller, job.id)
    assert again.job.data_deleted_at == deletion.job.data_deleted_at
    audit(spine.services)


def test_deleting_while_the_job_runs_cancels_it_and_purges_it_once_it_stopped(spine: Spine) -> None:
    job = run_to_cost_ready(spine, rows=TWO_CHUNKS_ROWS, max_output_tokens=TWO_CHUNKS_CAP)
    approve_job(spine.api, spine.caller, job.id)
    assert spine.run_chunk()
    deletion = delete_data(spine.api, spine.caller, job.id)
    assert deletion.job.status == "cancelling"
    assert deletion.message is not None
    with pytest.raises(InputExpired):  # its input is going
        submit_job(spine.api, spine.caller, SubmitRequest(model="fake-chat", input_id=job.input_id))
    spine.answer_rings()
    assert spine.job(job.id).data_deleted_at is not None
    audit(spine.services)


def test_every_doorbell_may_be_lost(spine: Spine) -> None:
    job = spine.submit(chat_rows(5))
    for _ in range(60):
        spine.dispatcher.rings.clear()
        sweep(spine.services)
        while spine.dispatcher.rings:
            spine.answer_one()
            spine.dispatcher.rings.clear()
        current = spine.job(job.id)
        if current.status == "cost_ready":
            approve_job(spine.api, spine.caller, job.id)
        if current.status == "done":
            break
    assert spine.job(job.id).status == "done"
    audit(spine.services)


def test_every_doorbell_may_come_twice_and_late(spine: Spine) -> None:
    job = spine.submit(chat_rows(5))
    heard: list[tuple[str, str]] = []
    while spine.job(job.id).status != "done":
        heard.append(spine.dispatcher.rings[0])
        spine.answer_one()
        late = list(spine.dispatcher.rings)
        spine.dispatcher.rings.clear()
        for ring in heard:  # all that ever rang, once more
            spine.dispatcher.rings.append(ring)
            spine.answer_one()
            spine.dispatcher.rings.clear()
        spine.dispatcher.rings.extend(late)
        if spine.job(job.id).status == "cost_ready":
            approve_job(spine.api, spine.caller, job.id)
    audit(spine.services)


def test_an_input_replaced_after_its_check_fails_the_job_unbilled(spine: Spine) -> None:
    job = run_to_cost_ready(spine)
    approve_job(spine.api, spine.caller, job.id)
    with spine.services.database.transaction() as transaction:
        row = transaction.fetch_dict("SELECT object_key FROM inputs WHERE id = %(id)s", {"id": job.input_id})
    assert row is not None
    spine.services.objects.put(row["object_key"], b"".join(chat_rows(20, "Something else {number}")))
    spine.answer_rings()
    failed = spine.job(job.id)
    assert (failed.status, failed.failure_code, failed.cost_cents) == ("failed", "invalid_input", 0)
    audit(spine.services)


@pytest.mark.parametrize("text", ['"a\\u0000b"', '"a\\nb"'], ids=["nul", "newline"])
def test_a_control_character_in_a_quoted_id_does_not_keep_a_job_from_failing(spine: Spine, text: str) -> None:
    row = b'{"custom_id":%s,"method":"POST","url":"/v1/chat/completions","body":%s}\n' % (
        text.encode(),
        b'{"messages":[{"role":"user","content":"hi"}]}',
    )
    job = spine.submit([row, row])
    spine.answer_rings()
    failed = spine.job(job.id)
    assert failed.status == "failed"
    assert failed.failure_reason is not None
    assert "a\N{REPLACEMENT CHARACTER}b" in failed.failure_reason
    assert "\n" not in failed.failure_reason


def test_a_job_whose_model_was_changed_since_its_price_is_not_approved(spine: Spine) -> None:
    job = run_to_cost_ready(spine)
    with spine.services.database.transaction() as transaction:
        transaction.execute("UPDATE jobs SET model_revision = 'old' WHERE id = %(id)s", {"id": job.id})
    with pytest.raises(JobStateConflict, match="no longer offered"):
        approve_job(spine.api, spine.caller, job.id)
    assert spine.job(job.id).status == "cost_ready"


def test_a_file_sent_again_after_its_deletion_goes_when_its_form_has_expired(spine: Spine) -> None:
    upload = create_input(spine.api, spine.caller, InputRequest(format="jsonl"))

    def send() -> None:
        assert upload.upload_url is not None
        files = {"file": b"".join(chat_rows(1))}
        requests.post(upload.upload_url, data=upload.fields, files=files, timeout=30).raise_for_status()

    send()
    job = submit_job(spine.api, spine.caller, SubmitRequest(model="fake-chat", input_id=upload.input.id))
    assert delete_data(spine.api, spine.caller, job.id).message is None
    send()
    key = upload.input.object_key
    assert sweep(spine.services).forms_swept == 0
    assert list(spine.services.objects.list_keys(key)) == [key]
    with spine.services.database.transaction() as transaction:
        transaction.execute("UPDATE inputs SET upload_expires_at = upload_expires_at - interval '2 hours'")
    assert sweep(spine.services).forms_swept == 1
    assert list(spine.services.objects.list_keys(key)) == []
    assert sweep(spine.services).forms_swept == 0


def test_an_input_deleted_while_a_job_is_submitted_is_not_promised(spine: Spine) -> None:
    first = spine.submit(chat_rows(1))
    delete_data(spine.api, spine.caller, first.id)
    with pytest.raises(InputExpired):
        submit_job(spine.api, spine.caller, SubmitRequest(model="fake-chat", input_id=first.input_id))


def test_a_schemas_properties_keep_their_order_on_the_way_to_the_engine(spine: Spine) -> None:
    """They are generated in it; a column of sorted keys let a model answer before it reasoned."""
    properties = {name: {"type": "integer"} for name in ("zz", "aaa", "b")}
    wanted = {
        "type": "json_schema",
        "json_schema": {
            "name": "n",
            "schema": {"type": "object", "properties": properties, "required": ["zz"]},
        },
    }
    job = run_to_cost_ready(spine, rows=2, max_output_tokens=64, response_format=wanted)
    assert list((job.response_format or {})["json_schema"]["schema"]["properties"]) == ["zz", "aaa", "b"]
