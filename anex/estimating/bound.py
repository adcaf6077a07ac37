"""An upper bound of a job's output tokens at 95 % confidence: the price that is held.

Empirical Bernstein bound (Maurer, Pontil, "Empirical Bernstein bounds and sample variance penalization", COLT
2009, theorem 4; their theorem 11 states it for independent variables that are not identically distributed).
For n independent values in [0, b] with mean m and sample variance V, the average of their expectations is,
with probability 1 - d, at most

    m + sqrt(2 V ln(2/d) / n) + 7 b ln(2/d) / (3 (n - 1)).

Strata. Stratum h has N_h of N rows, and n_h of n sampled ones. The values y = x * (N_h / N) * (n / n_h) have
the average expectation sum_h (n_h / n) (N_h n / (N n_h)) mu_h = sum_h N_h mu_h / N: the mean over all rows.
They are independent between strata and lie in [0, cap * max_h N_h n / (N n_h)], so one bound serves for all
strata together, and shares that are not quite in proportion cost a little range and no confidence. A union of
one bound per stratum would be useless with some 25 rows each. Drawing without replacement is no worse than
drawing with it in convex order (Hoeffding, "Probability inequalities for sums of bounded random variables",
J. Amer. Statist. Assoc. 58, 1963, theorem 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, fsum, log, sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

RISK = 0.05


@dataclass(frozen=True, slots=True)
class StratumOutput:
    """A stratum's rows, and the output tokens of those sampled (at least one); a cut row counts the cap."""

    rows: int
    sampled_tokens: tuple[int, ...]


def mean_output_tokens(strata: Sequence[StratumOutput], cap: int) -> float:
    """Return the estimated mean of min(output tokens, ``cap``) over all rows."""
    rows = sum(stratum.rows for stratum in strata)
    return fsum(_weighted_values(strata, cap)) / sum(len(s.sampled_tokens) for s in strata) if rows else 0.0


def estimate_output_tokens(strata: Sequence[StratumOutput], cap: int) -> int:
    """Return est_output_tok: rows * ``cap`` or the total's bound, if less; a census is its own sum."""
    rows = sum(stratum.rows for stratum in strata)
    if all(stratum.rows == len(stratum.sampled_tokens) for stratum in strata):
        return sum(min(tokens, cap) for stratum in strata for tokens in stratum.sampled_tokens)
    return min(rows * cap, ceil(rows * _bound_mean(strata, cap)))


def room_for_output(cap: int, input_tokens: int, context_tokens: int) -> int:
    """Return how many tokens a row may write: ``cap``, or what its input leaves of the context."""
    return max(0, min(cap, context_tokens - input_tokens))


def _bound_mean(strata: Sequence[StratumOutput], cap: int) -> float:
    values = _weighted_values(strata, cap)
    count = len(values)
    if count < 2:  # noqa: PLR2004 - a variance takes two
        return float(cap)
    mean = fsum(values) / count
    variance = fsum((value - mean) ** 2 for value in values) / (count - 1)
    risk = log(2 / RISK)
    reach = cap * max(_weights(strata))
    return mean + sqrt(2 * variance * risk / count) + 7 * reach * risk / (3 * (count - 1))


def _weights(strata: Sequence[StratumOutput]) -> list[float]:
    """Return N_h n / (N n_h) of each stratum."""
    rows = sum(stratum.rows for stratum in strata)
    sampled = sum(len(stratum.sampled_tokens) for stratum in strata)
    return [stratum.rows * sampled / (rows * len(stratum.sampled_tokens)) for stratum in strata]


def _weighted_values(strata: Sequence[StratumOutput], cap: int) -> list[float]:
    return [
        min(tokens, cap) * weight
        for stratum, weight in zip(strata, _weights(strata), strict=True)
        for tokens in stratum.sampled_tokens
    ]
