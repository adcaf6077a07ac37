"""How many tokens media make, and how long a clip may be: the catalog's rates and exact arithmetic.

Seconds and rates are fractions: 30.1 s at 20 frames a second are 602 frames, which binary floats make 603.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anex.catalog import AudioSpec, ModelSpec, VideoSpec


def to_fraction(number: float) -> Fraction:
    """Return a number as it was written in decimals."""
    return Fraction(repr(number))


def sampling_rate(video: VideoSpec, asked: Fraction | None, own: Fraction | None = None) -> Fraction:
    """Return the frames a second that a clip is sampled at: what was asked, and no more than it holds."""
    wanted = asked if asked is not None else Fraction(video.default_fps)
    return wanted if own is None else min(wanted, own)


def count_video_tokens(video: VideoSpec, seconds: Fraction, rate: Fraction) -> int:
    """Return the most tokens that a clip makes: one frame more than its length holds at ``rate``."""
    frames = ceil(seconds * rate) + 1
    return video.frame_tokens * (frames if video.max_frames is None else min(frames, video.max_frames))


def count_audio_tokens(audio: AudioSpec, seconds: Fraction) -> int:
    """Return the tokens of an audio clip."""
    return ceil(seconds * audio.tokens_per_1000_seconds / 1000)


def longest_video_seconds(spec: ModelSpec, video: VideoSpec, rate: Fraction) -> int:
    """Return the longest clip, in whole seconds, that a row may carry at ``rate``: by the model's ceiling and its context."""
    fitting = fitting_video_seconds(video, rate, spec.context_for({"video"}).input_tokens)
    return fitting if video.max_seconds is None else min(fitting, video.max_seconds)


def fitting_video_seconds(video: VideoSpec, rate: Fraction, tokens: int) -> int:
    """Return how many whole seconds of video fit into ``tokens``."""
    frames = tokens // video.frame_tokens
    if video.max_frames is not None and frames >= video.max_frames and video.max_seconds is not None:
        return video.max_seconds
    return max(0, (frames - 1) // rate)


def fitting_audio_seconds(audio: AudioSpec, tokens: int) -> int:
    """Return how many whole seconds of audio fit into ``tokens``; the model's ceiling at most."""
    return min(audio.max_seconds, tokens * 1000 // audio.tokens_per_1000_seconds)
