"""What is billed: tokens, and the items of media that cost something by themselves."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """The billable usage of a row, a chunk or a job."""

    input_tokens: int = 0
    output_tokens: int = 0
    media_tokens: int = 0
    """Those of ``input_tokens`` that the media price is for. Chat: made by media. Embedding: all of a row with media."""
    images: int = 0
    clips: int = 0
    """Audio and video."""
    clip_milliseconds: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Return the usage of both."""
        return Usage(*(one + another for one, another in zip(astuple(self), astuple(other), strict=True)))


NOTHING = Usage()
