"""What operators are told of how estimates fare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.types.json import Jsonb

from anex.jobs.approve import approve_job
from anex.jobs.report import report_estimates
from anex.jobs.show import describe_job
from tests.support.spine import MODEL, chat_rows

if TYPE_CHECKING:
    from anex.jobs.model import Job
    from tests.support.cli import CommandLine
    from tests.support.spine import Spine


def run(spine: Spine, rows: int, **settings: object) -> Job:
    job = spine.submit(chat_rows(rows), **settings)
    spine.answer_rings()
    approve_job(spine.api, spine.caller, job.id)
    spine.answer_rings()
    ended = spine.job(job.id)
    assert ended.status == "done"
    return ended


def refuse(spine: Spine, rows: int) -> None:
    """Make a job of whose sample every row was cut."""
    job = spine.submit(chat_rows(rows))
    while spine.dispatcher.rings[0][0] != "estimate":
        spine.answer_one()
    cut = [{"stratum": 0, "thinks": False, "output": 4096, "thinking": 0, "cut": True}] * rows
    with spine.services.database.transaction() as transaction:
        transaction.execute(
            "UPDATE samples SET lengths = %(cut)s WHERE job_id = %(id)s", {"cut": Jsonb(cut), "id": job.id}
        )
    spine.answer_rings()
    assert spine.job(job.id).status == "failed"


def test_sampled_jobs_are_told_by_model(spine: Spine) -> None:
    reader = spine.services.database.reader()
    assert report_estimates(reader, days=30) == []
    first, second = run(spine, 30), run(spine, 20)
    run(spine, 10, max_output_tokens=16)  # no sample
    refuse(spine, 5)
    (report,) = report_estimates(reader, days=30)
    assert (report.model, report.done, report.caps, report.refused) == (MODEL, 2, 2, 1)
    assert report.caps_covering == sum(
        20 * (job.truncated_rows or 0) <= (job.total_rows or 0) for job in (first, second)
    )
    assert (report.median_hold_over_charge or 0) >= 1
    with spine.services.database.transaction() as transaction:
        shown = describe_job(transaction, first.id)
    half, most, longest = shown["sample"]["output_quantiles"]
    assert 1 <= half <= most <= longest
    assert most == first.max_output_tokens or most < longest
    assert shown["estimate"]["output_tokens_at_cap"] == 30 * (first.max_output_tokens or 0)


def test_the_report_has_a_command(anex: CommandLine) -> None:
    assert anex.read("estimates", "report", "--days", "7") == {"days": 7, "models": []}
    assert "hold / charge" in anex.run("estimates", "report").stdout
