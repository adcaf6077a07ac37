"""Content parts: text, and the parts that carry media by address or within the line.

The shapes are OpenAI's. Of a part's own fields the ones below are used; the rest (``detail``, ``uuid``) is not carried through.
What the media themselves are is another question (``anex.rows.media``).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec

from anex.rows.faults import RowRefused, describe_length, quote
from anex.rows.long_lines import TOKEN_MAX_BYTES, LongText

if TYPE_CHECKING:
    from collections.abc import Callable

    from anex.catalog import Modality, ModelSpec
    from anex.rows.long_lines import TextTooLong

PART_MODALITIES: dict[str, Modality] = {
    "image_url": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "video_url": "video",
}
"""The parts that carry media, by type."""

Payload = str | LongText
"""An address, or media in base64."""

Seconds = Annotated[float, msgspec.Meta(gt=0)]
NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class TextPart(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True, gc=False):
    """A part of text."""

    text: str


class Address(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Where an image is, or the image itself as a ``data:`` URI."""

    url: NonEmpty
    """A ``LongText`` in a long line, for all that its type says; see ``MediaPart.payload``."""


class ClipAddress(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Where a clip is, or the clip itself as a ``data:`` URI."""

    url: NonEmpty
    duration_seconds: Seconds | None = None


class InlineAudio(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Audio within the line, in base64."""

    data: NonEmpty
    format: NonEmpty
    duration_seconds: Seconds | None = None


class ImagePart(msgspec.Struct, tag_field="type", tag="image_url", forbid_unknown_fields=True, gc=False):
    """An image."""

    image_url: Address

    @property
    def payload(self) -> Payload:
        """The address or the ``data:`` URI."""
        return cast("Payload", self.image_url.url)

    @property
    def declared_seconds(self) -> None:
        """An image lasts no time."""
        return


class AudioPart(msgspec.Struct, tag_field="type", tag="audio_url", forbid_unknown_fields=True, gc=False):
    """An audio clip by address."""

    audio_url: ClipAddress

    @property
    def payload(self) -> Payload:
        """The address or the ``data:`` URI."""
        return cast("Payload", self.audio_url.url)

    @property
    def declared_seconds(self) -> float | None:
        """Its length, where its owner states one."""
        return self.audio_url.duration_seconds


class VideoPart(msgspec.Struct, tag_field="type", tag="video_url", forbid_unknown_fields=True, gc=False):
    """A video clip by address."""

    video_url: ClipAddress

    @property
    def payload(self) -> Payload:
        """The address or the ``data:`` URI."""
        return cast("Payload", self.video_url.url)

    @property
    def declared_seconds(self) -> float | None:
        """Its length, where its owner states one."""
        return self.video_url.duration_seconds


class InputAudioPart(
    msgspec.Struct, tag_field="type", tag="input_audio", forbid_unknown_fields=True, gc=False
):
    """An audio clip within the line."""

    input_audio: InlineAudio

    @property
    def payload(self) -> Payload:
        """The clip in base64."""
        return cast("Payload", self.input_audio.data)

    @property
    def declared_seconds(self) -> float | None:
        """Its length, where its owner states one."""
        return self.input_audio.duration_seconds


MediaPart = ImagePart | AudioPart | VideoPart | InputAudioPart
ContentPart = TextPart | MediaPart


def modality_of(part: MediaPart) -> Modality:
    """Return what a part's encoder would have to read."""
    return PART_MODALITIES[type_of(part)]


def type_of(part: MediaPart) -> str:
    """Return a part's ``type``."""
    return str(part.__struct_config__.tag)


def require_encoder(kind: str, spec: ModelSpec) -> None:
    """Raise ``RowRefused`` where a model can't read a type of parts with media."""
    modality = PART_MODALITIES[kind]
    if modality not in spec.modalities:
        raise RowRefused(
            f"model '{spec.id}' has no {modality} encoder and can't read a content part of type '{kind}'"
        )


def plain_part(part: ContentPart) -> dict[str, Any]:
    """Return a part as chat templates read it: of media, only what they are."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    return {"type": modality_of(part)}


def as_text(value: Any) -> str | None:
    """Return a parsed value as a text, None where it is none. Raises ``TextTooLong``."""
    if isinstance(value, LongText):
        return value.text()
    return value if isinstance(value, str) else None


def refuse_text(custom_id: str, text: TextTooLong, spec: ModelSpec) -> RowRefused:
    """Return the refusal of a row that holds such a text; its tokens are never counted."""
    least = f"at least {text.size_bytes // TOKEN_MAX_BYTES:,}"
    return RowRefused(describe_length(custom_id, least, spec), names_row=True)


def read_parts(parts: list[Any], where: str, spec: ModelSpec) -> list[ContentPart]:
    """Build parts, in order, from parsed objects. Raises ``RowRefused``."""
    return [_read_part(part, f"{where}[{place}]", spec) for place, part in enumerate(parts)]


def _read_part(part: Any, where: str, spec: ModelSpec) -> ContentPart:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise RowRefused(f"{where} must be an object with a type")
    kind = part["type"]
    if kind == "text":
        text = as_text(part.get("text"))
        if text is None:
            raise RowRefused(f"{where}.text must be a string")
        return TextPart(text)
    if kind not in PART_MODALITIES:
        supported = ", ".join(("text", *PART_MODALITIES))
        raise RowRefused(f"unsupported content part type {quote(kind)}: supported types are {supported}")
    require_encoder(kind, spec)
    fields, where = part.get(kind), f"{where}.{kind}"
    if not isinstance(fields, dict):
        raise RowRefused(f"{where} must be an object")
    return _BUILDERS[kind](fields, where)


def _read_image(fields: dict[str, Any], where: str) -> ImagePart:
    return ImagePart(Address(_require_payload(fields, "url", where)))


def _read_audio(fields: dict[str, Any], where: str) -> AudioPart:
    return AudioPart(ClipAddress(_require_payload(fields, "url", where), _read_seconds(fields, where)))


def _read_video(fields: dict[str, Any], where: str) -> VideoPart:
    return VideoPart(ClipAddress(_require_payload(fields, "url", where), _read_seconds(fields, where)))


def _read_input_audio(fields: dict[str, Any], where: str) -> InputAudioPart:
    named = fields.get("format")
    if not isinstance(named, str) or not named:
        raise RowRefused(f"{where}.format must be a string such as 'wav' or 'mp3'")
    return InputAudioPart(
        InlineAudio(_require_payload(fields, "data", where), named, _read_seconds(fields, where))
    )


_BUILDERS: dict[str, Callable[[dict[str, Any], str], MediaPart]] = {
    "image_url": _read_image,
    "audio_url": _read_audio,
    "video_url": _read_video,
    "input_audio": _read_input_audio,
}


def _require_payload(fields: dict[str, Any], field: str, where: str) -> str:
    value = fields.get(field)
    if isinstance(value, LongText):
        # msgspec knows no such type and Python asks for none: ``MediaPart.payload`` is how it is read.
        return cast("str", value)
    if not isinstance(value, str) or not value:
        raise RowRefused(f"{where}.{field} must be a non-empty string")
    return value


def _read_seconds(fields: dict[str, Any], where: str) -> float | None:
    value = fields.get("duration_seconds")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_positive(value):
        raise RowRefused(f"{where}.duration_seconds must be a positive number")
    return float(value)


def _is_positive(value: float) -> bool:
    try:
        return math.isfinite(value) and value > 0
    except OverflowError:  # an integer of hundreds of digits
        return False
