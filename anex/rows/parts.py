"""Content parts: text, and what is said of the parts that a model or this version doesn't take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from anex.rows.faults import RowRefused, quote

if TYPE_CHECKING:
    from anex.catalog import Modality, ModelSpec

PART_MODALITIES: dict[str, Modality] = {
    "image_url": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "video_url": "video",
}
"""The parts that carry media, by type."""


class TextPart(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A part of text."""

    type: Literal["text"]
    text: str


def read_parts(parts: list[Any], where: str, spec: ModelSpec) -> list[TextPart]:
    """Build a message's parts, in order, from parsed objects. Raises ``RowRefused``."""
    return [_read_part(part, f"{where}[{place}]", spec) for place, part in enumerate(parts)]


def _read_part(part: Any, where: str, spec: ModelSpec) -> TextPart:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise RowRefused(f"{where} must be an object with a type")
    kind = part["type"]
    if kind == "text":
        text = part.get("text")
        if not isinstance(text, str):
            raise RowRefused(f"{where}.text must be a string")
        return TextPart("text", text)
    raise RowRefused(_describe_other(kind, spec))


def _describe_other(kind: str, spec: ModelSpec) -> str:
    modality = PART_MODALITIES.get(kind)
    if modality is None:
        supported = ", ".join(("text", *PART_MODALITIES))
        return f"unsupported content part type {quote(kind)}: supported types are {supported}"
    if modality not in spec.modalities:
        return f"model '{spec.id}' has no {modality} encoder and can't read a content part of type '{kind}'"
    return (
        f"model '{spec.id}' takes {modality} input, but rows with media are not served by this version yet;"
        f" remove the content part of type '{kind}'"
    )
