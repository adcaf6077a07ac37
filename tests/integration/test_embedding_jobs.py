"""An embedding job from its file to its result, on the fake engine: one vector a row, in order, each billed what it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from anex.byte_tokens import count_byte_text
from anex.jobs.approve import approve_job
from tests.support.audit import audit
from tests.support.spine import body_rows

if TYPE_CHECKING:
    from anex.jobs.model import Job
    from tests.support.spine import Spine

MODEL = "fake-embed"
WIDTH = 384


def embed_rows(*bodies: dict[str, Any]) -> list[bytes]:
    return body_rows("/v1/embeddings", *bodies)


def run(spine: Spine, *bodies: dict[str, Any], **settings: Any) -> tuple[Job, list[dict[str, Any]]]:
    job = spine.submit(embed_rows(*bodies), model=MODEL, **settings)
    spine.answer_rings()
    priced = spine.job(job.id)
    assert (priced.status, priced.failure_reason) == ("cost_ready", None)
    approve_job(spine.api, spine.caller, job.id)
    spine.answer_rings()
    audit(spine.services)
    return spine.job(job.id), spine.result_lines(job.id)


def vector(line: dict[str, Any]) -> list[float]:
    (entry,) = line["response"]["body"]["data"]
    assert (entry["object"], entry["index"]) == ("embedding", 0)
    found: list[float] = entry["embedding"]
    return found


def test_each_text_becomes_a_vector_of_unit_length_and_bills_its_own_tokens(embed_spine: Spine) -> None:
    texts = [f"text {number} " + "ü" * (number % 7) for number in range(1, 151)]
    job, lines = run(embed_spine, *({"input": text} for text in texts))
    assert (job.status, job.success_rows, job.error_rows, job.max_output_tokens) == ("done", 150, 0, 0)
    assert [line["custom_id"] for line in lines] == [f"row-{number}" for number in range(1, 151)]
    for line, text in zip(lines, texts, strict=True):
        tokens = count_byte_text(text)
        body = line["response"]["body"]
        assert (body["object"], body["model"], line["error"]) == ("list", MODEL, None)
        assert body["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
        assert line["usage"] == {"input_tokens": tokens, "output_tokens": 0}
        assert len(vector(line)) == WIDTH
        assert sum(number * number for number in vector(line)) == pytest.approx(1, abs=1e-5)
    total = sum(count_byte_text(text) for text in texts)
    assert (job.est_input_tok, job.est_output_tok, job.input_tokens) == (total, 0, total)
    assert vector(lines[0]) != vector(lines[1])


def test_a_rows_own_width_wins_over_the_jobs(embed_spine: Spine) -> None:
    job, lines = run(
        embed_spine,
        {"input": "a"}, {"input": "b", "dimensions": 64}, {"input": "c", "dimensions": 384}, {"input": "d"},
        dimensions=32,
    )  # fmt: skip
    assert [len(vector(line)) for line in lines] == [32, 64, 384, 32]
    assert (job.dimensions, job.success_rows) == (32, 4)


def test_one_text_that_the_engine_refuses_fails_alone(
    embed_spine: Spine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts are embedded side by side; an error for all of them is asked again one by one."""
    engine = embed_spine.engine
    submit, asked = engine.submit, []

    def refuse(request: Any, meanwhile: Any = None) -> Any:
        asked.append(request.rows)
        if b"poison" in request.body:
            request = type(request)(request.path, b"[]", request.rows)
        return submit(request, meanwhile)

    monkeypatch.setattr(engine, "submit", refuse)
    job, lines = run(embed_spine, {"input": "a"}, {"input": "poison"}, {"input": "c"})
    assert asked == [3, 1, 1, 1]
    assert (job.success_rows, job.error_rows, job.pending_rows) == (2, 1, 0)
    assert [line["error"] is None for line in lines] == [True, False, True]
    assert lines[1]["usage"] == {"input_tokens": 0, "output_tokens": 0}
    assert job.input_tokens == count_byte_text("a") + count_byte_text("c")


def test_a_text_over_the_context_fails_the_job_before_it_is_priced(embed_spine: Spine) -> None:
    job = embed_spine.submit(embed_rows({"input": "a"}, {"input": "x" * 5000}), model=MODEL)
    embed_spine.answer_rings()
    failed = embed_spine.job(job.id)
    assert (failed.status, failed.failure_code) == ("failed", "invalid_input")
    assert failed.failure_reason == (
        "Row 'row-2' is too long: 5,002 input tokens exceeds the 4,096-token maximum that model 'fake-embed' can serve."
        " Shorten or split this row."
    )


def test_an_embedding_job_goes_from_submitted_to_cost_ready_without_a_sample(embed_spine: Spine) -> None:
    job = embed_spine.submit(embed_rows({"input": "a"}), model=MODEL)
    assert (job.status, job.task_type, job.samples_rows) == ("submitted", "embed", False)
    embed_spine.answer_rings()
    assert embed_spine.job(job.id).status == "cost_ready"
