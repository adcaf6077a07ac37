"""How long a clip is, by what its container states; which reader that takes.

None is an answer: the container states no length, or nothing of it could be made out within the bounds, and the
length is estimated from the size. That is so for ADTS by nature and for AVI by contract, although an AVI's
pictures and rate are stated (``read_pictures``). Only bytes of another kind than the format are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anex.media.aiff import read_aiff
from anex.media.avi import read_avi_pictures
from anex.media.flac import read_flac
from anex.media.matroska import read_matroska
from anex.media.mp3 import read_mp3
from anex.media.mp4 import read_mp4
from anex.media.ogg import read_ogg
from anex.media.wav import read_wav
from anex.media.window import READS_MAX, Unreached, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from fractions import Fraction

    from anex.media.model import ByteSource, Clip

HOSTED_READS_MAX = 8
"""Reads of a clip on a host, each a request: the head, the movie at the end, and then some of the pictures. A source that can't go
on answers with fewer bytes than asked: then what was stated so far still counts."""
SECONDS_MAX = 366 * 86_400
"""What is stated as longer than a year is nonsense."""

_READERS: Mapping[str, Callable[[Window], Clip | None]] = {
    "mp4": read_mp4,
    "mov": read_mp4,
    "m4a": read_mp4,
    "webm": read_matroska,
    "mkv": read_matroska,
    "wav": read_wav,
    "aiff": read_aiff,
    "flac": read_flac,
    "ogg": read_ogg,
    "opus": read_ogg,
    "mp3": read_mp3,
}


def read_clip(format: str, source: ByteSource, *, reads_max: int = READS_MAX) -> Clip | None:  # noqa: A002
    """Return what a clip states about itself, None where it states no length. Raises ``MediaUnreadable``.

    ``reads_max`` bounds the calls of ``source.read``; a quarter more may look at the end of a file without a stated length.
    """
    reader = _READERS.get(format)
    if reader is None:
        return None
    try:
        clip = reader(Window(source, reads_max))
    except Unreached:
        return None
    return clip if clip is not None and clip.seconds <= SECONDS_MAX else None


def read_pictures(
    format: str,  # noqa: A002
    source: ByteSource,
    *,
    reads_max: int = READS_MAX,
) -> tuple[int | None, Fraction | None]:
    """Return pictures and pictures a second of a clip whose length its container doesn't tell us, None each where it doesn't say.

    Raises ``MediaUnreadable``.
    """
    return read_avi_pictures(Window(source, reads_max)) if format == "avi" else (None, None)
