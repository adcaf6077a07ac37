"""The length of an MP3 file that states one: the Xing, Info or VBRI header in its first frame.

Without one there is only the size: adding up frames would mean to read the whole file, and the first frame's
bit rate says nothing about the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from anex.media.id3 import skip_id3
from anex.media.model import Clip

if TYPE_CHECKING:
    from anex.media.window import Window

_RATES = (44_100, 48_000, 32_000)
_MPEG1 = 3
_MPEG2 = 2
_LAYER3 = 1
_MONO = 3
_JUNK_MAX_BYTES = 4096
"""How far from its place the first frame is looked for: some writers pad their tags without counting it."""
_FRAME_BYTES = 256
"""Of the first frame: every header that states a length ends within."""
_VBRI_OFFSET = 36
_VBRI_FRAMES = 14
_HAS_FRAMES, _HAS_BYTES = 1, 2
_SLACK, _SLACK_BYTES = 0.1, 4096
"""By so much a file may be longer than its header says: tags stand at its end."""
_FIELDS = ((1, 4), (2, 4), (4, 100), (8, 4))
"""What the flags of a Xing header announce, in order: frames, bytes, a table of places, a quality."""
_GAPLESS_OFFSET = 21
_GAPLESS_WRITERS = {b"LAME", b"Lavf", b"Lavc"}


@dataclass(frozen=True, slots=True)
class _Frame:
    """What the first frame's head says."""

    rate: int
    samples: int
    """Of one frame."""
    xing_offset: int


def read_mp3(window: Window) -> Clip | None:
    """Return the stated length, less what the encoder padded."""
    start = skip_id3(window)
    head = window.peek(start, _JUNK_MAX_BYTES + _FRAME_BYTES)
    offset = head.find(b"\xff")
    while 0 <= offset < _JUNK_MAX_BYTES:
        frame = _read_head(head[offset : offset + 4])
        if frame is not None:
            left_bytes = window.size_bytes - start - offset
            return _read_frame(frame, head[offset : offset + _FRAME_BYTES], left_bytes)
        offset = head.find(b"\xff", offset + 1)
    return None


def _read_head(head: bytes) -> _Frame | None:
    """Return what four bytes say as a frame's head of layer III, None where they are none."""
    if len(head) < 4 or head[1] & 0xE0 != 0xE0:  # noqa: PLR2004
        return None
    version, layer, rate_index = head[1] >> 3 & 3, head[1] >> 1 & 3, head[2] >> 2 & 3
    if version == 1 or layer != _LAYER3 or rate_index == len(_RATES) or head[2] >> 4 == 0xF:  # noqa: PLR2004
        return None
    mono = head[3] >> 6 == _MONO
    if version == _MPEG1:
        return _Frame(_RATES[rate_index], 1152, 4 + (17 if mono else 32))
    halves = 2 if version == _MPEG2 else 4  # MPEG 2.5
    return _Frame(_RATES[rate_index] // halves, 576, 4 + (9 if mono else 17))


def _read_frame(frame: _Frame, body: bytes, left_bytes: int) -> Clip | None:
    samples = None
    if body[frame.xing_offset : frame.xing_offset + 4] in {b"Xing", b"Info"}:
        samples = _read_xing(frame, body[frame.xing_offset :], left_bytes)
    elif body[_VBRI_OFFSET : _VBRI_OFFSET + 4] == b"VBRI":
        samples = frame.samples * int.from_bytes(body[_VBRI_OFFSET + _VBRI_FRAMES :][:4], "big")
    return Clip(Fraction(samples, frame.rate)) if samples and samples > 0 else None


def _read_xing(frame: _Frame, header: bytes, window_bytes: int) -> int | None:
    """Return the samples that the header states, without the encoder's delay and padding where it names them."""
    flags = int.from_bytes(header[4:8], "big")
    if not flags & _HAS_FRAMES:
        return None
    samples = frame.samples * int.from_bytes(header[8:12], "big")
    if (
        flags & _HAS_BYTES
        and window_bytes > (1 + _SLACK) * int.from_bytes(header[12:16], "big") + _SLACK_BYTES
    ):
        return None  # there is more behind what it speaks of: files that were put together
    writer = 8 + sum(size_bytes for flag, size_bytes in _FIELDS if flags & flag)
    if header[writer : writer + 4] in _GAPLESS_WRITERS:
        gaps = int.from_bytes(header[writer + _GAPLESS_OFFSET :][:3], "big")
        samples -= (gaps >> 12) + (gaps & 0xFFF)
    return samples
