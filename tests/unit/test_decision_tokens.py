"""What a decision model reads of a row, by the byte rule; ``tests/engine`` compares the same code with the package itself."""

from __future__ import annotations

from typing import Any

import pytest

from anex.decisions.questions import find_question_fault
from anex.decisions.routing import choose_checkpoint
from anex.decisions.tokens import QUESTION_SETS_KEPT, DecisionTokenCounter, byte_reader, count_heads
from anex.rows.decide import DecideRow
from tests.support.decision_rows import BAD_QUESTIONS

ENGLISH = "The customer would like to have the money back."
GERMAN = "Wir haben die Rechnung zweimal bezahlt."
YES = {"type": "noul", "instructions": "So?"}
YES_HEAD = (
    1
    + len("noul question: So?")
    + 1
    + (1 + len(" false: no, the statement does not hold"))
    + (1 + len(" true: yes, the statement holds"))
    + 1
)


@pytest.fixture
def counter() -> DecisionTokenCounter:
    return DecisionTokenCounter({"english": byte_reader(512, 192), "multilingual": byte_reader(1024, 192)})


def count(
    counter: DecisionTokenCounter, state: Any, *questions: dict[str, Any], lang: str | None = None
) -> int:
    asked = {f"q{place}": question for place, question in enumerate(questions)}
    return counter.count_decisions(
        [DecideRow(row_number=1, custom_id="", state=state, questions=asked, lang=lang)]
    )[0]


def test_the_text_is_read_once_a_question(counter: DecisionTokenCounter) -> None:
    once = YES_HEAD + len(ENGLISH) + 1
    assert count(counter, ENGLISH, YES) == once
    assert count(counter, ENGLISH, YES, YES, YES) == 3 * once
    assert count(counter, "", YES) == YES_HEAD + 1


def test_an_object_is_read_as_its_json(counter: DecisionTokenCounter) -> None:
    assert (
        count(counter, {"body": "ü", "n": [1.0, None]}, YES)
        == YES_HEAD + len(b'{"body": "..", "n": [1.0, null]}') + 1
    )


@pytest.mark.parametrize(("text", "context"), [(ENGLISH, 512), (GERMAN, 1024)])
def test_a_long_text_is_cut_to_its_checkpoints_context(
    counter: DecisionTokenCounter, text: str, context: int
) -> None:
    assert count(counter, f"{text} " * 60, YES, YES) == 2 * context


def test_options_share_a_budget_and_the_mark_of_one_is_read_as_a_space(counter: DecisionTokenCounter) -> None:
    """Four options of 48 tokens leave nothing of 192 to the instructions: each is cut to 44 with its mark."""
    wide = {"type": "choice", "instructions": "?" * 300, "criteria": {key * 60: "" for key in "abcd"}}
    assert count(counter, "", wide) == 1 + 16 + 1 + 4 * 44 + 1 + 1
    endless = {
        "type": "choice",
        "instructions": "?" * 10_000_000,
        "criteria": {key * 10_000_000: "" for key in "abcd"},
    }
    assert count(counter, "", endless) == count(counter, "", wide)
    # "[MASK]" counts as one byte.
    marked = {"type": "choice", "instructions": "[MASK]", "criteria": ["[MASK]a"]}
    assert (
        count(counter, "[MASK]", marked) == 1 + len("choice question:  ") + 1 + (1 + len("  a")) + 1 + 1 + 1
    )


def test_a_row_with_a_question_that_is_refused_reads_nothing(counter: DecisionTokenCounter) -> None:
    for question in BAD_QUESTIONS:
        assert find_question_fault("q", question) is not None, question
        assert count(counter, ENGLISH, YES, question) == 0
    assert find_question_fault(" ", YES) is not None


def test_options_that_do_not_begin_within_the_context_are_refused(counter: DecisionTokenCounter) -> None:
    def ask(options: int) -> dict[str, Any]:
        return {"type": "score", "instructions": "?", "criteria": ["x"] * options}

    # 4 tokens an option from the eleventh on, behind a start, 8 of the instructions and a separator.
    fits = (512 - 10 + 3) // 4
    assert count(counter, ENGLISH, ask(fits)) == 512
    assert count(counter, ENGLISH, ask(fits + 1)) == 0
    assert count(counter, GERMAN, ask(fits + 1)) > 512


@pytest.mark.parametrize(
    ("state", "language", "name"),
    [
        (ENGLISH, None, "english"),
        (GERMAN, None, "multilingual"),
        ("Yes", None, "multilingual"),
        ("", None, "multilingual"),
        ("请今天退款", None, "multilingual"),
        ({"from": "die der das und ist", "body": ENGLISH}, None, "multilingual"),
        ({"die der das und ist nicht": ENGLISH}, None, "english"),
        (f"{ENGLISH}\nwir haben die Rechnung und die Lieferung nicht", None, "multilingual"),
        (ENGLISH, "de", "multilingual"),
        (GERMAN, " EN_us.UTF-8", "english"),
        (GERMAN, "und", "multilingual"),
        (ENGLISH, "C.UTF-8", "english"),
        (ENGLISH, " ", "english"),
    ],
)
def test_a_language_code_wins_then_the_text_decides(state: Any, language: str | None, name: str) -> None:
    assert choose_checkpoint(state, language) == name


def test_what_is_remembered_of_questions_is_bounded_and_forgetting_changes_nothing(
    counter: DecisionTokenCounter,
) -> None:
    asked = [{"q": {**YES, "instructions": f"{number}?"}} for number in range(QUESTION_SETS_KEPT + 5)] * 2
    rows = [
        DecideRow(row_number=number, custom_id="", state=ENGLISH, questions=questions, lang=None)
        for number, questions in enumerate(asked)
    ]
    heads = [count_heads(byte_reader(512, 192), questions) for questions in asked]
    assert counter.count_decisions(rows) == [(head or (0,))[0] + len(ENGLISH) + 1 for head in heads]
