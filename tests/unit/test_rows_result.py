"""Lines of a result."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anex.rows.result import OutcomeKind, RowKey, RowOutcome, classify_answer, fail_row
from anex.usage import Usage

KEY = RowKey("01ABC", 7, "row-7")
KEYS = ["id", "custom_id", "response", "error", "error_type", "usage"]
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "n", "schema": {"type": "object", "required": ["a"]}},
}


def answer(content: str | None, finish: str = "stop", **fields: Any) -> bytes:
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": "inner/name",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": content, "reasoning": None},
                    "finish_reason": finish,
                    "logprobs": None,
                    "stop_reason": None,
                }
            ],
            "usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17},
            "kv_transfer_params": None,
            **fields,
        }
    ).encode()


def classify(
    body: bytes, status: int = 200, response_format: Any = None
) -> tuple[RowOutcome, dict[str, Any]]:
    outcome = classify_answer(KEY, "our-model", status, body, response_format)
    assert outcome.line.endswith(b"\n")
    assert outcome.line.count(b"\n") == 1
    line = json.loads(outcome.line)
    assert list(line) == KEYS
    assert line["usage"] == {
        "input_tokens": outcome.usage.input_tokens,
        "output_tokens": outcome.usage.output_tokens,
    }
    assert (line["id"], line["custom_id"]) == ("row_01ABC_7", "row-7")
    return outcome, line


def test_a_success_carries_the_answer_under_our_models_name() -> None:
    outcome, line = classify(answer("hello"))
    assert (outcome.kind, outcome.usage) == (OutcomeKind.SUCCESS, Usage(12, 5))
    assert (line["error"], line["error_type"]) == (None, None)
    assert line["response"] == {
        "status_code": 200,
        "request_id": "chatcmpl-1",
        "body": {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": "our-model",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "hello"},
                    "finish_reason": "stop",
                    "logprobs": None,
                }
            ],
            "usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17},
        },
    }


def test_a_stop_on_the_cap_is_truncated_even_when_the_format_is_broken() -> None:
    outcome, line = classify(answer('{"a":', "length"), response_format=SCHEMA)
    assert (outcome.kind, outcome.usage.output_tokens, line["error"]) == (OutcomeKind.TRUNCATED, 5, None)
    assert line["response"]["body"]["choices"][0]["message"]["content"] == '{"a":'


@pytest.mark.parametrize(
    ("content", "response_format", "told"),
    [
        ("nonsense", {"type": "json_object"}, "the answer is not valid JSON"),
        ("[1]", {"type": "json_object"}, "the answer is not a JSON object"),
        (None, {"type": "json_object"}, "the answer is not valid JSON"),
        ('{"b":1}', SCHEMA, "the answer does not satisfy the schema at $"),
    ],
)
def test_an_answer_that_breaks_its_format_keeps_its_text_and_is_billed(
    content: str | None, response_format: Any, told: str
) -> None:
    outcome, line = classify(answer(content), response_format=response_format)
    assert (outcome.kind, outcome.usage) == (OutcomeKind.FORMAT_ERROR, Usage(12, 5))
    assert (line["error"], line["error_type"]) == (told, "format_error")
    assert line["response"]["status_code"] == 200
    assert line["response"]["body"]["choices"][0]["message"]["content"] == content


@pytest.mark.parametrize("content", ['{"a":1}', '{"a":null,"b":[]}'])
def test_an_answer_that_keeps_its_format_is_a_success(content: str) -> None:
    assert classify(answer(content), response_format=SCHEMA)[0].kind is OutcomeKind.SUCCESS
    assert classify(answer(content), response_format={"type": "json_object"})[0].kind is OutcomeKind.SUCCESS


@pytest.mark.parametrize(
    ("status", "body", "error", "error_type", "shown"),
    [
        (400, {"error": {"message": "bad field", "code": 400}}, "bad field", "invalid_request_error", 400),
        (
            400,
            {"error": {"message": "This model's maximum context length is 10 tokens."}},
            "This model's maximum context length is 10 tokens.",
            "context_error",
            400,
        ),
        (500, {"message": "boom"}, "boom", "engine_error", 500),
        (503, "not an object", "the engine's answer could not be read", "engine_error", 503),
        (200, None, "the engine's answer could not be read", "engine_error", 502),
        (200, {"choices": []}, "the engine's answer could not be read", "engine_error", 502),
        (
            200,
            {"choices": [{"message": {"content": "x"}}]},
            "the engine's answer could not be read",
            "engine_error",
            502,
        ),
    ],
)
def test_a_failed_row_with_an_answer_bills_nothing(
    status: int, body: Any, error: str, error_type: str, shown: int
) -> None:
    outcome, line = classify(json.dumps(body).encode() if body is not None else b"<html>", status)
    assert (outcome.kind, outcome.usage) == (OutcomeKind.ERROR, Usage())
    assert (line["error"], line["error_type"]) == (error, error_type)
    assert line["response"]["status_code"] == shown
    assert line["response"]["body"]["error"]["message"] == error


def test_a_row_without_an_answer_has_no_response() -> None:
    outcome = fail_row(KEY, "the engine died", "engine_error")
    line = json.loads(outcome.line)
    assert list(line) == KEYS
    assert line["response"] is None
    assert (line["error"], line["error_type"], outcome.kind) == (
        "the engine died",
        "engine_error",
        OutcomeKind.ERROR,
    )
    assert line["usage"] == {"input_tokens": 0, "output_tokens": 0}


def test_line_ends_and_control_characters_are_escaped() -> None:
    text = "a\u2028b\u2029c\u0085d\x7fe\x9ff\x00g\nh é 漢 \u20ac"
    outcome, line = classify(answer(text))
    assert line["response"]["body"]["choices"][0]["message"]["content"] == text
    written = outcome.line.decode()
    assert not set(written[:-1]) & {"\u2028", "\u2029", "\u0085", "\x7f", "\x9f", "\x00", "\n"}
    assert "é 漢 €" in written
    assert len(written.splitlines()) == 1


def test_a_schema_can_neither_fetch_nor_hang_nor_run_an_expression() -> None:
    def kind(schema: Any, content: str) -> OutcomeKind:
        wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        return classify(answer(content), response_format=wanted)[0].kind

    assert kind({"$ref": "https://example.com/schema.json"}, "1") is OutcomeKind.FORMAT_ERROR
    assert kind({"$ref": "#"}, "1") is OutcomeKind.FORMAT_ERROR
    assert kind({"type": "string", "pattern": "^(a+)+$"}, f'"{"a" * 5000}!"') is OutcomeKind.SUCCESS
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    doubling["d60"] = {}
    assert kind({"$defs": doubling, "$ref": "#/$defs/d0"}, "1") is OutcomeKind.FORMAT_ERROR
    nested: Any = {"type": "array"}
    for _ in range(15):
        nested = {"items": {"anyOf": [nested, nested]}}
    assert kind(nested, "[" * 16 + "]" * 16) is OutcomeKind.SUCCESS
    properties = {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}
    assert kind(properties, f'{{"{"a" * 5000}!":1}}') is OutcomeKind.SUCCESS
    assert kind({"additionalProperties": False}, '{"a":1}') is OutcomeKind.FORMAT_ERROR
