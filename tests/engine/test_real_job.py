"""Real jobs on real models, through the whole stack: rows of the example file completed, and texts embedded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.live_stack import LiveStack

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

PROJECT = Path(__file__).resolve().parents[2]
ROWS = 12


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    running = LiveStack(tmp_path_factory.mktemp("stack"), PROJECT / "config" / "models.local.toml")
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


def test_texts_are_embedded_as_they_are_and_billed_what_the_engine_counts(stack: LiveStack) -> None:
    texts = [
        "A cat sits on the mat.",
        "A feline rests on a rug.",
        "Quarterly revenue fell by 3%.",
        "Ünïcødé 你好 🙂",
    ]
    rows = [
        json.dumps(
            {"custom_id": f"{place}", "method": "POST", "url": "/v1/embeddings", "body": {"input": text}}
        ).encode()
        + b"\n"
        for place, text in enumerate(texts * 20)
    ]
    job_id = stack.submit(rows, model="all-minilm-l6-v2")
    stack.approve(job_id)
    job = stack.wait_for(job_id, "done")
    lines = stack.lines(job_id)
    vectors = [line["response"]["body"]["data"][0]["embedding"] for line in lines]
    assert [line["custom_id"] for line in lines] == [f"{place}" for place in range(80)]
    assert {len(vector) for vector in vectors} == {384}
    assert all(abs(multiply(vector, vector) - 1) < 1e-5 for vector in vectors)
    assert multiply(vectors[0], vectors[1]) > 0.5 > multiply(vectors[0], vectors[2])
    assert multiply(vectors[0], vectors[4]) > 0.9999
    assert sum(line["usage"]["input_tokens"] for line in lines) == job["est_input_tok"]
    assert (job["task_type"], job["est_output_tok"], job["max_output_tokens"], job["success_rows"]) == (
        "embed",
        0,
        0,
        80,
    )


def multiply(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
