"""Decision requests to an engine, for rows that are asked the same, and the lines of a result made of its answers.

An engine answers ``{"data": [...]}``: for each row, in their order, an answer object or ``{"error": {"message", "code"}}``, since a
question that the model refuses may fail one row and not its neighbour, whom another checkpoint reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from anex.rows.decide import URL
from anex.rows.result import answer_row, fail_answered
from anex.services import EngineRequest
from anex.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anex.catalog import ModelSpec
    from anex.rows.decide import DecideRow
    from anex.rows.result import RowKey, RowOutcome

_REFUSED_STATUS = 422

_encode = msgspec.json.Encoder().encode


class _Usage(msgspec.Struct):
    input_tokens: int


class _Routing(msgspec.Struct):
    model: str
    reason: str


class _Error(msgspec.Struct):
    message: str
    code: int = _REFUSED_STATUS


class _Entry(msgspec.Struct):
    """A row's answer, or its error."""

    answers: dict[str, Any] | None = None
    usage: _Usage | None = None
    routing: _Routing | None = None
    error: _Error | None = None


class _Answer(msgspec.Struct):
    data: list[_Entry]


_ANSWER = msgspec.json.Decoder(_Answer)


def questions_key(row: DecideRow) -> bytes:
    """Return what is equal for rows that are asked the same: their options' order counts, it is the model's too."""
    return _encode(row.questions)


def decisions_request(spec: ModelSpec, rows: Sequence[DecideRow], priority: int) -> EngineRequest:
    """Return the request for rows that are asked the same."""
    body = {
        "model": spec.id,
        "questions": rows[0].questions,
        "rows": [{"state": row.state, "lang": row.lang} for row in rows],
        "priority": priority,
    }
    return EngineRequest(URL, _encode(body), rows=len(rows))


def read_decisions(answer: bytes, model_id: str, keys: Sequence[RowKey]) -> list[RowOutcome] | None:
    """Make each row's line of an engine's answer; None where that is not one answer or error for each row."""
    try:
        entries = _ANSWER.decode(answer).data
    except msgspec.MsgspecError:
        return None
    if len(entries) != len(keys):
        return None
    outcomes = [_read_entry(entry, model_id, key) for entry, key in zip(entries, keys, strict=True)]
    return None if None in outcomes else [outcome for outcome in outcomes if outcome is not None]


def _read_entry(entry: _Entry, model_id: str, key: RowKey) -> RowOutcome | None:
    if entry.error is not None:
        return fail_answered(key, entry.error.code, _encode({"error": {"message": entry.error.message}}))
    if entry.answers is None or entry.usage is None or entry.routing is None:
        return None
    usage = Usage(input_tokens=entry.usage.input_tokens)
    body = {
        "model": model_id,
        "answers": entry.answers,
        "usage": {"input_tokens": usage.input_tokens, "output_tokens": 0},
        "routing": {"model": entry.routing.model, "reason": entry.routing.reason},
    }
    return answer_row(key, key.result_id, body, usage)
