"""Count the tokens of a job's input, span by span, on as many planners as there are.

There is no chord to lose: each span is leased like a chunk, and the transaction that closes the last one moves the job on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from anex.errors import ObjectChanged, ObjectMissing
from anex.estimating.bound import room_for_output
from anex.jobs.end import fail_job
from anex.jobs.model import Step
from anex.jobs.ring import ring_plan
from anex.jobs.row_settings import input_terms_of
from anex.jobs.store import get_job, lock_job, note_span_counted, set_step
from anex.jobs.validate import INPUT_CHANGED
from anex.object_keys import input_key
from anex.rows.decode import iterate_rows, line_format
from anex.rows.faults import find_length_fault
from anex.rows.inputs import count_decisions, count_inputs
from anex.usage import NOTHING, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anex.jobs.model import Job
    from anex.rows.inputs import RowInput
    from anex.services import Services

ROWS_AT_ONCE = 128
"""Rows that are tokenized together: short texts are counted faster side by side."""

_CLAIM = """
UPDATE spans SET state = 'leased', fence = fence + 1, lease_until = anex_now() + %(lease)s * interval '1 second'
WHERE (job_id, span_index) = (
    SELECT job_id, span_index FROM spans
    WHERE job_id = %(job_id)s AND (state = 'ready' OR (state = 'leased' AND lease_until < anex_now()))
    ORDER BY span_index LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING span_index, fence, first_row, first_line, start_byte, end_byte
"""

_COMPLETE = """
UPDATE spans SET state = 'done', lease_until = NULL, input_tokens = %(input_tokens)s, output_room = %(output_room)s,
                 media_tokens = %(media_tokens)s, images = %(images)s, clips = %(clips)s,
                 clip_milliseconds = %(clip_milliseconds)s
WHERE job_id = %(job_id)s AND span_index = %(span_index)s AND fence = %(fence)s AND state = 'leased'
"""


@dataclass(frozen=True, slots=True)
class ClaimedSpan:
    """A span under this process's lease."""

    span_index: int
    fence: int
    first_row: int
    first_line: int
    start_byte: int
    end_byte: int


@dataclass(slots=True)
class SpanCount:
    """What counting a span found; the first faults name rows that are too long."""

    faults: list[str]
    usage: Usage = NOTHING
    output_room: int = 0


def count_next_span(services: Services, job_id: str) -> bool:
    """Count one span of a job, if one is to be had; the last one moves the job on. Returns whether there was one."""
    with services.database.transaction() as transaction:
        job = get_job(transaction, job_id)
        if job.step != Step.COUNT or job.region != services.region:
            return False
        span = transaction.fetch_one(
            ClaimedSpan, _CLAIM, {"job_id": job_id, "lease": services.timings.lease_seconds}
        )
    if span is None:
        return False
    try:
        count = _count_span(services, job, span)
    except (ObjectChanged, ObjectMissing):
        count = SpanCount([INPUT_CHANGED])
    if count.faults:
        _fail(services, job, count.faults)
    else:
        _complete(services, job, span, count)
    return True


def _count_span(services: Services, job: Job, span: ClaimedSpan) -> SpanCount:
    spec = services.catalog.get(job.model)
    count_rows = _row_counter(services, job)
    cap = job.asked_max_tokens or spec.output_max_tokens
    count = SpanCount([])
    key = input_key(job.org_id, job.input_id)
    rows = iterate_rows(
        services.objects.stream(key, span.start_byte, span.end_byte, job.input_etag),
        line_format(spec),
        start_byte=span.start_byte,
        first_line=span.first_line,
        first_row=span.first_row,
    )
    while batch := list(islice(rows, ROWS_AT_ONCE)):
        for row, found in zip(batch, count_rows(batch), strict=True):
            tokens = found.usage.input_tokens
            fault = find_length_fault(row.custom_id, tokens, spec, found.media)
            if fault is not None and len(count.faults) < services.limits.faults_reported_max:
                count.faults.append(fault)
            count.usage += found.usage
            count.output_room += room_for_output(cap, tokens, spec.context_for(found.media).total_tokens)
    return count


def _row_counter(services: Services, job: Job) -> Callable[[Sequence[Any]], list[RowInput]]:
    """Return what counts the job's rows, which are all of its model's kind."""
    spec = services.catalog.get(job.model)
    if spec.kind == "decide":
        return partial(count_decisions, services.counters.for_decisions(spec))
    return partial(count_inputs, input_terms_of(services, job))


def _fail(services: Services, job: Job, faults: list[str]) -> None:
    with services.database.transaction() as transaction:
        current = lock_job(transaction, job.id)
        if current.step == Step.COUNT:
            fail_job(transaction, services, current, "invalid_input", "\n".join(faults))


def _complete(services: Services, job: Job, span: ClaimedSpan, count: SpanCount) -> None:
    done = {
        "job_id": job.id,
        "span_index": span.span_index,
        "fence": span.fence,
        "output_room": count.output_room,
        **asdict(count.usage),
    }
    with services.database.transaction() as transaction:
        current = lock_job(transaction, job.id)
        if current.step != Step.COUNT or transaction.execute(_COMPLETE, done) == 0:
            return
        spans_open = note_span_counted(transaction, job.id)
        if spans_open == 0:
            after = Step.SAMPLE if current.samples_rows else Step.ESTIMATE
            ring_plan(transaction, services, set_step(transaction, job.id, after))
