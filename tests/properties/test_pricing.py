"""The price, for any terms and any usage: exact, monotonic, rounded once, never above the hold."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from fractions import Fraction
from math import ceil
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anex.ledger.pricing import PriceTerms, charge_cents, estimate_cents
from anex.money import NANOS_PER_CENT, TOKENS_PER_PRICE_UNIT
from anex.usage import Usage
from config.catalog import load_catalog

CATALOG = Path(__file__).parents[2] / "config" / "models.toml"
MINUTE_MILLISECONDS = 60_000

# Up to 10,000,000 rows of 131,072 tokens, and prices beyond float's 53 bits in the product.
counts = st.integers(0, 10_000_000 * 131_072)
prices = st.integers(0, 10**12)
all_terms = st.builds(PriceTerms, prices, prices, st.integers(0, 10_000), prices, prices, prices, prices)
usages = st.builds(
    lambda text, media, *others: Usage(text + media, others[0], media, *others[1:]),
    counts, counts, counts, counts, counts, counts,
)  # fmt: skip


def exact_cents(terms: PriceTerms, usage: Usage) -> Fraction:
    text_tokens = usage.input_tokens - usage.media_tokens
    nanos = Fraction(text_tokens * terms.input_nanos_per_million, TOKENS_PER_PRICE_UNIT)
    nanos += Fraction(usage.media_tokens * terms.media_input_nanos_per_million, TOKENS_PER_PRICE_UNIT)
    nanos += Fraction(usage.output_tokens * terms.output_nanos_per_million, TOKENS_PER_PRICE_UNIT)
    nanos += usage.images * terms.image_nanos + usage.clips * terms.clip_nanos
    nanos += Fraction(usage.clip_milliseconds * terms.minute_nanos, MINUTE_MILLISECONDS)
    return nanos / NANOS_PER_CENT


@given(all_terms, usages)
def test_an_estimate_is_the_exact_price_rounded_up_once(terms: PriceTerms, usage: Usage) -> None:
    assert estimate_cents(terms, usage) == max(1, terms.minimum_cents, ceil(exact_cents(terms, usage)))


@given(all_terms, st.lists(usages, max_size=20))
def test_prices_of_chunks_add_up_to_the_price_of_the_job(terms: PriceTerms, chunks: list[Usage]) -> None:
    assert sum(terms.price(chunk) for chunk in chunks) == terms.price(sum(chunks, Usage()))


@given(all_terms, usages, usages, st.integers(1, 10_000_000))
def test_a_charge_for_usage_within_the_estimate_is_within_the_hold_without_help(
    terms: PriceTerms, used: Usage, more: Usage, rows: int
) -> None:
    hold_cents = estimate_cents(terms, used + more)
    unbounded = estimate_cents(terms, used)
    assert unbounded <= hold_cents
    assert charge_cents(terms, used, billable_rows=rows, hold_cents=hold_cents) == unbounded


@given(all_terms, usages, st.integers(1, 100), st.integers(1, 10_000))
@example(PriceTerms(10**9, 10**9, 1, 10**9, 0, 0, 0), Usage(10**12, 10**12), 1, 1)
def test_no_charge_is_above_the_hold_whatever_was_used(
    terms: PriceTerms, usage: Usage, rows: int, hold_cents: int
) -> None:
    assert 1 <= charge_cents(terms, usage, billable_rows=rows, hold_cents=hold_cents) <= hold_cents


@given(all_terms, usages, st.integers(1, 10_000))
def test_a_job_without_a_billable_row_costs_nothing(terms: PriceTerms, usage: Usage, hold_cents: int) -> None:
    assert charge_cents(terms, usage, billable_rows=0, hold_cents=hold_cents) == 0


@given(all_terms)
def test_terms_survive_the_database(terms: PriceTerms) -> None:
    stored = json.loads(json.dumps(terms.to_json()))
    assert PriceTerms.from_json(stored) == terms
    assert all(type(value) is int for value in stored.values())


def test_terms_from_before_there_was_media_price_its_tokens_like_text() -> None:
    stored = {"input_nanos_per_million": 7, "output_nanos_per_million": 9, "minimum_cents": 1}
    assert PriceTerms.from_json(stored) == PriceTerms(7, 9, 1, 7, 0, 0, 0)


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
def test_the_price_list_of_a_chat_model(input_tokens: int, output_tokens: int, cents: int) -> None:
    terms = PriceTerms.of(load_catalog(CATALOG).get("qwen3.8-27b"))
    assert estimate_cents(terms, Usage(input_tokens, output_tokens)) == cents


@pytest.mark.parametrize(
    ("usage", "cents"),
    [
        (Usage(images=20_000), 100),  # $0.00005 each
        (Usage(clips=10_000), 100),  # $0.0001 each
        (Usage(clip_milliseconds=60_000 * 2_000), 100),  # $0.0005 a minute
        (Usage(clip_milliseconds=60_000 * 2_000 + 1), 101),
        (Usage(input_tokens=1_000_000, media_tokens=1_000_000), 25),  # the input's price: 22 cents
    ],
)
def test_what_media_cost_on_a_chat_model(usage: Usage, cents: int) -> None:
    terms = PriceTerms.of(load_catalog(CATALOG).get("qwen3.8-27b"))
    assert estimate_cents(terms, usage) == cents


@pytest.mark.parametrize(
    ("usage", "cents"),
    [
        (Usage(input_tokens=10_000_000), 30),
        (Usage(input_tokens=10_000_000, media_tokens=10_000_000), 80),
        (Usage(images=1_000_000), 400),
        (Usage(clips=1_000_000), 6000),
        (Usage(clip_milliseconds=60_000 * 1_000_000), 5),  # no charge by time: the minimum
    ],
)
def test_rows_with_media_have_a_price_of_their_own_on_an_embedding_model(usage: Usage, cents: int) -> None:
    terms = PriceTerms.of(load_catalog(CATALOG).get("qwen3-vl-embedding-8b"))
    assert estimate_cents(terms, usage) == cents


def test_a_free_model_still_costs_a_cent() -> None:
    assert estimate_cents(PriceTerms(0, 0, 0, 0, 0, 0, 0), Usage(10**9, 10**9)) == 1


def test_usage_adds_up_field_by_field() -> None:
    used = Usage(1, 2, 3, 4, 5, 6)
    assert asdict(used + replace(used, images=40)) == {
        "input_tokens": 2, "output_tokens": 4, "media_tokens": 6, "images": 44, "clips": 10, "clip_milliseconds": 12,
    }  # fmt: skip
