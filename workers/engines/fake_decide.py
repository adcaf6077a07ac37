"""The fake engine's decisions: rows that are asked the same in, an answer or a refusal for each out, no I/O.

Answers are pure functions of seed, state and question; tokens are counted by the byte rule, cut as a decision model cuts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from anex.decisions.questions import find_question_fault
from anex.decisions.routing import choose_checkpoint
from anex.decisions.tokens import DecisionTokenCounter, byte_reader
from anex.rows.decide import DecideRow, render_state
from workers.engines.fake_answers import seed_random
from workers.engines.fake_chat import Planned, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workers.engines.fake_chat import FakeModel


def plan_decisions(model: FakeModel, request: Mapping[str, Any]) -> Planned:
    """Plan the answers to one request. Raises ``RequestRefused``."""
    questions, rows = request.get("questions"), request.get("rows")
    if not isinstance(questions, dict) or not questions:
        raise RequestRefused("questions: an object with at least one question is required")
    if not isinstance(rows, list) or not all(map(_is_row, rows)):
        raise RequestRefused("rows: a list of objects with a state is required")
    counter = DecisionTokenCounter(
        {
            name: byte_reader(context_tokens, model.option_budget_tokens)
            for name, context_tokens in model.checkpoints
        }
    )
    read = [
        DecideRow(
            row_number=number,
            custom_id="",
            state=row["state"],
            questions=questions,
            lang=row.get("lang"),
        )
        for number, row in enumerate(rows)
    ]
    counts = counter.count_decisions(read)
    data = [_answer(model, row, tokens) for row, tokens in zip(read, counts, strict=True)]
    return Planned(sum(counts), 0, "stop", {"object": "list", "model": model.name, "data": data})


def _is_row(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("state"), str | dict)


def _answer(model: FakeModel, row: DecideRow, tokens: int) -> dict[str, Any]:
    if tokens == 0:
        faults = (find_question_fault(name, question) for name, question in row.questions.items())
        message = next((fault for fault in faults if fault), "the options don't fit")
        return {"error": {"message": message, "type": "invalid_request_error", "code": 422}}
    state = render_state(row.state).encode()
    return {
        "model": model.name,
        "answers": {
            name: _decide(seed_random(model.seed, state, orjson.dumps(question)).random(), question)
            for name, question in row.questions.items()
        },
        "usage": {"input_tokens": tokens, "output_tokens": 0},
        "routing": {"model": choose_checkpoint(row.state, row.lang), "reason": "the fake engine's"},
    }


def _decide(chance: float, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer whose first option has the probability ``chance``, the others what is left in equal parts."""
    kind, criteria = question["type"], question.get("criteria") or {}
    if kind == "noul":
        likelier = max(chance, 1 - chance)
        return {"type": kind, "noul": chance, "confidence": likelier, "answer_confidence": likelier}
    keys = (
        [str(place) for place in range(len(criteria))] if kind == "score" else [str(key) for key in criteria]
    )
    rest = (1 - chance) / max(1, len(keys) - 1)
    probabilities = dict.fromkeys(keys, rest) | {keys[0]: chance if len(keys) > 1 else 1.0}
    best = max(probabilities, key=probabilities.__getitem__)
    answer = {
        "probabilities": probabilities,
        "confidence": chance,
        "answer_confidence": probabilities[best],
    }
    if kind == "choice":
        return {"type": kind, "choice": best, **answer}
    score = sum(place * probabilities[key] for place, key in enumerate(keys))
    return {
        "type": kind,
        "score": score,
        "legend": dict(zip(keys, map(str, criteria), strict=True)),
        **answer,
    }
