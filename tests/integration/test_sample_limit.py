"""The daily limit of sampled rows: counted when a sample is drawn, reserved until then, begun anew at midnight UTC."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from anex.errors import SampleLimitReached
from anex.jobs.sample_limit import RETRY_AFTER_MAX_SECONDS
from tests.support.spine import chat_rows, in_threads

if TYPE_CHECKING:
    from tests.support.servers import DatabaseUrls
    from tests.support.spine import Spine


def allow(spine: Spine, rows_per_day: int) -> None:
    spine.api = replace(spine.api, limits=replace(spine.api.limits, sampled_rows_per_day=rows_per_day))


def read_count(spine: Spine) -> int:
    with spine.services.database.transaction() as transaction:
        (row,) = transaction.fetch_dicts("SELECT coalesce(sum(rows), 0) AS rows FROM sample_days", {})
    return int(row["rows"])


def test_what_samples_drew_counts_and_what_they_may_draw_is_kept_free(spine: Spine) -> None:
    allow(spine, 60)
    spine.submit(chat_rows(30))
    with pytest.raises(SampleLimitReached):
        spine.submit(chat_rows(30))  # the first may still draw 200
    spine.answer_rings()
    assert read_count(spine) == 30
    spine.submit(chat_rows(300))
    spine.answer_rings()
    assert read_count(spine) == 230
    with pytest.raises(SampleLimitReached, match="sampled 60 rows today") as reached:
        spine.submit(chat_rows(1))
    assert 1 <= reached.value.retry_after_seconds <= RETRY_AFTER_MAX_SECONDS
    capped = spine.submit(chat_rows(1), max_output_tokens=16)  # needs no sample
    assert capped.status == "submitted"


def test_a_job_that_fails_before_its_sample_counts_nothing(spine: Spine) -> None:
    allow(spine, 1)
    job = spine.submit([*chat_rows(2), b'{"custom_id":7}\n'])
    spine.answer_rings()
    assert spine.job(job.id).status == "failed"
    assert read_count(spine) == 0
    spine.submit(chat_rows(1))


def test_of_submits_at_once_only_as_many_pass_as_the_day_has_rows_for(spine: Spine) -> None:
    allow(spine, 401)
    outcomes = in_threads(6, lambda _: spine.submit(chat_rows(1)))
    refused = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert [type(outcome) for outcome in refused] == [SampleLimitReached] * 3


def test_the_next_day_begins_anew(spine: Spine, fresh_database_urls: DatabaseUrls) -> None:
    allow(spine, 5)
    spine.submit(chat_rows(5))
    spine.answer_rings()
    with pytest.raises(SampleLimitReached):
        spine.submit(chat_rows(5))
    with psycopg.connect(fresh_database_urls.owner, autocommit=True) as connection:
        connection.execute("INSERT INTO clock_shift (shift) VALUES (interval '1 day')")
    spine.submit(chat_rows(3))
    spine.answer_rings()
    assert read_count(spine) == 3
