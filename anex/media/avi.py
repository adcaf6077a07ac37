"""How many pictures an AVI file states, and at which rate. Its length is estimated from its size, by contract."""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import TYPE_CHECKING

from anex.media.model import MediaUnreadable
from anex.media.window import Unreached

if TYPE_CHECKING:
    from anex.media.window import Window

_CHUNK = struct.Struct("<4sI")
_STREAM = struct.Struct("<4s4sIHHIIIII")
_FIRST_CHUNK = 12
_DESCENDED = {b"hdrl", b"strl"}


def read_avi_pictures(window: Window) -> tuple[int | None, Fraction | None]:
    """Return pictures and rate of the first video stream's head, None each where it doesn't say."""
    head = window.peek(0, _FIRST_CHUNK)
    if head[:4] != b"RIFF" or head[8:] != b"AVI ":
        raise MediaUnreadable("the bytes are not an AVI file")
    try:
        return _find_video(window)
    except Unreached:
        return None, None


def _find_video(window: Window) -> tuple[int | None, Fraction | None]:
    offset = _FIRST_CHUNK
    while True:
        kind, size_bytes = _CHUNK.unpack(window.take(offset, _CHUNK.size))
        offset += _CHUNK.size
        if kind == b"strh" and window.peek(offset, 4) == b"vids":
            *_, scale, rate, _, frames = _STREAM.unpack(window.take(offset, _STREAM.size))
            return frames or None, Fraction(rate, scale) if rate and scale else None
        if kind == b"LIST" and window.peek(offset, 4) in _DESCENDED:
            offset += 4
        else:
            offset += size_bytes + size_bytes % 2
