"""What an engine is asked for a row."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from anex.catalog import Reasoning
from anex.rows.chat import ChatFormat
from anex.rows.decode import iterate_rows
from anex.rows.requests import PRIORITY_RUN, ChatTerms, chat_request
from anex.rows.settings import RowSettings
from tests.support.row_samples import chat_line, chat_spec

THINKER = replace(chat_spec(), reasoning=Reasoning(("low", "high"), "high", 64))


def request_of(body: dict[str, Any], terms: ChatTerms, input_tokens: int = 10) -> dict[str, Any]:
    line = chat_line("a", body={"messages": [{"role": "user", "content": "hi"}], **body})
    (row,) = iterate_rows([line], ChatFormat(terms.spec), start_byte=0, first_line=1, first_row=1)
    request = chat_request(terms, row, input_tokens)
    assert request.path == "/v1/chat/completions"
    asked: dict[str, Any] = json.loads(request.body)
    return asked


def terms(**changes: Any) -> ChatTerms:
    return replace(ChatTerms(chat_spec(), RowSettings(), 100, None, PRIORITY_RUN), **changes)


def test_a_plain_row_asks_for_no_more_than_its_conversation_and_cap() -> None:
    assert request_of({"temperature": 2, "max_tokens": 5, "model": "x", "zz": 1}, terms()) == {
        "model": "test-chat",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 100,
        "priority": 3,
    }


@pytest.mark.parametrize(("input_tokens", "cap"), [(900, 100), (901, 99), (999, 1)])
def test_the_cap_is_lowered_to_what_is_left_of_the_context(input_tokens: int, cap: int) -> None:
    assert request_of({}, terms(), input_tokens)["max_tokens"] == cap


def test_a_rows_settings_win_over_the_jobs() -> None:
    job = RowSettings(reasoning=True, reasoning_effort="high", response_format={"type": "json_object"})
    thinking = terms(spec=THINKER, settings=job, cap=500, budget=300)
    asked = request_of({}, thinking)
    assert asked["chat_template_kwargs"] == {"enable_thinking": True}
    assert (asked["reasoning_effort"], asked["thinking_token_budget"]) == ("high", 300)
    assert asked["response_format"] == {"type": "json_object"}
    own = {
        "chat_template_kwargs": {"reasoning_effort": "low", "other": [1]},
        "response_format": {"type": "text"},
    }
    asked = request_of(own, thinking)
    assert asked["chat_template_kwargs"] == {"enable_thinking": True, "other": [1]}
    assert asked["reasoning_effort"] == "low"
    assert "response_format" not in asked


def test_a_row_with_thinking_off_has_neither_budget_nor_effort() -> None:
    job = RowSettings(reasoning_effort="high")
    asked = request_of(
        {"chat_template_kwargs": {"enable_thinking": False}},
        terms(spec=THINKER, settings=job, cap=500, budget=300),
    )
    assert asked["chat_template_kwargs"] == {"enable_thinking": False}
    assert not {"reasoning_effort", "thinking_token_budget"} & set(asked)


def test_a_budget_leaves_room_for_notice_and_answer_in_a_lowered_cap() -> None:
    asked = request_of({}, terms(spec=THINKER, cap=500, budget=400), 800)
    assert (asked["max_tokens"], asked["thinking_token_budget"]) == (200, 135)
    assert "thinking_token_budget" not in request_of({}, terms(spec=THINKER, cap=500, budget=0))
