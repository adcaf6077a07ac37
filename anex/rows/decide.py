"""Decision lines: a text, the questions asked about it, and perhaps its language.

What the model itself refuses of a question (its type, its options) fails that row alone when it is served. Here stands what fails
the job: fields that don't exist, a ``state``, ``questions`` or ``lang`` of another type, and what is over the contract's counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from anex.rows.envelope import CustomId, OwnSettings, RowClass, read_envelope
from anex.rows.faults import RowRefused, describe_row, quote
from anex.rows.long_lines import TextTooLong, as_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anex.catalog import DecideSpec, ModelSpec
    from anex.rows.parts import MediaPart
    from anex.rows.settings import RowSettings

URL = "/v1/systemone"

State = str | dict[str, Any]

_FIELDS = frozenset({"state", "questions", "lang", "model"})
_CLASS = RowClass(thinking=False, effort=None, response_format=None)


class DecideBody(msgspec.Struct, kw_only=True, gc=False):
    """What is used of a line's body."""

    state: State
    questions: dict[str, Any]
    lang: str | None = None


class DecideLine(msgspec.Struct, kw_only=True, gc=False):
    """A checked line of a decision job."""

    custom_id: str
    body: DecideBody


class _OrdinaryBody(DecideBody, forbid_unknown_fields=True, kw_only=True, gc=False):
    questions: Annotated[dict[str, Any], msgspec.Meta(min_length=1)]
    model: Any = None


class _OrdinaryLine(DecideLine, forbid_unknown_fields=True, kw_only=True, gc=False):
    custom_id: CustomId
    method: Literal["POST"]
    url: Literal["/v1/systemone"]
    body: _OrdinaryBody


class DecideRow(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """One row as a worker runs it; ``row_number`` counts rows of the input from 1."""

    row_number: int
    custom_id: str
    state: State
    questions: dict[str, Any]
    lang: str | None


_ORDINARY = msgspec.json.Decoder(_OrdinaryLine)


def render_state(state: State) -> str:
    """Return a state as the model reads it: an object as its JSON (``laya.common.serialize_state``, 0.4.15)."""
    return state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class DecideFormat:
    """Reads and judges the lines of a decision job for one model."""

    spec: ModelSpec

    def decode_lines(self, data: bytes | memoryview) -> list[DecideLine]:
        """Decode a block of ordinary lines. Raises ``msgspec.MsgspecError`` at the first that is not."""
        lines = _ORDINARY.decode_lines(data)
        bounds = self._bounds
        if any(_find_count_fault(line.body, bounds) for line in lines):
            raise msgspec.ValidationError("a row is over the counts of the contract")
        return lines  # type: ignore[return-value]  # a list of the subclass, read only

    def may_nest(self, lines: Sequence[DecideLine]) -> bool:
        """Return whether there are any: states and questions are of the caller's own shape."""
        return bool(lines)

    def read_line(self, value: dict[str, Any]) -> DecideLine:
        """Build a line from a parsed object. Raises ``RowRefused``."""
        custom_id, body = read_envelope(value, URL, self.spec)
        extra = set(body) - _FIELDS
        if extra:
            raise RowRefused(
                f"body has the unknown field {quote(min(extra))}: a decision row takes state, questions and lang"
            )
        try:
            as_plain(body)
        except TextTooLong as text:
            fault = f"a text of {text.size_bytes >> 20} MiB is more than the model reads."
            raise RowRefused(describe_row(custom_id, fault), names_row=True) from None
        read = DecideBody(
            state=_read_state(body.get("state")),
            questions=_read_questions(body.get("questions")),
            lang=_read_language(body.get("lang")),
        )
        over = _find_count_fault(read, self._bounds)
        if over is not None:
            raise RowRefused(describe_row(custom_id, over), names_row=True)
        return DecideLine(custom_id=custom_id, body=read)

    @property
    def _bounds(self) -> DecideSpec:
        if self.spec.decide is None:
            raise TypeError("the catalog has bounds for each decision model")
        return self.spec.decide

    def make_row(self, row_number: int, line: DecideLine) -> DecideRow:
        """Return a line as a worker runs it."""
        body = line.body
        return DecideRow(
            row_number=row_number,
            custom_id=line.custom_id,
            state=body.state,
            questions=body.questions,
            lang=body.lang,
        )

    def list_media(self, lines: Sequence[DecideLine]) -> list[tuple[int, list[MediaPart]]]:  # noqa: ARG002 - the protocol's
        """Return nothing: the model reads text."""
        return []

    def list_own_settings(self, lines: Sequence[DecideLine]) -> list[tuple[int, OwnSettings]]:  # noqa: ARG002 - the protocol's
        """Return nothing: nothing is sampled."""
        return []

    def classify(self, own: OwnSettings, settings: RowSettings) -> RowClass:  # noqa: ARG002 - the protocol's
        """Return the one class there is."""
        return _CLASS


def _find_count_fault(body: DecideBody, bounds: DecideSpec) -> str | None:
    """Return what of a row is over the contract's counts."""
    if len(body.questions) > bounds.max_questions:
        return f"{len(body.questions)} questions are over the maximum of {bounds.max_questions}."
    characters = len(render_state(body.state))
    if characters > bounds.state_max_characters:
        return f"a state of {characters:,} characters is over the maximum of {bounds.state_max_characters:,}."
    return None


def _read_state(state: Any) -> State:
    if not isinstance(state, str | dict):
        raise RowRefused("body.state must be a string or an object")
    return state


def _read_questions(questions: Any) -> dict[str, Any]:
    if not isinstance(questions, dict) or not questions:
        raise RowRefused("body.questions must be an object with at least one question")
    return questions


def _read_language(language: Any) -> str | None:
    if language is not None and not isinstance(language, str):
        raise RowRefused("body.lang must be a language code such as 'de'")
    return language
