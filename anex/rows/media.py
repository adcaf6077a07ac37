"""What the media of a row may be, and what they come to: checked where an input is validated, measured where it is counted and run.

Both read the same things from the same bytes, so nothing about a row is kept between the two but what was asked of strangers'
hosts (``Lengths``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, TypeVar

from anex.media.clips import ClipReader
from anex.media.images import find_image_fault
from anex.media.tokens import (
    count_audio_tokens,
    count_video_tokens,
    fitting_audio_seconds,
    fitting_video_seconds,
    longest_video_seconds,
    sampling_rate,
)
from anex.rows.faults import RowRefused, describe_row
from anex.rows.media_items import Hosted, Inline, Length, name_file, open_part, read_length, settle_format
from anex.rows.parts import modality_of, require_encoder, type_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anex.catalog import AudioSpec, ImageSpec, Modality, ModelSpec, VideoSpec
    from anex.rows.parts import MediaPart

EncoderT = TypeVar("EncoderT", "ImageSpec", "AudioSpec", "VideoSpec")

MILLISECONDS = 1000
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class MediaTerms:
    """What decides about the media of a job's rows: the model, the sampling rate asked for, what is known of hosted clips."""

    spec: ModelSpec
    video_fps: Fraction | None = None
    lengths: Mapping[str, Length] = field(default_factory=dict)
    clips: ClipReader = field(default_factory=ClipReader)


@dataclass(frozen=True, slots=True)
class RowMedia:
    """What the media of one row come to."""

    tokens: int = 0
    images: int = 0
    clips: int = 0
    clip_milliseconds: int = 0
    kinds: frozenset[Modality] = frozenset()


NO_MEDIA = RowMedia()


def check_media(terms: MediaTerms, custom_id: str, parts: Sequence[MediaPart]) -> list[Hosted]:
    """Judge a row's media offline; return the hosted clips whose length nobody has stated yet. Raises ``RowRefused``."""
    unknown: list[Hosted] = []
    for part in parts:
        require_encoder(type_of(part), terms.spec)
        place = open_part(part)
        if isinstance(place, Inline):
            _check_inline(terms.spec, place)
        if place.modality == "image":
            continue
        length = read_length(part, place, terms.lengths, terms.clips)
        if length is not None:
            check_length(terms, custom_id, place.modality, length)
        elif isinstance(place, Hosted):
            unknown.append(place)
    return unknown


def measure_media(terms: MediaTerms, parts: Sequence[MediaPart], text_tokens: int) -> RowMedia:
    """Return what a checked row's media come to at most.

    A clip of which nothing is known is assumed to be as long as the model takes and as fits beside the row's ``text_tokens``, its
    other media and one token of an answer.
    """
    kinds = frozenset(modality_of(part) for part in parts)
    known: list[tuple[Modality, Length]] = []
    assumed: list[Modality] = []
    for part in parts:
        if modality_of(part) == "image":
            continue
        length = read_length(part, open_part(part), terms.lengths, terms.clips)
        if length is None:
            assumed.append(modality_of(part))
        else:
            known.append((modality_of(part), length))
    images = len(parts) - len(known) - len(assumed)
    tokens = images * (_required(terms.spec.image).tokens if images else 0)
    tokens += sum(_count_clip(terms, modality, length) for modality, length in known)
    context = terms.spec.context_for(kinds)
    most_tokens = min(context.input_tokens, context.total_tokens - 1)
    for modality in assumed:
        length = _assume(terms, modality, max(0, most_tokens - text_tokens - tokens))
        tokens += _count_clip(terms, modality, length) if length.seconds else 0
        known.append((modality, length))
    milliseconds = sum(ceil(_taken_seconds(terms, *clip) * MILLISECONDS) for clip in known)
    return RowMedia(tokens, images, len(known), milliseconds, kinds)


def check_length(terms: MediaTerms, custom_id: str, modality: Modality, length: Length) -> None:
    """Raise ``RowRefused``, naming the row, for a clip that the model can't take."""
    if modality == "audio":
        most = _required(terms.spec.audio).max_seconds
    else:
        video = _required(terms.spec.video)
        if length.frames is not None and length.frames < video.min_frames:
            held = "1 frame" if length.frames == 1 else f"{length.frames} frames"
            message = f"video holds {held}; a clip has to hold at least {video.min_frames}. Send a single frame as an image part."
            raise RowRefused(describe_row(custom_id, message), names_row=True)
        rate = sampling_rate(video, terms.video_fps, length.frames_per_second)
        most = longest_video_seconds(terms.spec, video, rate)
    if length.seconds > most:
        asked = modality == "video" and terms.video_fps is not None
        message = (
            _describe_rate(terms, length, most) if asked else _describe_clip(terms, modality, length, most)
        )
        raise RowRefused(describe_row(custom_id, message), names_row=True)


def _describe_clip(terms: MediaTerms, modality: Modality, length: Length, most: int) -> str:
    found = _format_seconds(length.seconds)
    if length.known == "estimated":
        return (
            f"{modality} duration is estimated at {found}s, which exceeds the {most}s maximum for model '{terms.spec.id}'."
            f" Set duration_seconds, or shorten or split this {modality} input."
        )
    return (
        f"{modality} duration {found}s exceeds the {most}s maximum for model '{terms.spec.id}'."
        f" Shorten or split this {modality} input."
    )


def _describe_rate(terms: MediaTerms, length: Length, most: int) -> str:
    found, estimated = _format_seconds(length.seconds), length.known == "estimated"
    asked = terms.video_fps or Fraction(0)
    own = length.frames_per_second
    rate = (
        f"the requested {_format_seconds(asked)}"
        if own is None or own >= asked
        else f"its own {_format_seconds(own)}"
    )
    fix = (
        "Set duration_seconds, shorten the clip or lower video_fps."
        if estimated
        else "Shorten the clip or lower video_fps."
    )
    return (
        f"video is {'estimated at ' if estimated else ''}{found} s; at {rate} fps the longest clip {terms.spec.id} takes is"
        f" {most} s. {fix}"
    )


SECONDS_WRITTEN_MAX = 10**15
"""Larger numbers are told in short: they come from callers."""


def _format_seconds(number: Fraction) -> str:
    """Return a number with three decimals at most, rounded up: what is over a limit never reads like the limit."""
    if number >= SECONDS_WRITTEN_MAX:
        return f"{float(number):g}"
    thousandths = ceil(number * 1000)
    return f"{thousandths / 1000:.3f}".rstrip("0").rstrip(".")


def _check_inline(spec: ModelSpec, place: Inline) -> None:
    most_bytes = _inline_max_bytes(spec, place.modality)
    if place.source.size_bytes > most_bytes:
        raise RowRefused(
            f"an embedded {name_file(place.modality)} exceeds the size limit (max {most_bytes // _MIB} MB)"
        )
    named = settle_format(place)
    if place.modality == "image":
        fault = find_image_fault(named, place.source)
        if fault is not None:
            raise RowRefused(fault)


def _count_clip(terms: MediaTerms, modality: Modality, length: Length) -> int:
    seconds = _taken_seconds(terms, modality, length)
    if modality == "audio":
        return count_audio_tokens(_required(terms.spec.audio), seconds)
    video = _required(terms.spec.video)
    return count_video_tokens(video, seconds, sampling_rate(video, terms.video_fps, length.frames_per_second))


def _taken_seconds(terms: MediaTerms, modality: Modality, length: Length) -> Fraction:
    """Return a clip's length, cut to the model's ceiling: what only was estimated from a host's answer refuses no row."""
    if modality == "audio":
        return min(length.seconds, Fraction(_required(terms.spec.audio).max_seconds))
    video = _required(terms.spec.video)
    rate = sampling_rate(video, terms.video_fps, length.frames_per_second)
    return min(length.seconds, Fraction(longest_video_seconds(terms.spec, video, rate)))


def _assume(terms: MediaTerms, modality: Modality, room_tokens: int) -> Length:
    if modality == "audio":
        seconds = fitting_audio_seconds(_required(terms.spec.audio), room_tokens)
    else:
        video = _required(terms.spec.video)
        rate = sampling_rate(video, terms.video_fps)
        longest = longest_video_seconds(terms.spec, video, rate)
        seconds = min(longest, fitting_video_seconds(video, rate, room_tokens))
    return Length(Fraction(seconds), "estimated")


def _inline_max_bytes(spec: ModelSpec, modality: Modality) -> int:
    if modality == "image":
        return _required(spec.image).inline_max_bytes
    return (
        _required(spec.audio).inline_max_bytes
        if modality == "audio"
        else _required(spec.video).inline_max_bytes
    )


def _required(encoder: EncoderT | None) -> EncoderT:
    """Return what the catalog says of a modality: the check of the catalog refuses a model that has one without it."""
    if encoder is None:
        raise TypeError("a modality of the model has no entry in the catalog")
    return encoder
