"""Price a job: cap and budget from the sample, the upper bound of its cost, its chunks, its frozen terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from anex.errors import BalanceTooLow, EstimateImpossible
from anex.estimating.bound import StratumOutput, estimate_output_tokens, mean_output_tokens
from anex.estimating.cap import CapEstimate, CapRules, SampledAnswer, estimate_cap
from anex.estimating.chunks import Rates, SpanCuts, cut_chunks
from anex.jobs.approve import start_run
from anex.jobs.chunks import insert_chunks
from anex.jobs.end import cancel_where_deletion_waits
from anex.jobs.model import Step
from anex.jobs.steps import fail_held_step, hold_step, lock_held_step
from anex.jobs.store import move_job
from anex.jobs.transitions import Status
from anex.ledger.pricing import PriceTerms, estimate_cents
from anex.orgs.organizations import get_organization
from anex.units.speed import find_pace, find_start_seconds
from anex.usage import Usage

if TYPE_CHECKING:
    from anex.catalog import ModelSpec
    from anex.db import Transaction
    from anex.estimating.chunks import ChunkPlan
    from anex.jobs.model import Job
    from anex.services import Services

_SPANS = """
SELECT first_row, row_count AS rows, end_byte, cut_bytes, cut_lines, input_tokens
FROM spans WHERE job_id = %(job_id)s ORDER BY span_index
"""

_SUMS = """
SELECT sum(output_room)::bigint AS output_room, sum(input_tokens)::bigint AS input_tokens,
       sum(media_tokens)::bigint AS media_tokens, sum(images)::bigint AS images, sum(clips)::bigint AS clips,
       sum(clip_milliseconds)::bigint AS clip_milliseconds
FROM spans WHERE job_id = %(job_id)s
"""

_SAMPLE = "SELECT drawn, lengths FROM samples WHERE job_id = %(job_id)s"


@dataclass(frozen=True, slots=True)
class Answers:
    """What the rows of a job are expected to write: nothing where they are embedded or decided upon."""

    caps: CapEstimate
    tokens: int
    """Of all rows together, at most."""
    tokens_per_row: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a job is expected to take, and at most costs."""

    cap: int
    budget: int | None
    usage: Usage
    output_tokens_per_row: float
    cost_cents: int
    processing_seconds: int
    chunks: list[ChunkPlan]


class Speed(NamedTuple):
    """How fast a model is served: seconds until an engine is ready, and seconds of work by the catalog's figures in one second."""

    start_seconds: float
    pace: float


def estimate_job(services: Services, job_id: str) -> None:
    """Run the ``estimate`` step: on to ``cost_ready``, or to ``failed`` with the reason and the fix.

    Where the organization approves by itself the job goes on to ``in_progress`` in the same transaction, if the balance and the
    ceiling allow.
    """
    with hold_step(services, job_id, Step.ESTIMATE) as job:
        if job is None:
            return
        try:
            estimate = _estimate(services, job)
        except EstimateImpossible as impossible:
            fail_held_step(services, job, "invalid_input", impossible.message)
            return
        with services.database.transaction() as transaction:
            current = lock_held_step(transaction, job)
            if cancel_where_deletion_waits(transaction, services, current):
                return
            insert_chunks(transaction, current, estimate.chunks)
            priced = _freeze(transaction, services, current, estimate)
            _approve_automatically(transaction, services, priced)


def _estimate(services: Services, job: Job) -> Estimate:
    spec = services.catalog.get(job.model)
    with services.database.transaction() as transaction:
        spans = transaction.fetch_all(SpanCuts, _SPANS, {"job_id": job.id})
        sums = {
            name: int(value)
            for name, value in (transaction.fetch_dict(_SUMS, {"job_id": job.id}) or {}).items()
        }
        sample = transaction.fetch_dict(_SAMPLE, {"job_id": job.id})
    output_room = sums.pop("output_room")
    if spec.kind != "chat":
        answers = Answers(CapEstimate(0, None, 0), 0, 0)
    elif sample is None:
        cap = _explicit_cap(job)
        answers = Answers(CapEstimate(cap, _explicit_budget(job, spec), 0), output_room, cap)
    else:
        answers = _judge_sample(job, spec, sample, output_room)
    return _price(
        job, spec, spans, Usage(**sums, output_tokens=answers.tokens), answers, _measure_speed(services, job)
    )


def _measure_speed(services: Services, job: Job) -> Speed:
    """Return what was measured of the model here, the catalog's figures where nothing was."""
    spec, reader = services.catalog.get(job.model), services.database.reader()
    start = find_start_seconds(
        reader, job.region, spec.id, spec.revision, services.timings.worker_alive_seconds
    )
    pace = find_pace(reader, job.region, spec.id, spec.revision)
    return Speed(spec.throughput.startup_seconds if start is None else start, pace or 1.0)


def _judge_sample(job: Job, spec: ModelSpec, sample: dict[str, Any], output_room: int) -> Answers:
    caps = estimate_cap(
        [_answer(entry) for entry in sample["lengths"]],
        rows=job.total_rows or 0,
        thinking_rows=sample["drawn"]["thinking_rows"],
        rules=_cap_rules(job, spec),
    )
    strata = _strata(sample)
    tokens = estimate_output_tokens(strata, caps.cap)
    if job.asked_max_tokens is not None:
        tokens = min(tokens, output_room)
    return Answers(caps, tokens, mean_output_tokens(strata, caps.cap))


def _price(
    job: Job, spec: ModelSpec, spans: list[SpanCuts], usage: Usage, answers: Answers, measured: Speed
) -> Estimate:
    speed = spec.throughput
    width = 0 if spec.dimensions is None else job.dimensions or spec.dimensions.max_width
    rates = Rates(
        speed.prefill_tokens_per_second, speed.decode_tokens_per_second, answers.tokens_per_row, width
    )
    chunks = cut_chunks(spans, rates)
    run_seconds = sum(chunk.expected_seconds for chunk in chunks)
    return Estimate(
        cap=answers.caps.cap,
        budget=answers.caps.budget,
        usage=usage,
        output_tokens_per_row=answers.tokens_per_row,
        cost_cents=estimate_cents(PriceTerms.of(spec), usage),
        processing_seconds=round(measured.start_seconds + run_seconds / measured.pace),
        chunks=chunks,
    )


def _freeze(transaction: Transaction, services: Services, job: Job, estimate: Estimate) -> Job:
    """Move the job to ``cost_ready`` with everything that is approved with it."""
    spec = services.catalog.get(job.model)
    row = transaction.fetch_dict(
        "SELECT anex_now() AS now, anex_now() + %(window)s * interval '1 second' AS until",
        {"window": services.timings.approval_window_seconds},
    )
    times = row or {}
    frozen = {
        "est_input_tok": estimate.usage.input_tokens,
        "est_output_tok": estimate.usage.output_tokens,
        "est_cost_cents": estimate.cost_cents,
        "est_processing_seconds": estimate.processing_seconds,
        "max_output_tokens": estimate.cap,
        "reasoning_budget": estimate.budget,
        "terms": {
            "prices": PriceTerms.of(spec).to_json(),
            "context_tokens": spec.context_tokens,
            "output_tokens_per_row": estimate.output_tokens_per_row,
        },
        "model_revision": spec.revision,
        "catalog_hash": services.catalog.hash,
        "cost_ready_at": times["now"],
        "approval_expires_at": times["until"],
        "step": None,
        "step_lease_until": None,
    }
    return move_job(transaction, services, job, Status.COST_READY, frozen)


def _approve_automatically(transaction: Transaction, services: Services, job: Job) -> None:
    organization = get_organization(transaction, job.org_id)
    ceiling = organization.auto_approve_ceiling_cents
    if not organization.auto_approve or (ceiling is not None and (job.est_cost_cents or 0) > ceiling):
        return
    try:
        with transaction.savepoint():
            start_run(transaction, services, job, key_id=None)
    except BalanceTooLow:
        # The job stays cost_ready, as a person would find it who was refused.
        return


def _explicit_cap(job: Job) -> int:
    if job.asked_max_tokens is None:
        raise EstimateImpossible(
            "We could not prepare a price for this job automatically. Set max_output_tokens."
        )
    return job.asked_max_tokens


def _explicit_budget(job: Job, spec: ModelSpec) -> int | None:
    """Return the budget of a job that was not sampled: its own on a model that thinks, none where thinking is off."""
    return job.asked_budget if spec.reasoning is not None and job.reasoning is not False else None


def _cap_rules(job: Job, spec: ModelSpec) -> CapRules:
    return CapRules(
        output_max_tokens=spec.output_max_tokens,
        notice_tokens=spec.reasoning.notice_tokens if spec.reasoning is not None else 0,
        explicit_cap=job.asked_max_tokens,
        explicit_budget=job.asked_budget if spec.reasoning is not None else None,
    )


def _answer(entry: dict[str, Any]) -> SampledAnswer:
    return SampledAnswer(
        output_tokens=entry["output"],
        thinking_tokens=entry["thinking"],
        thinks=entry["thinks"],
        cut=entry["cut"],
    )


def _strata(sample: dict[str, Any]) -> list[StratumOutput]:
    by_stratum: dict[int, list[int]] = {}
    for entry in sample["lengths"]:
        by_stratum.setdefault(entry["stratum"], []).append(entry["output"])
    rows = sample["drawn"]["strata_rows"]
    return [StratumOutput(rows[place], tuple(tokens)) for place, tokens in sorted(by_stratum.items())]
