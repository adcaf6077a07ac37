"""The price, for any terms and any usage: exact, monotonic, rounded once, never above the hold."""

from __future__ import annotations

import json
from fractions import Fraction
from math import ceil
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anex.ledger.pricing import PriceTerms, charge_cents, estimate_cents
from anex.money import NANOS_PER_CENT, TOKENS_PER_PRICE_UNIT
from config.catalog import load_catalog

CATALOG = Path(__file__).parents[2] / "config" / "models.toml"

# Up to 10,000,000 rows of 131,072 tokens, and prices beyond float's 53 bits in the product.
tokens = st.integers(0, 10_000_000 * 131_072)
nanos_per_million = st.integers(0, 10**12)
all_terms = st.builds(PriceTerms, nanos_per_million, nanos_per_million, st.integers(0, 10_000))


def exact_cents(terms: PriceTerms, input_tokens: int, output_tokens: int) -> Fraction:
    nanos = Fraction(input_tokens * terms.input_nanos_per_million, TOKENS_PER_PRICE_UNIT)
    nanos += Fraction(output_tokens * terms.output_nanos_per_million, TOKENS_PER_PRICE_UNIT)
    return nanos / NANOS_PER_CENT


@given(all_terms, tokens, tokens)
def test_an_estimate_is_the_exact_price_rounded_up_once(
    terms: PriceTerms, input_tokens: int, output_tokens: int
) -> None:
    price = exact_cents(terms, input_tokens, output_tokens)
    assert estimate_cents(terms, input_tokens, output_tokens) == max(1, terms.minimum_cents, ceil(price))


@given(all_terms, st.lists(st.tuples(tokens, tokens), max_size=20))
def test_prices_of_chunks_add_up_to_the_price_of_the_job(
    terms: PriceTerms, chunks: list[tuple[int, int]]
) -> None:
    whole = terms.price(sum(chunk[0] for chunk in chunks), sum(chunk[1] for chunk in chunks))
    assert sum(terms.price(*chunk) for chunk in chunks) == whole


@given(all_terms, tokens, tokens, tokens, tokens, st.integers(1, 10_000_000))
def test_a_charge_for_usage_within_the_estimate_is_within_the_hold_without_help(
    terms: PriceTerms, input_tokens: int, output_tokens: int, less_in: int, less_out: int, rows: int
) -> None:
    hold_cents = estimate_cents(terms, input_tokens, output_tokens)
    used_in, used_out = min(less_in, input_tokens), min(less_out, output_tokens)
    unbounded = estimate_cents(terms, used_in, used_out)
    assert unbounded <= hold_cents
    charge = charge_cents(
        terms, input_tokens=used_in, output_tokens=used_out, billable_rows=rows, hold_cents=hold_cents
    )
    assert charge == unbounded


@given(all_terms, tokens, tokens, st.integers(1, 100), st.integers(1, 10_000))
@example(PriceTerms(10**9, 10**9, 1), 10**12, 10**12, 1, 1)
def test_no_charge_is_above_the_hold_whatever_was_used(
    terms: PriceTerms, input_tokens: int, output_tokens: int, rows: int, hold_cents: int
) -> None:
    charge = charge_cents(
        terms,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        billable_rows=rows,
        hold_cents=hold_cents,
    )
    assert 1 <= charge <= hold_cents


@given(all_terms, tokens, tokens, st.integers(1, 10_000))
def test_a_job_without_a_billable_row_costs_nothing(
    terms: PriceTerms, input_tokens: int, output_tokens: int, hold_cents: int
) -> None:
    charge = charge_cents(
        terms, input_tokens=input_tokens, output_tokens=output_tokens, billable_rows=0, hold_cents=hold_cents
    )
    assert charge == 0


@given(all_terms)
def test_terms_survive_the_database(terms: PriceTerms) -> None:
    stored = json.loads(json.dumps(terms.to_json()))
    assert PriceTerms.from_json(stored) == terms
    assert all(type(value) is int for value in stored.values())


@pytest.mark.parametrize(
    ("input_tokens", "output_tokens", "cents"),
    [
        (0, 0, 25),  # the minimum
        (1_000_000, 0, 25),  # 22 cents
        (1_136_364, 0, 26),  # 25.000008 cents
        (1_000_000, 1_000_000, 110),
        (1_000_000, 1_000_001, 111),  # 110.000088 cents
    ],
)
def test_the_price_list_of_a_model(input_tokens: int, output_tokens: int, cents: int) -> None:
    terms = PriceTerms.of(load_catalog(CATALOG).get("qwen3.8-27b"))
    assert estimate_cents(terms, input_tokens, output_tokens) == cents


def test_a_free_model_still_costs_a_cent() -> None:
    assert estimate_cents(PriceTerms(0, 0, 0), 10**9, 10**9) == 1
