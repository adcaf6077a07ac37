"""One real job on the real model, through the whole stack: the example file's first rows, estimated by a sample and run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.live_stack import LiveStack

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

PROJECT = Path(__file__).resolve().parents[2]
ROWS = 12


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[LiveStack]:
    running = LiveStack(tmp_path, PROJECT / "config" / "models.local.toml")
    running.start()
    running.become_customer()
    yield running
    running.stop()


def test_a_real_job_is_estimated_run_and_charged(stack: LiveStack) -> None:
    rows = (PROJECT / "examples" / "prompts.jsonl").read_bytes().splitlines(keepends=True)[:ROWS]
    job_id = stack.submit(rows, model="smollm2-135m")
    stack.approve(job_id)
    stack.wait_until_rows_run(job_id)
    stack.kill("--served-model-name")
    job = stack.wait_for(job_id, "done")
    lines = stack.lines(job_id)
    answers = [line["response"]["body"]["choices"][0]["message"]["content"] for line in lines]
    assert len(lines) == ROWS
    assert all(answers)
    assert {line["response"]["body"]["model"] for line in lines} == {"smollm2-135m"}
    assert sum(line["usage"]["input_tokens"] for line in lines) == job["est_input_tok"]
    assert 1 <= job["cost_cents"] <= job["est_cost_cents"]
