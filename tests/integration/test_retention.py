"""Purge by age: what is too old goes with every byte, what is still needed stays, and the record tells when."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import patch

import psycopg
import pytest

from anex import retention
from anex.errors import DataDeleted, InputExpired, StorageUnavailable
from anex.inputs.settle import get_input
from anex.jobs.approve import approve_job
from anex.jobs.purge import REASON_FORGOTTEN
from anex.jobs.result import get_result
from anex.jobs.submit import submit_job
from anex.jobs.submit_rules import SubmitRequest
from anex.retention import find_purgeable, purge_by_age
from tests.support.audit import audit
from tests.support.spine import MODEL, chat_rows

if TYPE_CHECKING:
    from tests.support.servers import DatabaseUrls
    from tests.support.spine import Spine


@pytest.fixture
def later(fresh_database_urls: DatabaseUrls) -> Later:
    return Later(fresh_database_urls.owner)


class Later:
    """Moves the database's time on."""

    def __init__(self, owner_url: str) -> None:
        self._owner_url = owner_url

    def by(self, interval: str) -> None:
        with psycopg.connect(self._owner_url, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO clock_shift (shift) VALUES (%s::interval)"
                " ON CONFLICT (one) DO UPDATE SET shift = clock_shift.shift + excluded.shift",
                (interval,),
            )

    def now(self) -> None:
        """Go back to the real time."""
        with psycopg.connect(self._owner_url, autocommit=True) as connection:
            connection.execute("DELETE FROM clock_shift")


def run_job(spine: Spine) -> str:
    job = spine.submit(chat_rows(3), max_output_tokens=16)
    spine.answer_rings()
    approve_job(spine.api, spine.caller, job.id)
    spine.answer_rings()
    assert spine.job(job.id).status == "done"
    return job.id


def list_all(spine: Spine) -> list[str]:
    return list(spine.services.objects.list_keys(""))


def test_an_input_goes_after_7_days_and_a_result_after_30(spine: Spine, later: Later) -> None:
    before = set(list_all(spine))
    job_id = run_job(spine)
    job = spine.job(job_id)
    assert purge_by_age(spine.services) == retention.Purged()
    later.by("7 days 1 minute")
    assert find_purgeable(spine.services.database, "world").inputs == [job.input_id]
    assert purge_by_age(spine.services).inputs == [job.input_id]
    assert get_input(spine.api, spine.caller, job.input_id).reported_status == "expired"
    with pytest.raises(InputExpired):
        submit_job(spine.api, spine.caller, SubmitRequest(model=MODEL, input_id=job.input_id))
    assert len(spine.result_lines(job_id)) == 3
    later.by("22 days 23 hours")
    assert purge_by_age(spine.services).jobs == []
    later.by("1 hour")
    assert purge_by_age(spine.services).jobs == [job_id]
    with pytest.raises(DataDeleted):
        get_result(spine.api, spine.caller, job_id)
    ended = spine.job(job_id)
    assert ended.data_deleted_at is not None
    assert (ended.status, ended.total_rows, ended.cost_cents) == ("done", 3, job.cost_cents)
    assert set(list_all(spine)) == before
    audit(spine.services)


def test_an_input_is_kept_while_a_job_that_is_not_over_reads_it(spine: Spine, later: Later) -> None:
    job = spine.submit(chat_rows(3), max_output_tokens=16)
    spine.answer_rings()
    approve_job(spine.api, spine.caller, job.id)
    later.by("8 days")
    assert purge_by_age(spine.services).inputs == []
    spine.answer_rings()
    assert spine.job(job.id).status == "done"
    assert purge_by_age(spine.services).inputs == [job.input_id]


def test_a_submit_and_a_purge_of_its_input_agree(spine: Spine, later: Later) -> None:
    """The purge has found the input; a submit that looked before its time was over is faster: it stays until the job is over."""
    input_id = spine.upload(chat_rows(3))
    assert get_input(spine.api, spine.caller, input_id).status == "ready"
    later.by("8 days")
    bar = retention._bar_input

    def submit_first(services: object, purged_id: str) -> bool:
        later.now()
        request = SubmitRequest(model=MODEL, input_id=input_id, max_output_tokens=16)
        submit_job(spine.api, spine.caller, request)
        later.by("8 days")
        return bar(services, purged_id)  # type: ignore[arg-type]

    with patch.object(retention, "_bar_input", submit_first):
        assert purge_by_age(spine.services).inputs == []
    assert get_input(spine.api, spine.caller, input_id).status == "ready"


def test_what_a_failing_store_kept_goes_the_next_time(spine: Spine, later: Later) -> None:
    before = set(list_all(spine))
    input_id = spine.upload(chat_rows(3))
    get_input(spine.api, spine.caller, input_id)
    later.by("8 days")
    failing = StorageUnavailable("the store is away")
    with patch.object(type(spine.services.objects), "erase", side_effect=failing):
        assert purge_by_age(spine.services).inputs == []
    with pytest.raises(InputExpired):
        submit_job(spine.api, spine.caller, SubmitRequest(model=MODEL, input_id=input_id))
    assert purge_by_age(spine.services).inputs == [input_id]
    assert set(list_all(spine)) == before


def test_an_upload_that_landed_late_and_unseen_is_purged_too(spine: Spine, later: Later) -> None:
    before = set(list_all(spine))
    input_id = spine.upload(chat_rows(3))
    later.by("9 days")  # nobody ever asked for it
    purge_by_age(spine.services)
    assert get_input(spine.api, spine.caller, input_id).reported_status == "expired"
    assert set(list_all(spine)) == before


def test_a_reason_that_quotes_the_input_goes_with_it(spine: Spine, later: Later) -> None:
    job = spine.submit([*chat_rows(1), b'{"custom_id":"secret name","method":"GET"}\n'], max_output_tokens=16)
    spine.answer_rings()
    assert "method" in (spine.job(job.id).failure_reason or "")
    later.by("31 days")
    assert purge_by_age(spine.services).jobs == [job.id]
    assert spine.job(job.id).failure_reason == REASON_FORGOTTEN
