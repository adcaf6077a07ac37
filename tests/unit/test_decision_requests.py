"""Rows of a decision job in requests, and an engine's answers in lines."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from anex.jobs.asking import STATES_OPEN_MAX, STATES_TOGETHER_MAX, Asked, DecideAsker
from anex.rows.decide import DecideRow
from anex.rows.decisions import read_decisions
from anex.rows.result import OutcomeKind, RowKey
from tests.support.engines import find_test_model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anex.jobs.asking import Prepared

ASKER = DecideAsker("job_01", find_test_model("fake-decide"))
KEYS = [RowKey("01", number, f"row-{number}") for number in (1, 2)]
ANSWER = {
    "model": "engine-only",
    "answers": {"q": {"type": "noul", "noul": 0.25, "confidence": 0.75, "further": None}},
    "usage": {"input_tokens": 7, "output_tokens": 0, "truncated": False},
    "routing": {"model": "english", "reason": "English Latin text", "detection": None},
}
REFUSAL = {"error": {"message": "question 'q': no", "type": "invalid_request_error", "code": 422}}


def row(number: int, questions: dict[str, Any]) -> DecideRow:
    return DecideRow(row_number=number, custom_id="", state="x", questions=questions, lang=None)


def numbers(prepared: Iterable[Prepared | None]) -> list[tuple[int, ...]]:
    return [asked.row_numbers for asked in prepared if isinstance(asked, Asked)]


def test_rows_with_the_same_questions_share_requests_and_each_row_is_asked_for_once() -> None:
    rows = [row(number, {"q": {"criteria": ["a", "b"][:: 1 - 2 * (number % 2)]}}) for number in range(70)]
    asked = numbers(ASKER.ask(rows))
    assert [len(group) for group in asked] == [STATES_TOGETHER_MAX, STATES_TOGETHER_MAX, 3, 3]
    assert all(len({number % 2 for number in group}) == 1 for group in asked)
    assert sorted(number for group in asked for number in group) == list(range(70))


def test_rows_that_find_no_others_do_not_gather_without_end() -> None:
    taken = count()
    asked = ASKER.ask(row(next(taken), {"q": {"instructions": number}}) for number in count())
    first = [next(asked) for _ in range(3)]
    assert numbers(first) == [(0,), (1,), (2,)]
    assert next(taken) == STATES_OPEN_MAX + 2


def test_a_request_that_failed_is_asked_again_row_by_row() -> None:
    [asked] = [each for each in ASKER.ask([row(1, {"q": 1}), row(2, {"q": 1})]) if isinstance(each, Asked)]
    assert asked.request.rows == 2
    assert numbers(asked.split()) == [(1,), (2,)]


def test_a_line_holds_what_the_contract_names_and_answers_keep_what_is_the_models() -> None:
    outcomes = read_decisions(json.dumps({"data": [ANSWER, REFUSAL]}).encode(), "laya", KEYS)
    assert outcomes is not None
    answered, refused = (json.loads(outcome.line) for outcome in outcomes)
    assert answered["response"]["body"] == {
        "model": "laya",
        "answers": ANSWER["answers"],
        "usage": {"input_tokens": 7, "output_tokens": 0},
        "routing": {"model": "english", "reason": "English Latin text"},
    }
    assert answered["response"]["request_id"] == answered["id"] == "row_01_1"
    assert (refused["error"], refused["error_type"]) == ("question 'q': no", "invalid_request_error")
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.SUCCESS, OutcomeKind.ERROR]
    assert [outcome.usage.input_tokens for outcome in outcomes] == [7, 0]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b'{"data": [{}, {}]}',
        json.dumps({"data": [ANSWER]}).encode(),
        b'{"data": [{"answers": 1}]}',
    ],
)
def test_an_answer_that_is_not_one_entry_a_row_is_no_answer(answer: bytes) -> None:
    assert read_decisions(answer, "laya", KEYS) is None
