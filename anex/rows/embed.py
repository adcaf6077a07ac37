"""Embedding lines: one text, or on models that take media one list of content parts, and the width of its vector.

Of a body ``input`` and ``dimensions`` are used, ``encoding_format`` may say nothing but "float", and a chat's ``messages`` are a
mistake; the rest is not carried through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from anex.rows.envelope import CustomId, Flat, OwnSettings, RowClass, read_envelope
from anex.rows.faults import RowRefused
from anex.rows.long_lines import TextTooLong
from anex.rows.parts import ContentPart, MediaPart, TextPart, as_text, plain_part, read_parts, refuse_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anex.catalog import ModelSpec
    from anex.rows.settings import RowSettings

URL = "/v1/embeddings"

LIST_REFUSED = "embeddings input must be a single string per row, not a list (submit one row per input)"
MESSAGES_REFUSED = "an embeddings request carries 'input', not 'messages'"


class EmbedBody(msgspec.Struct, kw_only=True, gc=False):
    """What is used of a line's body."""

    input: str | list[ContentPart]
    dimensions: int | None = None


class EmbedLine(msgspec.Struct, kw_only=True, gc=False):
    """A checked line of an embedding job."""

    custom_id: str
    body: EmbedBody


class _OrdinaryBody(EmbedBody, forbid_unknown_fields=True, kw_only=True, gc=False):
    # Parts and widths have rules of their own; rows with them are read one by one.
    input: Annotated[str, msgspec.Meta(min_length=1)]
    dimensions: None = None
    encoding_format: Literal["float"] | None = None
    model: Flat = None
    user: Flat = None


class _OrdinaryLine(EmbedLine, forbid_unknown_fields=True, kw_only=True, gc=False):
    custom_id: CustomId
    method: Literal["POST"]
    url: Literal["/v1/embeddings"]
    body: _OrdinaryBody


class EmbedRow(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """One row as a worker runs it; ``row_number`` counts rows of the input from 1."""

    row_number: int
    custom_id: str
    input: str | list[ContentPart]
    dimensions: int | None

    def list_media(self) -> list[MediaPart]:
        """Return the parts that carry media, in their order."""
        return _list_media(self.input)

    def plain_message(self) -> dict[str, Any]:
        """Return the row as the one message that a chat template reads: of media, which kind stands where."""
        content = self.input if isinstance(self.input, str) else [plain_part(part) for part in self.input]
        return {"role": "user", "content": content}


_ORDINARY = msgspec.json.Decoder(_OrdinaryLine)
_CLASS = RowClass(thinking=False, effort=None, response_format=None)


@dataclass(frozen=True, slots=True)
class EmbedFormat:
    """Reads and judges the lines of an embedding job for one model."""

    spec: ModelSpec

    def decode_lines(self, data: bytes | memoryview) -> list[EmbedLine]:
        """Decode a block of ordinary lines. Raises ``msgspec.MsgspecError`` at the first that is not."""
        return _ORDINARY.decode_lines(data)  # type: ignore[return-value]  # a list of the subclass, read only

    def may_nest(self, lines: Sequence[EmbedLine]) -> bool:
        """Never: an ordinary row is a text."""
        del lines
        return False

    def read_line(self, value: dict[str, Any]) -> EmbedLine:
        """Build a line from a parsed object. Raises ``RowRefused``."""
        custom_id, body = read_envelope(value, URL, self.spec)
        if body.get("messages") is not None:
            raise RowRefused(MESSAGES_REFUSED)
        if body.get("encoding_format") not in (None, "float"):
            raise RowRefused("body.encoding_format must be 'float'")
        try:
            given = _read_input(body.get("input"), self.spec)
        except TextTooLong as text:
            raise refuse_text(custom_id, text, self.spec) from None
        return EmbedLine(
            custom_id=custom_id, body=EmbedBody(input=given, dimensions=_read_width(body, self.spec))
        )

    def make_row(self, row_number: int, line: EmbedLine) -> EmbedRow:
        """Return a line as a worker runs it."""
        return EmbedRow(
            row_number=row_number,
            custom_id=line.custom_id,
            input=line.body.input,
            dimensions=line.body.dimensions,
        )

    def list_media(self, lines: Sequence[EmbedLine]) -> list[tuple[int, list[MediaPart]]]:
        """Return the places and the media of rows that carry some."""
        found = ((place, _list_media(line.body.input)) for place, line in enumerate(lines))
        return [(place, media) for place, media in found if media]

    def list_own_settings(self, lines: Sequence[EmbedLine]) -> list[tuple[int, OwnSettings]]:  # noqa: ARG002 - the protocol's
        """Return nothing: a width makes no row another kind of row."""
        return []

    def classify(self, own: OwnSettings, settings: RowSettings) -> RowClass:  # noqa: ARG002 - the protocol's
        """Return the one class there is."""
        return _CLASS


def _list_media(given: str | list[ContentPart]) -> list[MediaPart]:
    return [] if isinstance(given, str) else [part for part in given if not isinstance(part, TextPart)]


def _read_input(given: Any, spec: ModelSpec) -> str | list[ContentPart]:
    if isinstance(given, list):
        return _read_list(given, spec)
    text = as_text(given)
    if not text:
        also = " or a list of content parts" if spec.modalities else ""
        raise RowRefused(f"body.input must be a non-empty string{also}")
    return text


def _read_list(given: list[Any], spec: ModelSpec) -> list[ContentPart]:
    if not all(isinstance(each, dict) for each in given):
        raise RowRefused(LIST_REFUSED)
    parts = read_parts(given, "body.input", spec)
    if not spec.modalities:
        raise RowRefused(f"body.input must be a non-empty string: model '{spec.id}' takes no content parts")
    if all(isinstance(part, TextPart) and not part.text for part in parts):
        raise RowRefused("body.input must hold at least one part with media or with text that is not empty")
    return parts


def _read_width(body: dict[str, Any], spec: ModelSpec) -> int | None:
    width = body.get("dimensions")
    if width is None:
        return None
    if spec.dimensions is None:
        raise RowRefused(f"body.dimensions: model '{spec.id}' has one width only; leave dimensions out")
    least, most = spec.dimensions.min_width, spec.dimensions.max_width
    if isinstance(width, bool) or not isinstance(width, int) or not least <= width <= most:
        raise RowRefused(f"body.dimensions must be an integer from {least} to {most} for model '{spec.id}'")
    return width
