"""The words that the readers of media share: bytes that are read where one likes, formats, and what a clip says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from fractions import Fraction

AudioFormat = Literal["wav", "mp3", "m4a", "aac", "ogg", "opus", "flac", "aiff"]
VideoFormat = Literal["mp4", "webm", "mov", "mkv", "avi"]
ImageFormat = Literal["png", "jpeg", "webp", "gif", "bmp", "tiff"]
MediaFormat = AudioFormat | VideoFormat | ImageFormat


class ByteSource(Protocol):
    """The bytes of one media item: a part's inline bytes, or a file on a host that answers ranges."""

    @property
    def size_bytes(self) -> int:
        """How many there are."""

    def read(self, offset: int, count: int) -> bytes:
        """Return the ``count`` bytes from ``offset`` on; fewer where the source ends before."""


@dataclass(frozen=True, slots=True)
class Clip:
    """What a clip states about itself."""

    seconds: Fraction
    """Its length, above 0."""
    frames: int | None = None
    """Pictures of its first video track; None where it has none, or doesn't say."""
    frames_per_second: Fraction | None = None
    """Of its first video track; None where it has none, or neither states nor implies it."""


class MediaUnreadable(Exception):
    """The bytes are no readable item of their format; ``message`` says why, in words for the row's owner."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
