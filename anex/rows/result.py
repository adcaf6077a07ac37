"""One line of a result for one row, whatever became of it.

Every line has the same keys in the same order. Characters that some readers take for line ends or that
terminals act on (U+2028, U+2029, U+0085, U+007F to U+009F; those below U+0020 by JSON's own rule) are written
as escapes, so that a line is a line to every reader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from anex.rows.response_format import find_answer_fault
from anex.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

ErrorType = Literal[
    "invalid_request_error", "media_error", "format_error", "context_error", "engine_error", "timeout_error"
]

_CONTEXT_PHRASES = ("maximum context length", "maximum model length", "max_model_len")
_UNREADABLE_STATUS = 502
_KEPT_NULLS = frozenset({"content", "finish_reason", "refusal", "logprobs"})
"""Null fields that OpenAI's own answers carry; every other null is an engine's own and is dropped."""
_ESCAPED = re.compile(rb"\xe2\x80[\xa8\xa9]|\xc2[\x80-\x9f]|\x7f")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class OutcomeKind(StrEnum):
    """The four counts of a finished job."""

    SUCCESS = "success"
    ERROR = "error"
    FORMAT_ERROR = "format_error"
    TRUNCATED = "truncated"


@dataclass(frozen=True, slots=True)
class RowKey:
    """Which row a line is for. ``job_suffix`` is the job id behind its prefix."""

    job_suffix: str
    row_number: int
    custom_id: str

    @property
    def result_id(self) -> str:
        """The line's ``id``."""
        return f"row_{self.job_suffix}_{self.row_number}"


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """A line of the result, newline included, and what it counts and bills as."""

    line: bytes
    kind: OutcomeKind
    usage: Usage


def classify_answer(
    key: RowKey, model_id: str, status: int, body: bytes, response_format: Mapping[str, Any] | None
) -> RowOutcome:
    """Make a row's line of an engine's answer to a chat request.

    ``response_format`` is what constrained the row (``settings.row_format``). A generation that stopped on
    its cap is truncated, constrained or not; one that ended by itself and breaks its format is a format
    error. Both are billed.
    """
    answer = _parse_object(body)
    if status >= 400:  # noqa: PLR2004 - where HTTP's errors begin
        return _fail_answered(key, status, answer)
    choice = _first_choice(answer)
    usage = _read_usage(answer)
    if answer is None or choice is None or usage is None:
        return _fail_answered(key, _UNREADABLE_STATUS, None)
    cleaned = _drop_engine_nulls(answer)
    cleaned["model"] = model_id
    if choice.get("finish_reason") == "length":
        return _answered(key, cleaned, OutcomeKind.TRUNCATED, usage, None)
    fault = find_answer_fault(response_format, choice["message"].get("content"))
    kind = OutcomeKind.SUCCESS if fault is None else OutcomeKind.FORMAT_ERROR
    return _answered(key, cleaned, kind, usage, fault)


def bill_media(outcome: RowOutcome, media: Usage) -> RowOutcome:
    """Add the media of a row to what it is billed; ``media`` is what its input was counted as.

    Of the tokens that the engine counted, those beyond the row's text are the media's.
    """
    if outcome.kind == OutcomeKind.ERROR or not media.images + media.clips:
        return outcome
    text_tokens = media.input_tokens - media.media_tokens
    usage = replace(
        media,
        input_tokens=outcome.usage.input_tokens,
        output_tokens=outcome.usage.output_tokens,
        media_tokens=max(0, outcome.usage.input_tokens - text_tokens),
    )
    return replace(outcome, usage=usage)


def answer_row(key: RowKey, request_id: str, body: Mapping[str, Any], usage: Usage) -> RowOutcome:
    """Make the line of a row that was answered with ``body``."""
    response = {"status_code": 200, "request_id": request_id, "body": body}
    counts = (usage.input_tokens, usage.output_tokens)
    return RowOutcome(_write_line(key, response, None, None, counts), OutcomeKind.SUCCESS, usage)


def fail_answered(key: RowKey, status: int, body: bytes) -> RowOutcome:
    """Make the line of a row that the engine answered with an error; ``status`` below 400: with something unreadable."""
    if status < 400:  # noqa: PLR2004 - where HTTP's errors begin
        return _fail_answered(key, _UNREADABLE_STATUS, None)
    return _fail_answered(key, status, _parse_object(body))


def fail_row(key: RowKey, error: str, error_type: ErrorType) -> RowOutcome:
    """Make the line of a row that never got an answer."""
    return _failed(key, None, error, error_type)


def _answered(
    key: RowKey, body: dict[str, Any], kind: OutcomeKind, usage: tuple[int, int], fault: str | None
) -> RowOutcome:
    response = {
        "status_code": 200,
        "request_id": str(body.get("id") or key.result_id),
        "body": body,
    }
    line = _write_line(key, response, fault, "format_error" if fault is not None else None, usage)
    return RowOutcome(line, kind, Usage(*usage))


def _fail_answered(key: RowKey, status: int, answer: dict[str, Any] | None) -> RowOutcome:
    """Make the line of an error answer: its message and type, and a body of OpenAI's shape."""
    message = _read_message(answer)
    error_type: ErrorType = "engine_error"
    if status < 500:  # noqa: PLR2004 - the request's own fault
        too_long = any(phrase in message for phrase in _CONTEXT_PHRASES)
        error_type = "context_error" if too_long else "invalid_request_error"
    body = {"error": {"message": message, "type": error_type}}
    return _failed(
        key, {"status_code": status, "request_id": key.result_id, "body": body}, message, error_type
    )


def _failed(key: RowKey, response: dict[str, Any] | None, error: str, error_type: ErrorType) -> RowOutcome:
    return RowOutcome(_write_line(key, response, error, error_type, (0, 0)), OutcomeKind.ERROR, Usage())


def _write_line(
    key: RowKey,
    response: dict[str, Any] | None,
    error: str | None,
    error_type: ErrorType | None,
    usage: tuple[int, int],
) -> bytes:
    line = _encode(
        {
            "id": key.result_id,
            "custom_id": key.custom_id,
            "response": response,
            "error": error,
            "error_type": error_type,
            "usage": {"input_tokens": usage[0], "output_tokens": usage[1]},
        }
    )
    return escape_line(line) + b"\n"


def escape_line(line: bytes) -> bytes:
    """Write as escapes the characters of a JSON text that pass for line ends or control a terminal."""
    if line.isascii() and b"\x7f" not in line:
        return line
    return _ESCAPED.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), line)


def _parse_object(body: bytes) -> dict[str, Any] | None:
    try:
        answer = _decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _first_choice(answer: dict[str, Any] | None) -> dict[str, Any] | None:
    choices = (answer or {}).get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    return choices[0] if isinstance(choices[0].get("message"), dict) else None


def _read_usage(answer: dict[str, Any] | None) -> tuple[int, int] | None:
    usage = (answer or {}).get("usage")
    if not isinstance(usage, dict):
        return None
    counts = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return counts if isinstance(counts[0], int) and isinstance(counts[1], int) else None  # type: ignore[return-value]


def _read_message(answer: dict[str, Any] | None) -> str:
    error = (answer or {}).get("error")
    message = error.get("message") if isinstance(error, dict) else (answer or {}).get("message")
    return message if isinstance(message, str) and message else "the engine's answer could not be read"


def _drop_engine_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _drop_engine_nulls(item)
            for key, item in value.items()
            if item is not None or key in _KEPT_NULLS
        }
    return [_drop_engine_nulls(item) for item in value] if isinstance(value, list) else value
