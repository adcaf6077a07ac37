"""The length of an AIFF or AIFC file."""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import TYPE_CHECKING

from anex.media.model import Clip, MediaUnreadable

if TYPE_CHECKING:
    from anex.media.window import Window

_CHUNK = struct.Struct(">4sI")
_COMMON = struct.Struct(">HIHHQ")
_FIRST_CHUNK = 12
_SIGN = 0x8000
_EXPONENT_BIAS = 16383
_MANTISSA_BITS = 63
_EXPONENT_MAX = 40
"""A rate of a terahertz: above it a number is nonsense, and the power of two in it a needless load."""


def read_aiff(window: Window) -> Clip | None:
    """Return the length that the ``COMM`` chunk states; a writer to a pipe leaves 0 frames in it, and so no length."""
    head = window.peek(0, _FIRST_CHUNK)
    if head[:4] != b"FORM" or head[8:] not in {b"AIFF", b"AIFC"}:
        raise MediaUnreadable("the bytes are not an AIFF file")
    offset = _FIRST_CHUNK
    while True:
        kind, size_bytes = _CHUNK.unpack(window.take(offset, _CHUNK.size))
        offset += _CHUNK.size
        if kind == b"COMM":
            _, frames, _, exponent, mantissa = _COMMON.unpack(window.take(offset, _COMMON.size))
            rate = _to_rate(exponent, mantissa)
            return Clip(frames / rate) if frames and rate else None
        offset += size_bytes + size_bytes % 2


def _to_rate(exponent: int, mantissa: int) -> Fraction | None:
    """Return the value of an 80-bit float, None where it is no rate."""
    power = exponent - _EXPONENT_BIAS
    if exponent & _SIGN or not 0 <= power <= _EXPONENT_MAX or not mantissa:
        return None
    return Fraction(mantissa << power, 1 << _MANTISSA_BITS)
