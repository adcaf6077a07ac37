"""The media of a row as an engine takes them: bytes within the request, whatever the row held."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any

import msgspec

from anex.media.tokens import sampling_rate
from anex.rows.long_lines import LongText
from anex.rows.media_items import Hosted, open_part
from anex.rows.parts import InputAudioPart, TextPart, modality_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from fractions import Fraction

    from anex.catalog import Modality, ModelSpec
    from anex.media.fetch import Fetched, MediaFetcher
    from anex.rows.parts import ContentPart, MediaPart


class TooManyItems(Exception):
    """A row carries more of a kind than its model takes."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def encode_long(value: Any) -> Any:
    """Write a ``LongText``, which is media in base64 here; an ``enc_hook`` of msgspec."""
    if isinstance(value, LongText):
        return msgspec.Raw(b"".join((b'"', value.data, b'"')))
    raise NotImplementedError


def has_hosted(parts: Iterable[MediaPart]) -> bool:
    """Whether something has to be fetched."""
    return any(isinstance(open_part(part), Hosted) for part in parts)


def check_items(spec: ModelSpec, parts: Iterable[MediaPart]) -> None:
    """Raise ``TooManyItems`` where there are more items of a kind than the model takes."""
    counts: dict[Modality, int] = {}
    for part in parts:
        modality = modality_of(part)
        counts[modality] = counts.get(modality, 0) + 1
    for modality, count in counts.items():
        encoder = {"image": spec.image, "audio": spec.audio, "video": spec.video}[modality]
        if encoder is not None and count > encoder.max_items:
            noun = {"image": "images", "audio": "audio clips", "video": "video clips"}[modality]
            raise TooManyItems(
                f"the row carries {count} {noun}; model '{spec.id}' takes {encoder.max_items} at most"
            )


def engine_parts(parts: Iterable[ContentPart], fetcher: MediaFetcher) -> list[dict[str, Any]]:
    """Return content parts with their media as ``data:`` URIs. Raises ``MediaUnavailable``."""
    return [_engine_part(part, fetcher) for part in parts]


def _engine_part(part: ContentPart, fetcher: MediaFetcher) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, InputAudioPart):
        audio = {"data": part.payload, "format": part.input_audio.format}
        return {"type": "input_audio", "input_audio": audio}
    place = open_part(part)
    kind = f"{place.modality}_url"
    url = (
        _data_uri(place.modality, fetcher.fetch(place.modality, place.address))
        if isinstance(place, Hosted)
        else part.payload
    )
    return {"type": kind, kind: {"url": url}}


def _data_uri(modality: Modality, fetched: Fetched) -> msgspec.Raw:
    text = binascii.b2a_base64(fetched.data, newline=False)
    return msgspec.Raw(
        b"".join((b'"data:', f"{modality}/{fetched.format}".encode(), b";base64,", text, b'"'))
    )


def media_options(spec: ModelSpec, video_fps: Fraction | None, parts: Iterable[MediaPart]) -> dict[str, Any]:
    """Return what an engine is told about reading a row's media: how many frames a second of its clips.

    vLLM reads it from ``media_io_kwargs``; without it, it would take a number of frames spread over the clip.
    """
    if spec.video is None or not any(modality_of(part) == "video" for part in parts):
        return {}
    frames = -1 if spec.video.max_frames is None else spec.video.max_frames
    rate = float(sampling_rate(spec.video, video_fps))
    return {"media_io_kwargs": {"video": {"fps": rate, "num_frames": frames}}}
