"""Run a job's sample on its model, and keep how long the answers were. Their text is dropped where it arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from psycopg.types.json import Jsonb

from anex.errors import ObjectChanged, ObjectMissing
from anex.jobs.model import Step
from anex.jobs.row_settings import row_settings_of
from anex.jobs.steps import fail_held_step, hold_step, lock_held_step, pass_on
from anex.jobs.validate import INPUT_CHANGED
from anex.object_keys import input_key
from anex.rows.decode import iterate_rows
from anex.rows.requests import PRIORITY_SAMPLE, ChatTerms, chat_request
from anex.rows.settings import row_thinks, template_kwargs

if TYPE_CHECKING:
    from concurrent.futures import Future

    from anex.jobs.model import Job
    from anex.rows.chat import ChatRow
    from anex.services import Engine, EngineAnswer, Services

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
    drawn = found["drawn"]["rows"] if found is not None else []
    sent: list[tuple[int, bool, Future[EngineAnswer]]] = []
    try:
        for row_number, start_byte, end_byte, stratum in drawn:
            row = _read_row(services, job, row_number, (start_byte, end_byte))
            thinks, future = _send_row(services, engine, job, row)
            sent.append((stratum, thinks, future))
        return [_measure(stratum, future.result(), thinks=thinks) for stratum, thinks, future in sent]
    finally:
        engine.abort([future for _, _, future in sent if not future.done()])


def _read_row(services: Services, job: Job, row_number: int, place: tuple[int, int]) -> ChatRow:
    key = input_key(job.org_id, job.input_id)
    line = services.objects.read_range(key, *place, job.input_etag)
    spec = services.catalog.get(job.model)
    return next(iter(iterate_rows([line], spec, start_byte=place[0], first_line=1, first_row=row_number)))


def _send_row(
    services: Services, engine: Engine, job: Job, row: ChatRow
) -> tuple[bool, Future[EngineAnswer]]:
    """Ask for a row with no cap but the model's own: how long it would write is the question."""
    spec, settings = services.catalog.get(job.model), row_settings_of(job)
    kwargs = template_kwargs(spec, settings, row.chat_template_kwargs)
    input_tokens = services.counters.for_model(spec).count_chat(row.plain_messages(), kwargs)
    terms = ChatTerms(spec, settings, spec.output_max_tokens, job.asked_budget, PRIORITY_SAMPLE)
    request = chat_request(terms, row, input_tokens)
    return row_thinks(spec, settings, row.chat_template_kwargs), engine.submit(request)


def _measure(stratum: int, answer: EngineAnswer, *, thinks: bool) -> dict[str, Any]:
    """Return the lengths of an answer; a row that the engine refuses writes nothing when it is run either."""
    if answer.status != _OK:
        return {"stratum": stratum, "output": 0, "thinking": 0, "thinks": thinks, "cut": False}
    body = _decode(answer.body)
    usage = body["usage"]
    details = usage.get("completion_tokens_details") or {}
    return {
        "stratum": stratum,
        "output": usage["completion_tokens"],
        "thinking": details.get("reasoning_tokens") or 0,
        "thinks": thinks,
        "cut": body["choices"][0]["finish_reason"] == "length",
    }
