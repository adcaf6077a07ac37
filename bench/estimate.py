"""Does the estimate keep its promises, whatever the lengths of the answers? Eight laws of lengths, thousands of jobs of each.

Each job is a file of its own: its rows' lengths of input and output are drawn (seeded), its sample is drawn by the code that reads
files, and cap, bound and price are made by the code that makes estimates. What the rows would really have written is known here:

- ``coverage``: share of jobs in which at least 95 % of the rows stay at or under the cap. A job that is refused an estimate is
  promised nothing and errs in nothing. ``max_dev_continuous`` is how far the coverage of a law without ties lies from what the
  mathematics says for it (hypergeometric); 3,000 jobs have a standard error of 0.004.
- ``exceed``: share of jobs whose real output is over ``est_output_tok`` (5 % at most). Such a job is charged its estimate.
- ``hold_over_charge``: the price that is held over the price of what was written, before the rounding to cents and the minimum.
- ``refused``: share of jobs that get no estimate, because too many sampled rows were cut at the model's limit.

``JOBS`` turns the number of jobs down.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache, partial
from math import comb
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from anex.errors import EstimateImpossible
from anex.estimating.bound import StratumOutput, estimate_output_tokens
from anex.estimating.cap import CapEstimate, CapRules, SampledAnswer, estimate_cap, tolerance_rank
from anex.estimating.sample import SAMPLE_ROWS
from anex.ledger.pricing import PriceTerms
from anex.rows.reservoir import Reservoir, Sample
from anex.usage import Usage
from bench.support.rounds import print_figures, say
from config.catalog import load_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Lengths = NDArray[np.int64]
    Law = Callable[[np.random.Generator, int], NDArray[np.float64]]

FULL_JOBS = 3000
JOBS = int(os.environ.get("JOBS", str(FULL_JOBS)))
SIZES = (150, 300, 1000, 100_000)
SEED = 20261201
PROCESSES = 2
JOBS_AT_ONCE = 250
ENDLESS = 1e12
"""Tokens of an answer that never ends by itself."""
SPEC = load_catalog(Path(__file__).parent.parent / "config" / "models.toml").get("qwen3-14b")
LIMIT = SPEC.output_max_tokens
"""Where a sampled row is cut."""
TERMS = PriceTerms.of(SPEC)
BYTES_PER_TOKEN = 4


def mix(share: float, usual: Law, other: Law) -> Law:
    """Return the law of rows of which ``share`` follow one law and the rest another."""
    return lambda rng, rows: np.where(rng.random(rows) < share, usual(rng, rows), other(rng, rows))


def lognormal(mean: float, sigma: float) -> Law:
    """Return the law of exp(normal)."""
    return lambda rng, rows: rng.lognormal(mean, sigma, rows)


def pareto(least: float, shape: float) -> Law:
    """Return the law of Pareto: no mean below shape 1, no variance below 2."""
    return lambda rng, rows: least * (1 + rng.pareto(shape, rows))


# Long enough that few rows share a length: then nothing but the mathematics decides how often a cap covers.
LAWS: dict[str, Law] = {
    "lognormal 0.8": lognormal(6.5, 0.8),
    "lognormal 1.5": lognormal(6.0, 1.5),
    "bimodal 85/15": mix(0.85, lognormal(4.5, 0.4), lognormal(7.5, 0.3)),
    "rare mode 3 %": mix(0.97, lognormal(6.0, 0.4), lognormal(9.0, 0.2)),
    "Pareto 1.2": pareto(150, 1.2),
    "Pareto 2.0": pareto(400, 2.0),
    "labels": lambda rng, rows: rng.choice([1.0, 2.0, 3.0, 5.0], rows, p=[0.55, 0.3, 0.1, 0.05]),
    "endless 2 %": mix(0.98, lognormal(6.5, 0.8), lambda _, rows: np.full(rows, ENDLESS)),
}
CONTINUOUS = tuple(law for law in LAWS if law not in ("labels", "endless 2 %"))
"""Laws of which few rows are cut or as long as another."""


@dataclass(frozen=True, slots=True)
class Job:
    """A file: what each row reads, thinks and writes, in tokens as the engine would; nothing is cut yet."""

    input_bytes: Lengths
    output: NDArray[np.float64]
    thinking: NDArray[np.float64] | None = None
    """Of rows that think; NaN of others. None where none does."""


@dataclass(slots=True)
class Tally:
    """What became of the jobs of one law and size."""

    jobs: int = 0
    refused: int = 0
    covered: int = 0
    """Refused ones included."""
    exceeded: int = 0
    ratios: list[float] = field(default_factory=list)
    """Price held over price of what was written."""

    def add(self, other: Tally) -> None:
        """Take another's jobs too."""
        self.jobs += other.jobs
        self.refused += other.refused
        self.covered += other.covered
        self.exceeded += other.exceeded
        self.ratios += other.ratios


def main() -> None:
    """Run the benchmark."""
    tallies = run_laws()
    for (law, rows), tally in tallies.items():
        describe(f"{law}, {rows:,} rows", tally)
    special = run_special()
    coverage = {cell: tally.covered / tally.jobs for cell, tally in tallies.items()}
    deviations = [abs(coverage[law, rows] - nominal_coverage(rows)) for law in CONTINUOUS for rows in SIZES]
    print_figures(
        min_coverage=round(min(coverage.values()), 4),
        max_dev_continuous=round(max(deviations), 4),
        max_exceed=round(max(tally.exceeded / tally.jobs for tally in tallies.values()), 4),
        median_hold_over_charge=by_law(tallies, lambda tally: median(tally.ratios) if tally.ratios else None),
        refused_share=by_law(tallies, lambda tally: tally.refused / tally.jobs),
        special=special,
        jobs=JOBS,
        input=hashlib.sha256(json.dumps([SEED, list(LAWS), SIZES]).encode()).hexdigest()[:16],
        settings={"jobs": JOBS, "seed": SEED, "sample": SAMPLE_ROWS, "limit": LIMIT},
        quick=JOBS < FULL_JOBS,
    )


def run_laws() -> dict[tuple[str, int], Tally]:
    """Run all jobs of all laws and sizes, on two processes."""
    work = [(law, rows, first) for law in LAWS for rows in SIZES for first in range(0, JOBS, JOBS_AT_ONCE)]
    tallies: dict[tuple[str, int], Tally] = defaultdict(Tally)
    with get_context("fork").Pool(PROCESSES) as pool:
        for (law, rows, _), tally in zip(work, pool.imap(run_some, work), strict=True):
            tallies[law, rows].add(tally)
    return dict(tallies)


def run_some(work: tuple[str, int, int]) -> Tally:
    """Run some jobs of one law and size."""
    law, rows, first = work
    return run_jobs(make_job(law, rows, number) for number in range(first, min(first + JOBS_AT_ONCE, JOBS)))


def make_job(law: str, rows: int, number: int) -> Job:
    """Draw a file. What is read and what is written have nothing to do with each other here."""
    rng = np.random.default_rng((SEED, list(LAWS).index(law), rows, number))
    return Job(draw_input_bytes(rng, rows), LAWS[law](rng, rows))


def draw_input_bytes(rng: np.random.Generator, rows: int) -> Lengths:
    """Draw the lengths of lines."""
    return 120 + rng.lognormal(6, 1, rows).astype(np.int64)


def run_jobs(jobs: Iterable[Job]) -> Tally:
    """Estimate each job, let it run, compare."""
    tally = Tally()
    for number, job in enumerate(jobs):
        run_job(job, seed=number, tally=tally)
    return tally


def run_job(job: Job, seed: int, tally: Tally) -> None:
    """Estimate one job, let it run, compare."""
    rows = len(job.output)
    sample = draw_sample(job, seed)
    answers = [sampled_answer(job, row.row_number - 1) for row in sample.rows]
    tally.jobs += 1
    try:
        caps = estimate_cap(
            answers, rows=rows, thinking_rows=count_thinking(job), rules=CapRules(LIMIT, notice(job))
        )
    except EstimateImpossible:
        tally.refused += 1
        tally.covered += 1
        return
    wanted = wanted_tokens(job, caps)
    written = np.minimum(wanted, caps.cap)
    estimated = estimate_output_tokens(list_strata(sample, answers), caps.cap)
    total = int(written.sum())
    tally.covered += 100 * int((wanted <= caps.cap).sum()) >= 95 * rows
    tally.exceeded += total > estimated
    tally.ratios.append(price(job, estimated) / price(job, total))


def draw_sample(job: Job, seed: int) -> Sample:
    """Draw the sample as the pass over a file does; rows that think are a class of their own."""
    ends = np.cumsum(job.input_bytes + 1) - 1
    reservoir = Reservoir(SEED + seed, SAMPLE_ROWS)
    thinks = np.full(len(ends), 0) if job.thinking is None else ~np.isnan(job.thinking)
    reservoir.add_rows(1, ends - job.input_bytes, ends, thinks.astype(np.int64))
    return reservoir.draw(SAMPLE_ROWS)


def sampled_answer(job: Job, place: int) -> SampledAnswer:
    """Return what a sample shows of a row: it is cut at the model's limit."""
    thinking = 0.0 if job.thinking is None or np.isnan(job.thinking[place]) else job.thinking[place]
    thinks = job.thinking is not None and not np.isnan(job.thinking[place])
    total = np.ceil(job.output[place]) + np.ceil(thinking)
    shown = int(min(total, LIMIT))
    return SampledAnswer(shown, int(min(np.ceil(thinking), shown)), thinks=thinks, cut=bool(total > LIMIT))


def wanted_tokens(job: Job, caps: CapEstimate) -> NDArray[np.float64]:
    """Return what each row would write under the budget, were there no cap."""
    said = np.ceil(job.output)
    if job.thinking is None or caps.budget is None:
        return said
    thought = np.nan_to_num(np.ceil(job.thinking))
    ended = np.minimum(thought, caps.budget) + np.where(thought > caps.budget, notice(job), 0)
    return np.asarray(said + ended)


def list_strata(sample: Sample, answers: list[SampledAnswer]) -> list[StratumOutput]:
    """Return what the bound is made of."""
    tokens: dict[int, list[int]] = defaultdict(list)
    for row, answer in zip(sample.rows, answers, strict=True):
        tokens[row.stratum].append(answer.output_tokens)
    return [StratumOutput(sample.strata[place].rows, tuple(each)) for place, each in sorted(tokens.items())]


def price(job: Job, output_tokens: int) -> int:
    """Return the undivided price of the job's input and so much output."""
    input_tokens = int(job.input_bytes.sum()) // BYTES_PER_TOKEN
    return TERMS.price(Usage(input_tokens=input_tokens, output_tokens=output_tokens))


def count_thinking(job: Job) -> int:
    """Return how many rows think."""
    return 0 if job.thinking is None else int((~np.isnan(job.thinking)).sum())


def notice(job: Job) -> int:
    """Return what is reserved for the notice that ends thinking."""
    return 0 if job.thinking is None else 64


@cache
def nominal_coverage(rows: int) -> float:
    """Return the chance that the order statistic bounds 95 % of the rows, where no two are equal (``tolerance_rank``)."""
    sampled = min(rows, SAMPLE_ROWS)
    rank = tolerance_rank(sampled, rows)
    assert rank is not None
    below = -(-95 * rows // 100) - 1
    too_low = sum(comb(below, hits) * comb(rows - below, sampled - hits) for hits in range(rank, sampled + 1))
    return 1 - too_low / comb(rows, sampled)


def run_special() -> dict[str, dict[str, float | None]]:
    """Run the files that are like no law."""
    jobs = max(1, JOBS // 10)
    makers: dict[str, Callable[[int], Job]] = {
        "sorted": partial(make_sorted, 3000),
        "census": partial(make_job, "lognormal 1.5", SAMPLE_ROWS),
        "all equal": lambda number: make_flat(3000, 77.0, number),
        "all cut": lambda number: make_flat(3000, ENDLESS, number),
        "mixed thinking": partial(make_mixed, 3000),
    }
    found = {}
    for name, make in makers.items():
        tally = run_jobs(make(number) for number in range(jobs))
        describe(name, tally)
        found[name] = {
            "coverage": tally.covered / tally.jobs,
            "exceed": tally.exceeded / tally.jobs,
            "refused": tally.refused / tally.jobs,
            "hold_over_charge": median(tally.ratios) if tally.ratios else None,
        }
    return found


def make_sorted(rows: int, number: int) -> Job:
    """Make a file whose rows come from short to long, and write the longer the more they read."""
    rng = np.random.default_rng((SEED, 1000, rows, number))
    read = np.sort(draw_input_bytes(rng, rows))
    return Job(read, read / 4 * rng.lognormal(0, 0.3, rows))


def make_flat(rows: int, tokens: float, number: int) -> Job:
    """Make a file whose rows all write the same."""
    rng = np.random.default_rng((SEED, 1001, rows, number))
    return Job(draw_input_bytes(rng, rows), np.full(rows, tokens))


def make_mixed(rows: int, number: int) -> Job:
    """Make a file in which every third row thinks."""
    rng = np.random.default_rng((SEED, 1002, rows, number))
    thinking = np.where(np.arange(rows) % 3 == 0, rng.lognormal(6, 0.8, rows), np.nan)
    return Job(draw_input_bytes(rng, rows), rng.lognormal(4.5, 0.6, rows), thinking)


def by_law(
    tallies: dict[tuple[str, int], Tally], figure: Callable[[Tally], float | None]
) -> dict[str, dict[str, float | None]]:
    """Return a figure by law and size."""
    found: dict[str, dict[str, Any]] = {law: {} for law in LAWS}
    for (law, rows), tally in tallies.items():
        value = figure(tally)
        found[law][str(rows)] = None if value is None else round(value, 4)
    return found


def describe(name: str, tally: Tally) -> None:
    """Say in words what became of some jobs."""
    ratio = f"{median(tally.ratios):.2f}" if tally.ratios else "-"
    say(
        f"{name}: {tally.covered / tally.jobs:.2%} covered, {tally.exceeded / tally.jobs:.2%} over the estimate,"
        f" {tally.refused / tally.jobs:.2%} refused, hold over charge {ratio}"
    )


if __name__ == "__main__":
    main()
