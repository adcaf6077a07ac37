"""Validate a job's input: every row checked in one pass, spans cut, the sample drawn.

What is checked here is what runs later: the object's ETag is recorded, and each later read is conditional on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.types.json import Jsonb

from anex.errors import ObjectChanged, ObjectMissing
from anex.jobs.clip_lengths import ask_hosts
from anex.jobs.model import Step
from anex.jobs.row_settings import media_terms_of, row_settings_of, store_lengths
from anex.jobs.sample_limit import note_sample
from anex.jobs.steps import fail_held_step, hold_step, lock_held_step, pass_on
from anex.jobs.store import move_job, update_job
from anex.jobs.transitions import Status
from anex.object_keys import input_key
from anex.rows.check import CheckLimits, RowChecker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anex.db import Transaction
    from anex.jobs.model import Job
    from anex.rows.check import Summary
    from anex.rows.media_items import Length
    from anex.s3 import ObjectHead
    from anex.services import Services

INPUT_CHANGED = "the input changed after it was checked. Upload it again and submit a new job."

_NOTE_PROGRESS = """
UPDATE jobs SET bytes_checked = %(bytes)s, rows_checked = %(rows)s WHERE id = %(job_id)s AND step_fence = %(fence)s
"""

_INSERT_SPAN = """
INSERT INTO spans (job_id, span_index, org_id, first_row, row_count, first_line, start_byte, end_byte,
                   cut_bytes, cut_lines, state)
VALUES (%(job_id)s, %(span_index)s, %(org_id)s, %(first_row)s, %(row_count)s, %(first_line)s, %(start_byte)s, %(end_byte)s,
        %(cut_bytes)s, %(cut_lines)s, 'ready')
"""

_INSERT_SAMPLE = """
INSERT INTO samples (job_id, org_id, drawn) VALUES (%(job_id)s, %(org_id)s, %(drawn)s)
"""


def validate_job(services: Services, job_id: str) -> None:
    """Run the ``validate`` step of a job: on to ``count``, or to ``failed`` with what is wrong and where.

    Raises ``GrammarBusy`` when a row's format can't be judged now: the step is tried again.
    """
    with hold_step(services, job_id, Step.VALIDATE) as job:
        if job is None:
            return
        _show_estimating(services, job)
        key = input_key(job.org_id, job.input_id)
        head = services.objects.head(key)
        if head is None:
            fail_held_step(
                services, job, "invalid_input", "the input is gone. Upload it again and submit a new job."
            )
            return
        try:
            summary = _check_rows(services, job, key, head)
            lengths = _ask_hosts(services, job, summary)
        except (ObjectChanged, ObjectMissing):
            fail_held_step(services, job, "invalid_input", INPUT_CHANGED)
            return
        if summary.faults:
            fail_held_step(services, job, "invalid_input", "\n".join(summary.faults.sentences()))
            return
        _keep_summary(services, job, head, summary, lengths)


def _show_estimating(services: Services, job: Job) -> None:
    """Show a job that will be sampled as ``estimating`` from here on; the others stay ``submitted`` until they are priced."""
    if not job.samples_rows or job.status != Status.SUBMITTED:
        return
    with services.database.transaction() as transaction:
        move_job(transaction, services, lock_held_step(transaction, job), Status.ESTIMATING, {})


def _check_rows(services: Services, job: Job, key: str, head: ObjectHead) -> Summary:
    checker = RowChecker(
        services.catalog.get(job.model),
        row_settings_of(job),
        seed=head.etag,
        find_grammar_fault=services.grammar.find_fault,
        media=media_terms_of(services, job),
        limits=CheckLimits(
            rows_max=services.limits.rows_max,
            line_max_bytes=services.limits.line_max_bytes,
            faults_reported_max=services.limits.faults_reported_max,
        ),
    )

    def read() -> Iterator[bytes]:
        return services.objects.stream(key, 0, head.size_bytes, head.etag)

    def note_progress(size_bytes: int, rows: int) -> None:
        parameters = {"bytes": size_bytes, "rows": rows, "job_id": job.id, "fence": job.step_fence}
        with services.database.transaction() as transaction:
            transaction.execute(_NOTE_PROGRESS, parameters)

    summary = checker.check_stream(read(), note_progress)
    checker.find_duplicates(summary, read())
    return summary


def _ask_hosts(services: Services, job: Job, summary: Summary) -> dict[str, Length]:
    """Ask about hosted clips of an input without faults."""
    if not summary.hosted or summary.faults:
        return {}
    return ask_hosts(services.outbound, media_terms_of(services, job), summary.hosted, summary.faults)


def _keep_summary(
    services: Services, job: Job, head: ObjectHead, summary: Summary, lengths: dict[str, Length]
) -> None:
    found = {
        "input_etag": head.etag,
        "input_size_bytes": head.size_bytes,
        "bytes_checked": head.size_bytes,
        "rows_checked": summary.rows,
        "total_rows": summary.rows,
        "spans_open": len(summary.spans),
        "clip_lengths": store_lengths(lengths) if lengths else None,
    }
    with services.database.transaction() as transaction:
        lock_held_step(transaction, job)
        _insert_spans(transaction, job, summary)
        update_job(transaction, job.id, found)
        pass_on(transaction, services, job, Step.COUNT)
        transaction.after_commit(lambda: services.dispatcher.ring_spans(job.id, len(summary.spans)))


def _insert_spans(transaction: Transaction, job: Job, summary: Summary) -> None:
    owner = {"job_id": job.id, "org_id": job.org_id}
    transaction.execute_many(
        _INSERT_SPAN,
        [
            {
                **owner,
                "span_index": index,
                "first_row": span.first_row,
                "row_count": span.rows,
                "first_line": span.first_line,
                "start_byte": span.start_byte,
                "end_byte": span.end_byte,
                "cut_bytes": list(span.cut_bytes),
                "cut_lines": list(span.cut_lines),
            }
            for index, span in enumerate(summary.spans)
        ],
    )
    if job.samples_rows:
        drawn = {
            "strata_rows": [stratum.rows for stratum in summary.sample.strata],
            "rows": [
                [row.row_number, row.start_byte, row.end_byte, row.stratum] for row in summary.sample.rows
            ],
            "thinking_rows": sum(
                rows for kind, rows in zip(summary.classes, summary.class_rows, strict=True) if kind.thinking
            ),
        }
        transaction.execute(_INSERT_SAMPLE, {**owner, "drawn": Jsonb(drawn)})
        note_sample(transaction, job, len(summary.sample.rows))
