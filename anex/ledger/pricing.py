"""What tokens cost: exact integers up to the one rounding, to whole cents, at the end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from anex.money import NANOS_PER_CENT, TOKENS_PER_PRICE_UNIT, ceil_div

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anex.catalog import ModelSpec


@dataclass(frozen=True, slots=True)
class PriceTerms:
    """The price terms of a job, frozen with its estimate: a later change of the catalog changes no approved price."""

    input_nanos_per_million: int
    output_nanos_per_million: int
    minimum_cents: int

    @classmethod
    def of(cls, spec: ModelSpec) -> Self:
        """Return a model's terms of today."""
        return cls(
            spec.prices.input_nanos_per_million, spec.prices.output_nanos_per_million, spec.minimum_cents
        )

    @classmethod
    def from_json(cls, stored: Mapping[str, int]) -> Self:
        """Return terms as ``to_json`` gave them."""
        return cls(**stored)

    def to_json(self) -> dict[str, Any]:
        """Return the terms as plain integers."""
        return asdict(self)

    def price(self, input_tokens: int, output_tokens: int) -> int:
        """Return the price in nano-dollars x 1,000,000, undivided: sums of it over chunks are exact."""
        return input_tokens * self.input_nanos_per_million + output_tokens * self.output_nanos_per_million


def estimate_cents(terms: PriceTerms, input_tokens: int, output_tokens: int) -> int:
    """Return what approval holds: the price in whole cents, rounded up, at least the minimum and at least 1."""
    cents = ceil_div(terms.price(input_tokens, output_tokens), TOKENS_PER_PRICE_UNIT * NANOS_PER_CENT)
    return max(1, terms.minimum_cents, cents)


def charge_cents(
    terms: PriceTerms, *, input_tokens: int, output_tokens: int, billable_rows: int, hold_cents: int
) -> int:
    """Return what an ended job costs: nothing where no row is billable, and never more than is held."""
    if billable_rows == 0:
        return 0
    return min(hold_cents, estimate_cents(terms, input_tokens, output_tokens))
