"""What a clip says of itself: by our own readers, and where they make nothing of it by ffprobe, where there is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anex.media.durations import read_clip, read_pictures

if TYPE_CHECKING:
    from fractions import Fraction

    from anex.media.model import ByteSource, MediaFormat
    from anex.media.probe import ClipProbe


@dataclass(frozen=True, slots=True)
class ClipFacts:
    """What is known of a clip; None each where it is not."""

    seconds: Fraction | None
    frames: int | None
    frames_per_second: Fraction | None


@dataclass(frozen=True, slots=True)
class ClipReader:
    """Reads clips within bounds of time and memory. Thread-safe."""

    probe: ClipProbe | None = None

    def read(self, named: MediaFormat, source: ByteSource) -> ClipFacts:
        """Return what a clip of a format states. Raises ``MediaUnreadable`` for bytes of another kind."""
        clip = read_clip(named, source)
        if clip is None and self.probe is not None:
            clip = self.probe.probe(named, source)
        if clip is None:
            return ClipFacts(None, *read_pictures(named, source))
        return ClipFacts(clip.seconds, clip.frames, clip.frames_per_second)
