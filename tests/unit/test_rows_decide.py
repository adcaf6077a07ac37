"""Lines of decision jobs: what fails the job, and what is left for the model to refuse row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anex.catalog import DecideSpec
from anex.rows.check import RowChecker, Summary
from anex.rows.decide import DecideFormat
from anex.rows.decode import iterate_rows
from anex.rows.settings import RowSettings
from tests.support.row_samples import chat_line, chat_spec, compile_anything, join_lines

SPEC = replace(chat_spec(), id="laya", kind="decide", output_max_tokens=0, decide=DecideSpec(192, 64, 50_000))
ASKED = {"urgent": {"type": "noul", "instructions": "Is it urgent?"}}


def decide_line(row_id: str, **body: Any) -> bytes:
    return chat_line(row_id, url="/v1/systemone", body=body)


def check(data: bytes) -> Summary:
    return RowChecker(SPEC, RowSettings(), "etag", compile_anything).check_stream([data])


@pytest.mark.parametrize(
    "body",
    [
        {"state": "text", "questions": ASKED},
        {"state": {"body": "text", "n": [1]}, "questions": ASKED, "lang": "de", "model": 7},
        {"state": "", "questions": ASKED, "lang": None},
        {"state": {}, "questions": ASKED},
        {"state": "x" * 50_000, "questions": {f"{number}": ASKED["urgent"] for number in range(64)}},
        {"state": "\N{GRINNING FACE}" * 50_000, "questions": ASKED},
        {"state": {"b": "x" * (50_000 - len('{"b": ""}'))}, "questions": ASKED},
        # What the model itself refuses fails the row alone, when it is served.
        {"state": "x", "questions": {"q": {"type": "noul", "instructions": "?", "criteria": {"maybe": "x"}}}},
        {"state": "x", "questions": {"q": {"type": "choice"}, "r": 7, "": None}},
    ],
)
def test_what_the_contract_allows_is_taken(body: dict[str, Any]) -> None:
    data = join_lines(decide_line("a", **body))
    assert check(data).faults.sentences() == []
    (row,) = iterate_rows([data], DecideFormat(SPEC), start_byte=0, first_line=1, first_row=3)
    assert (row.row_number, row.state, row.questions) == (3, body["state"], body["questions"])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"questions": ASKED}, "Line 2: body.state must be a string or an object"),
        ({"state": None, "questions": ASKED}, "Line 2: body.state must be a string or an object"),
        ({"state": ["x"], "questions": ASKED}, "Line 2: body.state must be a string or an object"),
        ({"state": "x"}, "Line 2: body.questions must be an object with at least one question"),
        (
            {"state": "x", "questions": {}},
            "Line 2: body.questions must be an object with at least one question",
        ),
        (
            {"state": "x", "questions": [ASKED]},
            "Line 2: body.questions must be an object with at least one question",
        ),
        (
            {"state": "x", "questions": ASKED, "lang": 7},
            "Line 2: body.lang must be a language code such as 'de'",
        ),
        (
            {"state": "x", "questions": ASKED, "temperature": 0},
            "Line 2: body has the unknown field 'temperature': a decision row takes state, questions and lang",
        ),
        (
            {"state": "x", "questions": ASKED, "zz": None},
            "Line 2: body has the unknown field 'zz': a decision row takes state, questions and lang",
        ),
        (
            {"state": "x" * 50_001, "questions": ASKED},
            "Row 'b': a state of 50,001 characters is over the maximum of 50,000.",
        ),
        (
            {"state": {"b": "x" * 49_992}, "questions": ASKED},
            "Row 'b': a state of 50,001 characters is over the maximum of 50,000.",
        ),
        (
            {"state": "x", "questions": {f"{number}": ASKED["urgent"] for number in range(65)}},
            "Row 'b': 65 questions are over the maximum of 64.",
        ),
    ],
)
def test_what_fails_the_job_is_told(body: dict[str, Any], told: str) -> None:
    data = join_lines(decide_line("a", state="x", questions=ASKED), decide_line("b", **body))
    assert check(data).faults.sentences() == [told]


def test_a_null_field_that_does_not_exist_is_named_all_the_same() -> None:
    """In a row null equals absent for fields that there are; a name that there is none of is a slip."""
    assert (
        "'zz'"
        in check(join_lines(decide_line("a", state="x", questions=ASKED, zz=None))).faults.sentences()[0]
    )
