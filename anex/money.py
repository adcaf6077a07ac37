"""Money is an integer of nano-dollars (1e-9 $); 1 credit = 1 cent = 10,000,000 nanos.

Prices are nano-dollars per 1,000,000 tokens, so tokens * price stays an integer and is divided once, at the end.
"""

from __future__ import annotations

NANOS_PER_CENT = 10_000_000
TOKENS_PER_PRICE_UNIT = 1_000_000


def ceil_div(numerator: int, denominator: int) -> int:
    """Integer division rounded up; for money owed to us, rounding happens here and once."""
    return -(-numerator // denominator)


def cents_to_nanos(cents: int) -> int:
    """Whole cents as nano-dollars."""
    return cents * NANOS_PER_CENT


def nanos_to_cents_up(nanos: int) -> int:
    """Nano-dollars as whole cents, rounded up."""
    return ceil_div(nanos, NANOS_PER_CENT)


def format_cents(cents: int) -> str:
    """Return ``$1.23`` for people; programs get the integer."""
    sign = "-" if cents < 0 else ""
    return f"{sign}${abs(cents) // 100}.{abs(cents) % 100:02d}"
