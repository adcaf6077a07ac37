"""The length of a FLAC file, and of FLAC inside Ogg: the ``STREAMINFO`` block."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from anex.media.id3 import skip_id3
from anex.media.model import Clip, MediaUnreadable

if TYPE_CHECKING:
    from anex.media.window import Window

_BLOCK_HEAD_BYTES = 4
STREAMINFO_BYTES = 34
_RATE_OFFSET = 10
_SAMPLES_BITS = 36
_RATE_SHIFT = 44
"""Of the 64 bits from the rate on: 20 of rate, 3 of channels, 5 of sample size, 36 of samples."""


def read_flac(window: Window) -> Clip | None:
    """Return the stated length; 0 samples mean that the writer didn't know."""
    start = skip_id3(window)
    if window.peek(start, 4) != b"fLaC":
        raise MediaUnreadable("the bytes are not a FLAC file")
    start += 4
    if window.take(start, 1)[0] & 0x7F:  # the first block is to be STREAMINFO, type 0
        return None
    rate, samples = read_streaminfo(window.take(start + _BLOCK_HEAD_BYTES, STREAMINFO_BYTES))
    return Clip(Fraction(samples, rate)) if rate and samples else None


def read_streaminfo(block: bytes) -> tuple[int, int]:
    """Return samples a second and samples of a ``STREAMINFO`` block's body."""
    word = int.from_bytes(block[_RATE_OFFSET : _RATE_OFFSET + 8], "big")
    return word >> _RATE_SHIFT, word & ((1 << _SAMPLES_BITS) - 1)
