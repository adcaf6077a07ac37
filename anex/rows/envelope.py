"""What every line has, whatever its kind: ``custom_id``, ``method``, ``url`` and ``body``.

A kind (chat, and beside it embeddings and decisions) gives a ``LineFormat``. Each format reads lines in two
ways. The fast one decodes a block of lines into typed structs that accept nothing but well-known fields of
the right type, so msgspec looks at every byte. When it refuses, the careful one reads line by line, says what
is wrong, and lets through what is only unknown. The careful way is the rule; the fast way must accept no line
that the careful one refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol, TypeVar

import msgspec

from anex.rows.faults import RowRefused, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anex.catalog import ModelSpec
    from anex.rows.parts import MediaPart
    from anex.rows.settings import RowSettings


CUSTOM_ID_MAX_CHARACTERS = 512

CustomId = Annotated[str, msgspec.Meta(min_length=1, max_length=CUSTOM_ID_MAX_CHARACTERS)]

Flat = str | int | float | bool | None
"""A field that nothing depends on, as ordinary files have it. One that holds a list or an object is read carefully."""


class RowClass(NamedTuple):
    """What sorts rows for sampling beside their length: rows of one class are answered in the same manner."""

    thinking: bool
    effort: str | None
    response_format: str | None
    """The format's ``type``, None for plain text."""


class OwnSettings(NamedTuple):
    """What a row sets by itself, as parsed; None where it sets nothing."""

    template_kwargs: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None


class Line(Protocol):
    """A checked line. Kinds add their ``body``."""

    @property
    def custom_id(self) -> str:
        """The caller's name for the row."""


class Row(Protocol):
    """A line as a worker runs it. Kinds add what they run."""

    @property
    def row_number(self) -> int:
        """Its place among the rows of the input, from 1."""

    @property
    def custom_id(self) -> str:
        """The caller's name for the row."""


LineT = TypeVar("LineT", bound=Line)
RowT_co = TypeVar("RowT_co", bound=Row, covariant=True)


class LineFormat(Protocol[LineT, RowT_co]):
    """How the lines of one kind are read and judged."""

    def decode_lines(self, data: bytes | memoryview) -> list[LineT]:
        """Decode a block of ordinary lines. Raises ``msgspec.MsgspecError`` at the first that is not."""

    def may_nest(self, lines: Sequence[LineT]) -> bool:
        """Whether ordinary lines hold values whose shape is the caller's own: nothing else can nest deeply."""

    def read_line(self, value: dict[str, Any]) -> LineT:
        """Build a line from a parsed object, unknown fields left out. Raises ``RowRefused``."""

    def make_row(self, row_number: int, line: LineT) -> RowT_co:
        """Return a line as a worker runs it."""

    def list_media(self, lines: Sequence[LineT]) -> list[tuple[int, list[MediaPart]]]:
        """Return the places of the rows that carry media, and what they carry."""

    def list_own_settings(self, lines: Sequence[LineT]) -> list[tuple[int, OwnSettings]]:
        """Return the places of the rows that set something by themselves, and what they set."""

    def classify(self, own: OwnSettings, settings: RowSettings) -> RowClass:
        """Check a row's own settings, with a well-formed format, against model and job. Raises ``RowRefused``."""


def read_envelope(value: dict[str, Any], url: str, spec: ModelSpec) -> tuple[str, dict[str, Any]]:
    """Return ``custom_id`` and ``body`` of a parsed line. Raises ``RowRefused``."""
    custom_id = value.get("custom_id")
    if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= CUSTOM_ID_MAX_CHARACTERS:
        raise RowRefused(f"custom_id must be a string of 1 to {CUSTOM_ID_MAX_CHARACTERS} characters")
    if value.get("method") != "POST":
        raise RowRefused("method must be 'POST'")
    if value.get("url") != url:
        asked = value.get("url")
        found = f", not {quote(asked)}" if isinstance(asked, str) else ""
        raise RowRefused(f"url must be '{url}' in every line for model '{spec.id}'{found}")
    body = value.get("body")
    if not isinstance(body, dict):
        raise RowRefused("body must be an object")
    return custom_id, body
