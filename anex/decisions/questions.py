"""Questions as a decision model reads them: which it refuses, and the texts that it reads of the others.

The rules are those of laya 0.4.15 (``Agent._check_question``, ``render_options``), whose messages are the engine's to give: here it
only matters whether a row is read at all, for one that is refused bills nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

TYPES = ("choice", "score", "noul")

_NO, _YES = "no, the statement does not hold", "yes, the statement holds"


@dataclass(frozen=True, slots=True)
class QuestionTexts:
    """What a model reads of one question."""

    kind: str
    instructions: str
    options: tuple[str, ...]


def find_question_fault(name: str, question: Any) -> str | None:
    """Return why the model refuses a question, None where it takes it."""
    fault = "a name that is not empty is missing" if not name.strip() else _find_fault(question)
    return None if fault is None else f"question {name!r}: {fault}"


def read_question(question: Mapping[str, Any]) -> QuestionTexts:
    """Return the texts of a question that the model takes."""
    instructions = question["instructions"]
    if not isinstance(instructions, str):
        instructions = json.dumps(instructions, ensure_ascii=False)
    return QuestionTexts(question["type"], instructions, tuple(_read_options(question)))


def _find_fault(question: Any) -> str | None:
    if not isinstance(question, dict):
        return "it is no object"
    kind = question.get("type")
    if kind not in TYPES:
        return f"its type is none of {', '.join(TYPES)}"
    if not _says_something(question.get("instructions")):
        return "its instructions are missing or empty"
    faults = {"choice": _find_choice_fault, "score": _find_score_fault, "noul": _find_noul_fault}
    return (
        faults[kind](question.get("criteria")) or _find_order_fault(question) or _find_label_fault(question)
    )


def _says_something(instructions: Any) -> bool:
    if isinstance(instructions, str):
        return bool(instructions.strip())
    return instructions is not None and instructions not in ([], {})


def _find_choice_fault(criteria: Any) -> str | None:
    if not isinstance(criteria, dict | list) or not criteria:
        return "a choice takes criteria of at least one option"
    if isinstance(criteria, dict):
        return None
    if not all(isinstance(label, str | int | float) for label in criteria):
        return "an option is no text, number or boolean"
    # 1, 1.0 and True are one key of an answer.
    return "an option stands twice" if len(set(criteria)) < len(criteria) else None


def _find_score_fault(criteria: Any) -> str | None:
    if not isinstance(criteria, list) or not criteria:
        return "a score takes criteria as a list of at least one level"
    return "a level is null" if None in criteria else None


def _find_noul_fault(criteria: Any) -> str | None:
    if criteria is None:
        return None
    if not isinstance(criteria, dict) or not {key.lower() for key in criteria} <= {"true", "false"}:
        return "a noul takes criteria under 'true' and 'false' only"
    return None


def _find_order_fault(question: Mapping[str, Any]) -> str | None:
    if "option_order" not in question:
        return None
    order = question["option_order"]
    count = 2 if question["type"] == "noul" else len(question["criteria"])
    is_whole = isinstance(order, list) and all(type(place) is int for place in order)
    return (
        None
        if is_whole and sorted(order) == list(range(count))
        else "option_order is no order of the options"
    )


def _find_label_fault(question: Mapping[str, Any]) -> str | None:
    if "labels" not in question:
        return None
    if question["type"] != "noul":
        return "only a noul takes labels"
    labels = question["labels"]
    if labels is None:
        return None
    if not isinstance(labels, dict) or set(labels) != {"true", "false"}:
        return "labels name 'true' and 'false'"
    texts = [label.strip() for label in labels.values() if isinstance(label, str)]
    return None if all(texts) and len(set(texts)) == 2 else "labels are two different texts"  # noqa: PLR2004 - true and false


def _read_options(question: Mapping[str, Any]) -> list[str]:
    kind, criteria = question["type"], question.get("criteria")
    if kind == "score":
        return [f"level {place}: {_render(level)}" for place, level in enumerate(criteria or ())]
    if kind == "choice":
        described = criteria if isinstance(criteria, dict) else dict.fromkeys(criteria or ())
        return [str(key) if _is_blank(text) else f"{key}: {_render(text)}" for key, text in described.items()]
    named = {key.lower(): text for key, text in (criteria or {}).items()}
    labels = question.get("labels") or {"false": "false", "true": "true"}
    return [
        f"{labels[key].strip()}: {meaning if _is_blank(named.get(key)) else _render(named[key])}"
        for key, meaning in (("false", _NO), ("true", _YES))
    ]


def _is_blank(text: Any) -> bool:
    return text is None or text == ""


def _render(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
