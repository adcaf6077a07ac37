"""Jobs whose rows carry media, from file to charge on the fake engine: priced at most, fetched by the worker, billed by item."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from anex.byte_tokens import count_byte_tokens
from anex.jobs.approve import approve_job
from anex.ledger.pricing import PriceTerms, charge_cents, estimate_cents
from anex.outbound import Outbound
from anex.usage import Usage
from tests.support.audit import audit
from tests.support.containers import chunk, riff, wav_format
from tests.support.media_host import MediaFile, run_media_host
from tests.support.spine_fixtures import serve_model
from workers.engines.fake_chat import MEDIA_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from anex.jobs.model import Job
    from tests.support.media_host import MediaHost
    from tests.support.spine import Spine

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
INLINE = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
TEXT = {"type": "text", "text": "what is it?"}
TEXT_TOKENS = count_byte_tokens([{"role": "user", "content": [TEXT]}])


def wav(seconds: float) -> bytes:
    return riff(b"WAVE", wav_format(rate=100), chunk(b"data", bytes(2 * round(seconds * 100))))


def huge_png() -> bytes:
    head = b"IHDR" + struct.pack(">II", 65_535, 65_535) + PNG[24:29]
    return PNG[:12] + head + struct.pack(">I", zlib.crc32(head)) + PNG[33:]


def part(kind: str, url: str, **more: Any) -> dict[str, Any]:
    return {"type": f"{kind}_url", f"{kind}_url": {"url": url, **more}}


def chat_rows(*rows: list[dict[str, Any]]) -> list[bytes]:
    return [
        _line(number, "/v1/chat/completions", {"messages": [{"role": "user", "content": [TEXT, *parts]}]})
        for number, parts in enumerate(rows, 1)
    ]


def embed_rows(*rows: Any) -> list[bytes]:
    return [_line(number, "/v1/embeddings", {"input": given}) for number, given in enumerate(rows, 1)]


def _line(number: int, url: str, body: dict[str, Any]) -> bytes:
    return (
        json.dumps({"custom_id": f"row-{number}", "method": "POST", "url": url, "body": body}).encode()
        + b"\n"
    )


@pytest.fixture
def host(tmp_path: Path) -> Iterator[MediaHost]:
    with run_media_host(tmp_path) as host:
        yield host


@pytest.fixture
def omni(spine: Spine, host: MediaHost) -> Iterator[Spine]:
    """Give the spine a model that sees and hears, and the host as the only one that may be called."""
    with serve_model(spine, "fake-omni") as served:
        yield replace(
            served,
            services=_reach(served, host),
            api=replace(served.api, outbound=Outbound(host.server.policy)),
        )


@pytest.fixture
def vl_embed(spine: Spine, host: MediaHost) -> Iterator[Spine]:
    with serve_model(spine, "fake-vl-embed") as served:
        yield replace(served, services=_reach(served, host))


def _reach(spine: Spine, host: MediaHost) -> Any:
    return replace(spine.services, outbound=Outbound(host.server.policy, resolve=host.server.resolve))


def price(spine: Spine, rows: list[bytes], model: str, **settings: Any) -> Job:
    job = spine.submit(rows, model=model, **settings)
    spine.answer_rings()
    return spine.job(job.id)


def finish(spine: Spine, priced: Job) -> tuple[Job, list[dict[str, Any]]]:
    assert (priced.status, priced.failure_reason) == ("cost_ready", None)
    approve_job(spine.api, spine.caller, priced.id)
    spine.answer_rings()
    audit(spine.services)
    return spine.job(priced.id), spine.result_lines(priced.id)


def terms(job: Job) -> PriceTerms:
    return PriceTerms.from_json((job.terms or {})["prices"])


def test_media_are_priced_at_the_catalogs_rates_and_billed_by_what_the_engine_counts(
    omni: Spine, host: MediaHost
) -> None:
    host.files["/clip.wav"] = MediaFile(wav(6), "audio/wav")
    host.files["/photo"] = MediaFile(PNG, "image/png")
    rows = chat_rows(
        [part("image", INLINE), part("image", host.server.url("/photo"))],
        [part("audio", host.server.url("/clip.wav"))],
        [],
    )
    priced = price(omni, rows, "fake-omni", max_output_tokens=50)
    text_tokens = 3 * TEXT_TOKENS
    at_most = Usage(text_tokens + 200 + 60, priced.est_output_tok or 0, 260, 2, 1, 6000)
    assert priced.est_input_tok == at_most.input_tokens
    assert priced.est_cost_cents == estimate_cents(terms(priced), at_most)
    job, lines = finish(omni, priced)
    assert (job.status, job.success_rows, job.truncated_rows, job.error_rows) == (
        "done",
        job.success_rows,
        job.truncated_rows,
        0,
    )
    assert [line["usage"]["input_tokens"] for line in lines] == [
        TEXT_TOKENS + 2 * MEDIA_TOKENS, TEXT_TOKENS + MEDIA_TOKENS, TEXT_TOKENS,
    ]  # fmt: skip
    used = Usage(text_tokens + 3 * MEDIA_TOKENS, job.output_tokens or 0, 3 * MEDIA_TOKENS, 2, 1, 6000)
    assert job.input_tokens == used.input_tokens
    assert job.cost_cents == charge_cents(
        terms(job), used, billable_rows=3, hold_cents=job.est_cost_cents or 0
    )


def test_a_sample_sees_the_media_too(omni: Spine) -> None:
    priced = price(omni, chat_rows(*[[part("image", INLINE)]] * 30), "fake-omni")
    assert (priced.status, priced.failure_reason) == ("cost_ready", None)
    job, lines = finish(omni, priced)
    assert len(lines) == 30
    assert (job.cost_cents or 0) <= (job.est_cost_cents or 0)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "the image could not be fetched: the host answered 404"),
        ({"/x.png": MediaFile(b"<html>sign in</html>", "text/html")}, "the image is named png, but "),
        (
            {"/x.png": MediaFile(huge_png(), "image/png")},
            "an image is 65,535 x 65,535 pixels; at most ",
        ),
    ],
)
def test_media_that_cannot_be_had_fail_their_row_alone_and_cost_nothing(
    omni: Spine, host: MediaHost, files: dict[str, MediaFile], told: str
) -> None:
    host.files.update(files)
    rows = chat_rows([part("image", host.server.url("/x.png"))], [part("image", INLINE)])
    job, lines = finish(omni, price(omni, rows, "fake-omni", max_output_tokens=50))
    assert (job.status, job.error_rows) == ("done", 1)
    failed, fine = lines
    assert (failed["response"], failed["error_type"], failed["usage"]) == (
        None,
        "media_error",
        {"input_tokens": 0, "output_tokens": 0},
    )
    assert failed["error"].startswith(told)
    assert fine["error"] is None


def test_an_address_inside_is_not_called(omni: Spine) -> None:
    rows = chat_rows([part("image", "https://169.254.169.254/latest/meta-data/x.png")], [])
    _, lines = finish(omni, price(omni, rows, "fake-omni", max_output_tokens=50))
    assert lines[0]["error_type"] == "media_error"
    assert lines[1]["error"] is None


def test_more_items_than_the_model_takes_fail_their_row_alone(omni: Spine) -> None:
    rows = chat_rows([part("image", INLINE)] * 3, [part("image", INLINE)] * 2)
    _, lines = finish(omni, price(omni, rows, "fake-omni", max_output_tokens=50))
    assert (lines[0]["error"], lines[0]["error_type"]) == (
        "the row carries 3 images; model 'fake-omni' takes 2 at most", "invalid_request_error",
    )  # fmt: skip
    assert lines[1]["error"] is None


def test_an_item_that_rows_share_is_fetched_once_for_a_chunk(omni: Spine, host: MediaHost) -> None:
    calls: list[str] = []

    def answer(exchange: Any) -> None:
        calls.append(exchange.request.method)
        exchange.respond(200, PNG, {"Content-Type": "image/png"})

    host.files["/shared.png"] = answer
    rows = chat_rows(*[[part("image", host.server.url("/shared.png"))]] * 20)
    job, _ = finish(omni, price(omni, rows, "fake-omni", max_output_tokens=8))
    assert job.error_rows == 0
    assert len(calls) <= 8  # rows that are prepared side by side may ask before the first answer is there


def test_a_hosted_clip_that_states_its_length_is_taken_exactly_and_may_fail_the_job(
    omni: Spine, host: MediaHost
) -> None:
    host.files["/long.wav"] = MediaFile(wav(61), "audio/wav")
    failed = price(
        omni, chat_rows([], [part("audio", host.server.url("/long.wav"))]), "fake-omni", max_output_tokens=50
    )
    assert (failed.status, failed.failure_code) == ("failed", "invalid_input")
    assert failed.failure_reason == (
        "Row 'row-2': audio duration 61s exceeds the 60s maximum for model 'fake-omni'. Shorten or split this audio input."
    )


def test_a_clip_whose_host_does_not_answer_is_assumed_at_the_ceiling_and_admitted(
    omni: Spine, host: MediaHost
) -> None:
    url = host.server.url("/nothing.mp3")
    priced = price(
        omni,
        chat_rows([part("audio", url)], [part("audio", url, duration_seconds=2)]),
        "fake-omni",
        max_output_tokens=50,
    )
    assert priced.status == "cost_ready"
    assert priced.est_input_tok == 2 * TEXT_TOKENS + 600 + 20
    assert priced.clip_lengths is None


def test_a_type_off_the_list_for_an_address_without_an_extension_fails_the_job(
    omni: Spine, host: MediaHost
) -> None:
    host.files["/clip"] = MediaFile(wav(2), "application/octet-stream")
    failed = price(
        omni, chat_rows([part("audio", host.server.url("/clip"))]), "fake-omni", max_output_tokens=50
    )
    assert failed.failure_code == "invalid_input"
    assert "serves it as 'application/octet-stream'" in (failed.failure_reason or "")
    assert "Put a file extension on the URL" in (failed.failure_reason or "")


def test_rows_with_media_and_text_too_long_together_name_both(omni: Spine) -> None:
    long = {"type": "text", "text": "x" * 3990}
    failed = price(omni, chat_rows([long, part("image", INLINE)]), "fake-omni", max_output_tokens=50)
    tokens = TEXT_TOKENS + 3990 + 100
    assert failed.failure_reason == (
        f"Row 'row-1' is too long: {tokens:,} input tokens (including media) exceeds the 4,096-token maximum that model 'fake-omni'"
        " can serve with image input. Shorten or split this row."
    )


def test_images_and_texts_become_vectors_of_one_job_at_prices_of_their_own(
    vl_embed: Spine, host: MediaHost
) -> None:
    host.files["/photo.png"] = MediaFile(PNG, "image/png")
    image = part("image", host.server.url("/photo.png"))
    rows = embed_rows("a text", [image], [TEXT, part("image", INLINE)], "another text", [TEXT])
    job, lines = finish(vl_embed, price(vl_embed, rows, "fake-vl-embed"))
    assert (job.success_rows, job.error_rows) == (5, 0)
    assert {len(line["response"]["body"]["data"][0]["embedding"]) for line in lines} == {384}
    media_row = count_byte_tokens([{"role": "user", "content": []}], opens_answer=False) + MEDIA_TOKENS
    assert lines[1]["usage"]["input_tokens"] == media_row
    assert lines[1]["response"]["body"]["usage"] == {"prompt_tokens": media_row, "total_tokens": media_row}
    media_tokens = media_row + lines[2]["usage"]["input_tokens"]
    used = Usage(sum(line["usage"]["input_tokens"] for line in lines), 0, media_tokens, 2, 0, 0)
    assert job.cost_cents == charge_cents(
        terms(job), used, billable_rows=5, hold_cents=job.est_cost_cents or 0
    )


def test_what_hosts_said_is_forgotten_with_the_jobs_data(omni: Spine, host: MediaHost) -> None:
    from anex.jobs.delete import delete_data  # noqa: PLC0415 - this test's alone

    host.files["/clip.wav"] = MediaFile(wav(6), "audio/wav")
    priced = price(
        omni,
        chat_rows([part("audio", host.server.url("/clip.wav?secret=7"))]),
        "fake-omni",
        max_output_tokens=50,
    )
    assert priced.clip_lengths is not None
    assert "secret" not in json.dumps(priced.clip_lengths)
    delete_data(omni.api, omni.caller, priced.id)
    assert omni.job(priced.id).clip_lengths is None
