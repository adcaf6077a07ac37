"""Run a job's sample on its model, and keep how long the answers were. Their text is dropped where it arrives."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from psycopg.types.json import Jsonb

from anex.errors import ObjectChanged, ObjectMissing
from anex.jobs.ahead import prepare_ahead
from anex.jobs.model import Step
from anex.jobs.retries import RETRIES_MAX, is_transient, pause_seconds
from anex.jobs.row_requests import make_chat_request
from anex.jobs.row_settings import input_terms_of, row_settings_of, video_fps_of
from anex.jobs.steps import fail_held_step, hold_step, lock_held_step, pass_on
from anex.jobs.validate import INPUT_CHANGED
from anex.media.fetch import MediaFetcher, MediaUnavailable
from anex.object_keys import input_key
from anex.rows.chat import ChatFormat
from anex.rows.decode import iterate_rows
from anex.rows.media_requests import TooManyItems, has_hosted
from anex.rows.requests import PRIORITY_SAMPLE, ChatTerms
from anex.rows.settings import row_thinks

if TYPE_CHECKING:
    from concurrent.futures import Future

    from anex.jobs.model import Job
    from anex.rows.chat import ChatRow
    from anex.services import Engine, EngineAnswer, EngineRequest, Services

_KEEP_LENGTHS = """
UPDATE samples SET lengths = %(lengths)s, sampled_at = anex_now() WHERE job_id = %(job_id)s
"""
_OK = 200

_decode = msgspec.json.Decoder().decode


def sample_job(services: Services, engine: Engine, job_id: str) -> None:
    """Run the ``sample`` step: on to ``estimate``, which is the next link of the chain that this one was rung by.

    Raises ``EngineGone`` when the engine dies meanwhile: the step is given back and rung again.
    """
    with hold_step(services, job_id, Step.SAMPLE) as job:
        if job is None:
            return
        try:
            lengths = _run_sample(services, engine, job)
        except (ObjectChanged, ObjectMissing):
            fail_held_step(services, job, "invalid_input", INPUT_CHANGED)
            return
        with services.database.transaction() as transaction:
            lock_held_step(transaction, job)
            transaction.execute(_KEEP_LENGTHS, {"job_id": job.id, "lengths": Jsonb(lengths)})
            pass_on(transaction, services, job, Step.ESTIMATE)


def _run_sample(services: Services, engine: Engine, job: Job) -> list[dict[str, Any]]:
    with services.database.transaction() as transaction:
        found = transaction.fetch_dict(
            "SELECT drawn FROM samples WHERE job_id = %(job_id)s", {"job_id": job.id}
        )
    drawn = [_Drawn(*entry) for entry in (found["drawn"]["rows"] if found is not None else [])]
    prepare = _Preparation(services, job)
    sent: list[tuple[_Prepared, Future[EngineAnswer] | None]] = []
    try:
        rows = ((each.stratum, prepare.read_row(each)) for each in drawn)
        for prepared in prepare_ahead(rows, prepare.prepare, lambda pair: has_hosted(pair[1].list_media())):
            if prepared is not None:
                request = prepared.request
                sent.append((prepared, None if request is None else engine.submit(request)))
        for tries in range(1, RETRIES_MAX + 1):
            if not any(_has_failed(future) for _, future in sent):
                break
            time.sleep(pause_seconds(services.timings.row_retry_seconds, tries))
            sent = [(prepared, _ask_again(engine, prepared, future)) for prepared, future in sent]
        return [_measure(prepared, None if future is None else future.result()) for prepared, future in sent]
    finally:
        engine.abort([future for _, future in sent if future is not None and not future.done()])


def _has_failed(future: Future[EngineAnswer] | None) -> bool:
    """Whether an answer, which is waited for, says nothing of its row."""
    return future is not None and is_transient(future.result().status)


def _ask_again(
    engine: Engine, prepared: _Prepared, future: Future[EngineAnswer] | None
) -> Future[EngineAnswer] | None:
    """Ask for a row again where the engine failed it, as the run will; all such rows side by side."""
    return engine.submit(prepared.request) if prepared.request is not None and _has_failed(future) else future


class _Drawn(NamedTuple):
    """A row that was drawn: the line's bytes up to ``end_byte``, and its stratum's place."""

    row_number: int
    start_byte: int
    end_byte: int
    stratum: int


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A sampled row; ``request`` is None where no engine is asked: its media can't be had."""

    stratum: int
    thinks: bool
    request: EngineRequest | None


class _Preparation:
    """Makes the requests of a job's sample, with no cap but the model's own: how long a row would write is the question."""

    def __init__(self, services: Services, job: Job) -> None:
        spec, settings = services.catalog.get(job.model), row_settings_of(job)
        self._services, self._job, self._spec, self._settings = services, job, spec, settings
        self._inputs = input_terms_of(services, job)
        self._fetcher = MediaFetcher(services.outbound)
        self._terms = ChatTerms(
            spec, settings, spec.output_max_tokens, job.asked_budget, PRIORITY_SAMPLE, video_fps_of(job)
        )

    def read_row(self, drawn: _Drawn) -> ChatRow:
        """Read a row's line."""
        key = input_key(self._job.org_id, self._job.input_id)
        line = self._services.objects.read_range(key, drawn.start_byte, drawn.end_byte, self._job.input_etag)
        reader = ChatFormat(self._spec)
        rows = iterate_rows(
            [line], reader, start_byte=drawn.start_byte, first_line=1, first_row=drawn.row_number
        )
        return next(iter(rows))

    def prepare(self, drawn: tuple[int, ChatRow]) -> _Prepared:
        """Make a row's request, its media fetched."""
        stratum, row = drawn
        thinks = row_thinks(self._spec, self._settings, row.chat_template_kwargs)
        try:
            made = make_chat_request(self._terms, self._inputs, row, self._fetcher)
        except (MediaUnavailable, TooManyItems):
            return _Prepared(stratum, thinks, None)
        return _Prepared(stratum, thinks, made.request)


def _measure(prepared: _Prepared, answer: EngineAnswer | None) -> dict[str, Any]:
    """Return the lengths of an answer; a row that is refused writes nothing when it is run either."""
    row = {"stratum": prepared.stratum, "thinks": prepared.thinks}
    if answer is None or answer.status != _OK:
        return {**row, "output": 0, "thinking": 0, "cut": False}
    body = _decode(answer.body)
    usage = body["usage"]
    details = usage.get("completion_tokens_details") or {}
    return {
        **row,
        "output": usage["completion_tokens"],
        "thinking": details.get("reasoning_tokens") or 0,
        "cut": body["choices"][0]["finish_reason"] == "length",
    }
