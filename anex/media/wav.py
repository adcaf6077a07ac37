"""The length of a WAV file: RIFF, and RF64 for those over 4 GiB."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from anex.media.model import Clip, MediaUnreadable

if TYPE_CHECKING:
    from anex.media.window import Window

_CHUNK = struct.Struct("<4sI")
_FORMAT = struct.Struct("<HHIIHH")
_DS64 = struct.Struct("<QQQ")
_FIRST_CHUNK = 12
_STREAMED = (0, 0xFFFFFFFF)
"""Sizes that a writer to a pipe leaves in the data chunk's head: it lasts to the end of the file."""
_LINEAR = {1, 3, 6, 7}
"""PCM, float, A-law, µ-law: a block is one sample of each channel."""
_EXTENSIBLE = 0xFFFE
_SUBFORMAT = 24


@dataclass(slots=True)
class _Heads:
    """What the chunks before the samples say."""

    tag: int = 0
    rate: int = 0
    bytes_per_second: int = 0
    block_bytes: int = 0
    samples: int = 0
    """Of the ``fact`` chunk: per channel, 0 where it doesn't say."""
    data_bytes: int | None = None
    """Of the ``ds64`` chunk."""


def read_wav(window: Window) -> Clip | None:
    """Return the length that the chunks' heads make, of the samples that are there."""
    head = window.peek(0, _FIRST_CHUNK)
    if head[:4] not in {b"RIFF", b"RF64", b"BW64"} or head[8:] != b"WAVE":
        raise MediaUnreadable("the bytes are not a WAV file")
    heads, offset = _Heads(), _FIRST_CHUNK
    while True:
        kind, size_bytes = _CHUNK.unpack(window.take(offset, _CHUNK.size))
        offset += _CHUNK.size
        if kind == b"data":
            return _measure(heads, size_bytes, window.size_bytes - offset)
        _note(heads, kind, window.peek(offset, min(size_bytes, _SUBFORMAT + 2)))
        offset += size_bytes + size_bytes % 2


def _note(heads: _Heads, kind: bytes, body: bytes) -> None:
    if kind == b"fmt " and len(body) >= _FORMAT.size:
        heads.tag, channels, heads.rate, heads.bytes_per_second, _, bits = _FORMAT.unpack_from(body)
        heads.block_bytes = channels * ((bits + 7) // 8)  # as decoders have it, whatever the head says of it
        if heads.tag == _EXTENSIBLE and len(body) >= _SUBFORMAT + 2:
            heads.tag = int.from_bytes(body[_SUBFORMAT : _SUBFORMAT + 2], "little")
    elif kind == b"fact" and len(body) >= 4:  # noqa: PLR2004 - one number of four bytes
        heads.samples = int.from_bytes(body[:4], "little")
    elif kind == b"ds64" and len(body) >= _DS64.size:
        _, heads.data_bytes, _ = _DS64.unpack_from(body)


def _measure(heads: _Heads, stated_bytes: int, left_bytes: int) -> Clip | None:
    if stated_bytes in _STREAMED:
        stated_bytes = heads.data_bytes or left_bytes
    data_bytes = min(stated_bytes, left_bytes)
    if heads.tag in _LINEAR and heads.rate and heads.block_bytes:
        seconds = Fraction(data_bytes // heads.block_bytes, heads.rate)
    elif heads.samples and heads.rate and stated_bytes:
        seconds = Fraction(heads.samples * data_bytes, heads.rate * stated_bytes)
    elif heads.bytes_per_second:
        seconds = Fraction(data_bytes, heads.bytes_per_second)
    else:
        return None
    return Clip(seconds) if seconds else None
