"""Ranks, caps and budgets."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest

from anex.errors import EstimateImpossible
from anex.estimating.cap import CapEstimate, CapRules, SampledAnswer, estimate_cap, tolerance_rank

RULES = CapRules(output_max_tokens=1000, notice_tokens=64)


def spoken(*totals: int) -> list[SampledAnswer]:
    return [SampledAnswer(total, 0, thinks=False, cut=False) for total in totals]


def thought(*pairs: tuple[int, int]) -> list[SampledAnswer]:
    """Answers of rows that think, as (thinking, answer)."""
    return [SampledAnswer(thinking + said, thinking, thinks=True, cut=False) for thinking, said in pairs]


def estimate(answers: list[SampledAnswer], rules: CapRules = RULES, rows: int | None = None) -> CapEstimate:
    thinking = sum(answer.thinks for answer in answers)
    return estimate_cap(answers, rows=rows or len(answers), thinking_rows=thinking, rules=rules)


@pytest.mark.parametrize(
    ("sampled", "population", "rank"),
    [
        (200, 10_000_000, 196),
        (59, 10_000_000, 59),
        (58, 10_000_000, None),
        (1, 1, 1),
        (19, 19, 19),
        (20, 20, 19),
        (100, 100, 95),
        (200, 200, 190),
        (1, 1000, None),
    ],
)
def test_ranks_of_known_cases(sampled: int, population: int, rank: int | None) -> None:
    assert tolerance_rank(sampled, population) == rank


def test_the_rank_for_many_rows_is_the_binomials() -> None:
    def binomial_tail(rank: int) -> float:
        return float(Fraction(sum(comb(200, k) * 19**k for k in range(rank, 201)), 20**200))

    assert binomial_tail(196) <= 0.05 < binomial_tail(195)


def test_every_file_of_up_to_5000_rows_has_a_rank() -> None:
    assert all(tolerance_rank(min(rows, 200), rows) is not None for rows in range(1, 5001))


def test_without_thinking_the_cap_is_the_order_statistic() -> None:
    assert estimate(spoken(*range(1, 101))) == CapEstimate(95, None, 95)
    assert estimate(spoken(0)) == CapEstimate(1, None, 1)


def test_with_thinking_budget_notice_and_answer_fit_under_the_cap() -> None:
    answers = thought(*((n, 101 - n) for n in range(1, 101)))
    # thinking_(95) = 95 and answer_(95) = 95: 95 + 64 + 95 = 254, rounded up to 16.
    assert estimate(answers) == CapEstimate(256, 95, 95)


def test_rows_with_thinking_off_do_not_lower_the_budget() -> None:
    assert estimate(spoken(*[10] * 100) + thought(*[(300, 10)] * 100)).budget == 300


def test_an_explicit_cap_bounds_the_budget() -> None:
    answers = thought(*[(300, 50)] * 100)
    explicit = CapRules(1000, 64, explicit_cap=200)
    assert estimate(answers, explicit) == CapEstimate(200, 86, 95)
    assert estimate(answers, CapRules(1000, 64, explicit_cap=900)) == CapEstimate(900, 300, 95)
    assert estimate(spoken(5, 5), explicit) == CapEstimate(200, None, 2)
    with pytest.raises(EstimateImpossible, match=r"would not fit under max_output_tokens .*Raise max"):
        estimate(answers, CapRules(1000, 64, explicit_cap=114))
    assert estimate(answers, CapRules(1000, 64, explicit_cap=115)).budget == 1


def test_an_explicit_budget_stands() -> None:
    answers = thought(*[(20, 50)] * 100)
    assert estimate(answers, CapRules(1000, 64, explicit_budget=30)) == CapEstimate(144, 30, 95)
    assert estimate(answers, CapRules(1000, 64, explicit_budget=0)) == CapEstimate(80, 0, 95)


def test_the_cap_never_passes_the_models_maximum() -> None:
    assert estimate(thought(*[(700, 280)] * 100)) == CapEstimate(1000, 656, 95)
    with pytest.raises(EstimateImpossible, match="the model's maximum output length"):
        estimate(thought(*[(20, 950)] * 100))


def cut(thinking: int, total: int = 1000, *, thinks: bool = True) -> SampledAnswer:
    return SampledAnswer(total, thinking, thinks=thinks, cut=True)


def test_as_many_endless_rows_as_the_rank_spares_are_let_pass() -> None:
    assert estimate(spoken(*[10] * 95) + [cut(0, thinks=False)] * 5).cap == 10
    assert estimate(thought(*[(20, 10)] * 95) + [cut(1000)] * 5).budget == 20
    with pytest.raises(EstimateImpossible):
        estimate(spoken(*[10] * 94) + [cut(0, thinks=False)] * 6)


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (
            spoken(*[10] * 90) + [cut(0, thinks=False)] * 10,
            r"need more output tokens than the 1,000 that the model can generate. Set max_output",
        ),
        (
            thought(*[(10, 10)] * 90) + [cut(1000)] * 10,
            r"^The model's reasoning runs too long on these rows. Set max_output_tokens, set reasoning_budget",
        ),
        (thought(*[(10, 10)] * 40) + [cut(10)] * 60, r"^The typical answer hits the model's maximum output"),
        ([], r"^We could not prepare a price for this job automatically. Set max_output_tokens.$"),
    ],
)
def test_an_estimate_that_fails_says_why_and_what_to_do(answers: list[SampledAnswer], told: str) -> None:
    with pytest.raises(EstimateImpossible, match=told):
        estimate(answers, rows=100)


def test_a_budget_from_few_thinking_rows_is_the_longest_known_thinking() -> None:
    answers = spoken(*[10] * 195) + thought(*[(n, 10) for n in (5, 9, 7)]) + [cut(900)] * 2
    assert estimate_cap(answers, rows=10_000, thinking_rows=250, rules=RULES).budget == 9
