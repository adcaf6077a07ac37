"""What usage costs: exact integers up to the one rounding, to whole cents, at the end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from anex.money import NANOS_PER_CENT, TOKENS_PER_PRICE_UNIT, ceil_div

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anex.catalog import ModelSpec
    from anex.usage import Usage

_PARTS_PER_NANO = 60 * TOKENS_PER_PRICE_UNIT
"""Prices are for a million tokens and for a minute, which is 60,000 ms: in these parts of a nano-dollar all usage is an integer."""
_PARTS_PER_MILLISECOND = _PARTS_PER_NANO // 60_000


@dataclass(frozen=True, slots=True)
class PriceTerms:
    """The price terms of a job, frozen with its estimate: a later change of the catalog changes no approved price.

    ``anex.catalog.Prices`` says what each is for.
    """

    input_nanos_per_million: int
    output_nanos_per_million: int
    minimum_cents: int
    media_input_nanos_per_million: int
    image_nanos: int
    clip_nanos: int
    minute_nanos: int

    @classmethod
    def of(cls, spec: ModelSpec) -> Self:
        """Return a model's terms of today."""
        prices = spec.prices
        return cls(
            prices.input_nanos_per_million,
            prices.output_nanos_per_million,
            spec.minimum_cents,
            prices.media_input_nanos_per_million,
            prices.image_nanos,
            prices.clip_nanos,
            prices.minute_nanos,
        )

    @classmethod
    def from_json(cls, stored: Mapping[str, int]) -> Self:
        """Return terms as ``to_json`` gave them; those of jobs from before there was media know no prices for it."""
        no_media = {
            "media_input_nanos_per_million": stored["input_nanos_per_million"],
            "image_nanos": 0,
            "clip_nanos": 0,
            "minute_nanos": 0,
        }
        return cls(**{**no_media, **stored})

    def to_json(self) -> dict[str, Any]:
        """Return the terms as plain integers."""
        return asdict(self)

    def price(self, usage: Usage) -> int:
        """Return the price in nano-dollars x 60,000,000, undivided: sums of it over chunks are exact."""
        text_tokens = usage.input_tokens - usage.media_tokens
        tokens = (
            text_tokens * self.input_nanos_per_million
            + usage.media_tokens * self.media_input_nanos_per_million
            + usage.output_tokens * self.output_nanos_per_million
        )
        items = usage.images * self.image_nanos + usage.clips * self.clip_nanos
        minutes = usage.clip_milliseconds * self.minute_nanos * _PARTS_PER_MILLISECOND
        return tokens * (_PARTS_PER_NANO // TOKENS_PER_PRICE_UNIT) + items * _PARTS_PER_NANO + minutes


def estimate_cents(terms: PriceTerms, usage: Usage) -> int:
    """Return what approval holds: the price in whole cents, rounded up, at least the minimum and at least 1."""
    cents = ceil_div(terms.price(usage), _PARTS_PER_NANO * NANOS_PER_CENT)
    return max(1, terms.minimum_cents, cents)


def charge_cents(terms: PriceTerms, usage: Usage, *, billable_rows: int, hold_cents: int) -> int:
    """Return what an ended job costs: nothing where no row is billable, and never more than is held."""
    if billable_rows == 0:
        return 0
    return min(hold_cents, estimate_cents(terms, usage))
