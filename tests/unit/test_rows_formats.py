"""The formats that rows bring along: each judged once, and a bounded number of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anex.rows.check import RowChecker
from anex.rows.format_verdicts import FormatVerdicts
from anex.rows.settings import RowSettings
from tests.support.row_samples import chat_line, chat_spec, compile_anything, join_lines

if TYPE_CHECKING:
    import pytest


def line_with(row_id: str, response_format: dict[str, Any]) -> bytes:
    messages = [{"role": "user", "content": "hi"}]
    return chat_line(row_id, body={"messages": messages, "response_format": response_format})


def named(name: str) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": name, "schema": {}}}


def test_the_grammar_is_asked_once_for_each_format() -> None:
    asked: list[Any] = []

    def refuse(response_format: Any) -> str | None:
        asked.append(response_format)
        return "no" if response_format["type"] == "json_schema" else None

    lines = [line_with(f"{n}", named("n")) for n in range(2)]
    lines.append(line_with("c", {"type": "json_object"}))
    checker = RowChecker(chat_spec(), RowSettings(), "etag", refuse)
    summary = checker.check_stream([join_lines(*lines)])
    assert summary.faults.sentences() == ["Line 1: no", "Line 2: no"]
    assert len(asked) == 2


def test_a_format_is_judged_once_whatever_stands_beside_it_and_in_whatever_order() -> None:
    asked: list[Any] = []
    formats = FormatVerdicts(asked.append)
    assert formats.judge({"type": "json_object"}) is None
    assert formats.judge({"json_schema": None, "type": "json_object"}) is None
    assert formats.judge({"type": "json_object", "json_schema": None}) is None
    assert len(asked) == 2


def test_a_file_brings_a_bounded_number_of_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anex.rows.format_verdicts.FORMATS_MAX", 3)
    lines = [line_with(f"{n}", named(f"n{n}")) for n in range(5)]
    checker = RowChecker(chat_spec(), RowSettings(), "etag", compile_anything)
    summary = checker.check_stream([join_lines(*lines, line_with("again", named("n0")))])
    assert summary.faults.sentences() == [
        f"Line {line}: response_format is one of more than 3 different ones in this file; use fewer"
        for line in (4, 5)
    ]


def test_formats_that_take_too_long_together_are_told() -> None:
    seconds = iter(range(0, 10_000, 200))
    formats = FormatVerdicts(compile_anything, now=lambda: float(next(seconds)))
    assert formats.judge({"type": "json_object"}) is None
    assert formats.judge({"type": "text"}) is None
    assert "took too long" in (formats.judge({"type": "json_object", "json_schema": None}) or "")
    assert formats.judge({"type": "json_object"}) is None
