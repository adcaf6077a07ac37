"""The demo's files: the example input, and the result held against it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from anex.errors import AnexError

if TYPE_CHECKING:
    from pathlib import Path

ANSWERS_SHOWN = 5

Answer = tuple[str, str, str]
"""A row's custom_id, the last thing it asked, and what the model wrote."""


class ResultWrong(AnexError):
    """The result does not answer the input line for line."""

    code = "result_wrong"


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a small JSONL file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def require_line_for_line(rows: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
    """Raise ``ResultWrong`` unless there is exactly one result a row, in the rows' order."""
    asked = [row["custom_id"] for row in rows]
    answered = [result["custom_id"] for result in results]
    if asked != answered:
        raise ResultWrong(
            f"the result has {len(answered)} lines for {len(asked)} rows, or they are not in the input's order"
        )


def pick_answers(rows: list[dict[str, Any]], results: list[dict[str, Any]]) -> list[Answer]:
    """Return the first answered row of each kind (``classify`` of ``classify-07``), ``ANSWERS_SHOWN`` at most."""
    picked: dict[str, Answer] = {}
    for row, result in zip(rows, results, strict=True):
        kind = row["custom_id"].rpartition("-")[0]
        text = _answer_text(result)
        if text and kind not in picked:
            picked[kind] = (row["custom_id"], row["body"]["messages"][-1]["content"], text)
    return list(picked.values())[:ANSWERS_SHOWN]


def _answer_text(result: dict[str, Any]) -> str | None:
    if result["response"] is None:
        return None
    text: str | None = result["response"]["body"]["choices"][0]["message"]["content"]
    return text
