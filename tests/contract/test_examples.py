"""The example file is what users copy from: anex itself must accept it, and the demo's model must have room for it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from anex.rows.check import RowChecker
from anex.rows.response_format import find_answer_fault
from anex.rows.settings import RowSettings
from config.catalog import load_catalog
from tests.support.row_samples import compile_anything

PROJECT = Path(__file__).resolve().parents[2]
EXAMPLES = PROJECT / "examples" / "prompts.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in EXAMPLES.read_text("utf-8").splitlines()]
DEMO_MODEL = load_catalog(PROJECT / "config" / "models.local.toml").get("smollm2-135m")

# A prompt and its answer share the model's context; a prompt may take half of it.
PROMPT_MAX_BYTES = DEMO_MODEL.context_tokens // 2 * 3


def test_anex_accepts_every_row() -> None:
    data = EXAMPLES.read_bytes()
    checker = RowChecker(DEMO_MODEL, RowSettings(), "etag", compile_anything)
    summary = checker.check_stream([data])
    checker.find_duplicates(summary, [data])
    assert summary.faults.sentences() == []
    assert summary.rows == len(ROWS) == 60


def test_ids_name_the_task_and_count_within_it() -> None:
    counts: dict[str, int] = {}
    for row in ROWS:
        match = re.fullmatch(r"([a-z]+)-(\d\d)", row["custom_id"])
        assert match is not None, row["custom_id"]
        counts[match[1]] = counts.get(match[1], 0) + 1
        assert int(match[2]) == counts[match[1]], row["custom_id"]
    assert {"classify", "extract", "translate", "answer"} <= counts.keys()


def test_no_two_rows_ask_the_same() -> None:
    asked = [json.dumps(row["body"]["messages"]) for row in ROWS]
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["custom_id"])
def test_a_row_carries_only_what_is_used_and_is_short(row: dict[str, Any]) -> None:
    assert row["body"].keys() <= {"messages", "response_format"}
    prompt = "".join(message["content"] for message in row["body"]["messages"])
    assert len(prompt.encode()) < PROMPT_MAX_BYTES
    assert row["body"]["messages"][-1]["role"] == "user"


@pytest.mark.parametrize(
    "row", [row for row in ROWS if "response_format" in row["body"]], ids=lambda row: row["custom_id"]
)
def test_answers_shown_to_the_model_keep_to_the_rows_own_format(row: dict[str, Any]) -> None:
    for message in row["body"]["messages"]:
        if message["role"] == "assistant":
            assert find_answer_fault(row["body"]["response_format"], message["content"]) is None
