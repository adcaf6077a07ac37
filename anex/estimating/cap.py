"""The output cap and the thinking budget, from the token counts of a sample.

Order statistics. The cap shall be a value under which at least 95 % of the rows stay, said with 95 %
confidence, whatever the distribution: a distribution-free tolerance bound (Wilks, "Determination of sample
sizes for setting tolerance limits", Ann. Math. Statist. 12, 1941). Sort the n sampled values. The r-th
smallest is too low exactly when r or more of the sample lie below the population's 95 % point. Of N rows M =
ceil(0.95 N) must stay at or under the cap, so M - 1 rows lie below the M-th smallest; how many of them a
sample of n without replacement hits is hypergeometric (N, M - 1, n), and r is the smallest rank with P(X <= r
- 1) >= 0.95. As N grows this is Bin(n, 0.95); n = 200 gives r = 196. A census (n = N) gives r = M with
certainty, so small files need no rule of their own. All of it is exact integers.

The sample is stratified. With shares in proportion to the strata, X is a sum of independent draws with
unequal chances and the same mean, which is no wider than the binomial about its mean (Hoeffding, "On the
distribution of the number of successes in independent trials", Ann. Math. Statist. 27, 1956), so the
confidence holds up to the rounding of shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, comb, inf
from typing import TYPE_CHECKING

from anex.errors import EstimateImpossible

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTENT_PERCENT = 95
CONFIDENCE_PERCENT = 95
THINKING_CAP_STEP = 16


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """What one sampled row wrote, in tokens."""

    output_tokens: int
    """Thinking included."""
    thinking_tokens: int
    thinks: bool
    """Whether thinking was on for the row."""
    cut: bool
    """Stopped at the sampling limit: how long it would have become is not known, and counts as infinite."""

    @property
    def cut_while_thinking(self) -> bool:
        """Whether the limit was met before the answer began."""
        return self.cut and self.thinks and self.thinking_tokens >= self.output_tokens


@dataclass(frozen=True, slots=True)
class CapRules:
    """What bounds a cap: the model's, and what the job asks for (None: to be estimated)."""

    output_max_tokens: int
    notice_tokens: int
    """Reserved for the notice that ends thinking at its budget; 0 on a model that doesn't think."""
    explicit_cap: int | None = None
    explicit_budget: int | None = None


@dataclass(frozen=True, slots=True)
class CapEstimate:
    """The output cap of a row, its thinking budget (None where nothing thinks, 0 for no cap), the rank."""

    cap: int
    budget: int | None
    rank: int


def tolerance_rank(sampled: int, population: int) -> int | None:
    """Return the smallest rank r whose order statistic bounds 95 % of ``population`` rows at 95 % confidence.

    ``sampled`` of them (at least one) were drawn without replacement. None when even the largest value
    doesn't bound them: fewer than 59 rows of a large population.
    """
    needed = -(-CONTENT_PERCENT * population // 100)
    below, above = needed - 1, population - needed + 1
    outcomes = comb(population, sampled)
    hits = sampled
    tail = comb(below, hits)  # outcomes with X >= hits
    while 100 * tail <= (100 - CONFIDENCE_PERCENT) * outcomes:
        hits -= 1
        tail += comb(below, hits) * comb(above, sampled - hits)
    return hits + 1 if hits < sampled else None


def estimate_cap(
    answers: Sequence[SampledAnswer], *, rows: int, thinking_rows: int, rules: CapRules
) -> CapEstimate:
    """Return the cap and the budget for a job of ``rows`` rows, of which ``thinking_rows`` think.

    Where nothing thinks, the cap is the order statistic of the totals. Where rows think, the budget B is the
    order statistic of the thinking (of rows that think), and the cap leaves room for it, the notice and the
    answer: max(total, B + notice + answer), rounded up to 16. An explicit cap C lowers B to C - notice -
    answer; so does the model's own maximum. An explicit budget stands as it is; 0 is "no budget". Raises
    ``EstimateImpossible``.
    """
    rank = _rank_of_all(len(answers), rows)
    if sum(answer.cut for answer in answers) > len(answers) - rank:
        raise EstimateImpossible(_explain_cut(answers, rules))
    total = _order_statistic([inf if a.cut else a.output_tokens for a in answers], rank)
    if rules.explicit_cap is None and not any(answer.thinks for answer in answers):
        return CapEstimate(max(1, total), None, rank)
    if not any(answer.thinks for answer in answers):
        return CapEstimate(rules.explicit_cap or 1, None, rank)
    answer_tokens = _order_statistic(
        [inf if a.cut else a.output_tokens - a.thinking_tokens for a in answers], rank
    )
    room = (rules.explicit_cap or rules.output_max_tokens) - rules.notice_tokens - answer_tokens
    budget = rules.explicit_budget
    if budget is None:
        budget = min(max(1, _thinking_bound(answers, thinking_rows)), room)
    if budget < 1 and rules.explicit_budget is None:
        raise EstimateImpossible(_explain_no_room(rules))
    if rules.explicit_cap is not None:
        return CapEstimate(rules.explicit_cap, budget, rank)
    needed = max(total, budget + rules.notice_tokens + answer_tokens if budget else 0, 1)
    rounded = ceil(needed / THINKING_CAP_STEP) * THINKING_CAP_STEP
    return CapEstimate(min(rounded, rules.output_max_tokens), budget, rank)


def _rank_of_all(sampled: int, rows: int) -> int:
    rank = tolerance_rank(sampled, rows) if sampled else None
    if rank is None:
        raise EstimateImpossible(
            "We could not prepare a price for this job automatically. Set max_output_tokens."
        )
    return rank


def _thinking_bound(answers: Sequence[SampledAnswer], thinking_rows: int) -> int:
    """Return the order statistic of the thinking of rows that think.

    Where these are too few in the sample for any rank, it is the largest: a budget that is met ends a row's
    thinking gracefully, so the weaker confidence costs no answer. Rows of unknown length stand above it only
    as far as ``estimate_cap`` let them pass; should they reach the rank, the longest known thinking is taken.
    """
    known = sorted(a.thinking_tokens for a in answers if a.thinks and not a.cut)
    sampled = sum(a.thinks for a in answers)
    rank = tolerance_rank(sampled, max(sampled, thinking_rows)) or sampled
    return known[min(rank, len(known)) - 1] if known else 1


def _order_statistic(values: Sequence[float], rank: int) -> int:
    """Return the ``rank``-th smallest value (from 1); it is finite, for cut rows were counted before."""
    return int(sorted(values)[rank - 1])


def _explain_cut(answers: Sequence[SampledAnswer], rules: CapRules) -> str:
    cut = [answer for answer in answers if answer.cut]
    if 2 * len(cut) > len(answers):
        reason = (
            f"The typical answer hits the model's maximum output length of {rules.output_max_tokens:,} tokens"
            " and would be cut off."
        )
    elif 2 * sum(answer.cut_while_thinking for answer in cut) > len(cut):
        reason = "The model's reasoning runs too long on these rows."
    else:
        most = rules.output_max_tokens
        reason = f"The rows need more output tokens than the {most:,} that the model can generate."
    return f"{reason} {_fix(rules, thinks=any(answer.thinks for answer in answers))}"


def _explain_no_room(rules: CapRules) -> str:
    limit = "max_output_tokens" if rules.explicit_cap is not None else "the model's maximum output length"
    return (
        f"The answers alone would not fit under {limit} once the thinking budget and its cut-off notice"
        f" ({rules.notice_tokens} tokens) are reserved. {_fix(rules, thinks=True)}"
    )


def _fix(rules: CapRules, *, thinks: bool) -> str:
    verb = "Set" if rules.explicit_cap is None else "Raise"
    if not thinks:
        return f"{verb} max_output_tokens."
    return f"{verb} max_output_tokens, set reasoning_budget (0 for no cap), or disable reasoning."
