"""Lines of embedding jobs: what is accepted, and the sentence for what is not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from anex.catalog import Dimensions, ImageSpec, VideoSpec
from anex.rows.check import RowChecker, Summary
from anex.rows.decode import iterate_rows
from anex.rows.embed import EmbedFormat
from anex.rows.settings import RowSettings
from tests.support.row_samples import chat_line, chat_spec, compile_anything, join_lines

LIST_REFUSED = "embeddings input must be a single string per row, not a list (submit one row per input)"
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TEXT_SPEC = replace(
    chat_spec(), id="test-embed", kind="embed", output_max_tokens=0, dimensions=Dimensions(32, 384)
)
MEDIA_SPEC = replace(
    TEXT_SPEC,
    id="test-vl-embed",
    modalities=frozenset({"image", "video"}),
    context_tokens=32_768,
    image=ImageSpec(1280, 20 << 20, 4),
    video=VideoSpec(1280, 1, None, None, None, 2, 150 << 20, 1),
)


def embed_line(row_id: str, **body: Any) -> bytes:
    return chat_line(row_id, url="/v1/embeddings", body=body)


def check(data: bytes, spec: Any = TEXT_SPEC) -> Summary:
    return RowChecker(spec, RowSettings(), "etag", compile_anything).check_stream([data])


def fault_of(spec: Any = TEXT_SPEC, **body: Any) -> str:
    (fault,) = check(join_lines(embed_line("a", input="x"), embed_line("b", **body)), spec).faults.sentences()
    return fault


@pytest.mark.parametrize(
    "body",
    [
        {"input": "x"},
        {"input": "x", "model": "another", "user": "u", "encoding_format": "float"},
        {"input": "x", "dimensions": 32},
        {"input": "x", "dimensions": 384},
        {"input": "x", "dimensions": None, "encoding_format": None, "messages": None},
        {"input": "x", "zz": [1]},
        {"input": " \n"},
    ],
)
def test_a_text_is_taken_as_it_is(body: dict[str, Any]) -> None:
    data = join_lines(embed_line("a", **body))
    assert check(data).faults.sentences() == []
    (row,) = iterate_rows([data], EmbedFormat(TEXT_SPEC), start_byte=0, first_line=1, first_row=7)
    assert (row.row_number, row.custom_id, row.input, row.dimensions) == (
        7,
        "a",
        body["input"],
        body.get("dimensions"),
    )


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "body.input must be a non-empty string"),
        ({"input": ""}, "body.input must be a non-empty string"),
        ({"input": None}, "body.input must be a non-empty string"),
        ({"input": {"text": "x"}}, "body.input must be a non-empty string"),
        ({"input": ["x", "y"]}, LIST_REFUSED),
        ({"input": [1, 2, 3]}, LIST_REFUSED),
        ({"input": [{"type": "text", "text": "x"}, "y"]}, LIST_REFUSED),
        (
            {"input": [{"type": "text", "text": "x"}]},
            "body.input must be a non-empty string: model 'test-embed' takes no content parts",
        ),
        (
            {"input": [{"type": "image_url", "image_url": {"url": PIXEL}}]},
            "model 'test-embed' has no image encoder and can't read a content part of type 'image_url'",
        ),
        (
            {"messages": [{"role": "user", "content": "x"}]},
            "an embeddings request carries 'input', not 'messages'",
        ),
        ({"input": "x", "messages": []}, "an embeddings request carries 'input', not 'messages'"),
        ({"input": "x", "encoding_format": "base64"}, "body.encoding_format must be 'float'"),
        (
            {"input": "x", "dimensions": 31},
            "body.dimensions must be an integer from 32 to 384 for model 'test-embed'",
        ),
        (
            {"input": "x", "dimensions": 385},
            "body.dimensions must be an integer from 32 to 384 for model 'test-embed'",
        ),
        (
            {"input": "x", "dimensions": 64.0},
            "body.dimensions must be an integer from 32 to 384 for model 'test-embed'",
        ),
        (
            {"input": "x", "dimensions": True},
            "body.dimensions must be an integer from 32 to 384 for model 'test-embed'",
        ),
        (
            {"input": "x", "dimensions": "64"},
            "body.dimensions must be an integer from 32 to 384 for model 'test-embed'",
        ),
    ],
)
def test_another_shape_is_refused_in_words(body: dict[str, Any], told: str) -> None:
    assert fault_of(**body) == f"Line 2: {told}"


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([], "body.input must hold at least one part with media or with text that is not empty"),
        (
            [{"type": "text", "text": ""}],
            "body.input must hold at least one part with media or with text that is not empty",
        ),
        (
            [{"type": "audio_url", "audio_url": {"url": "https://h/x.mp3"}}],
            "model 'test-vl-embed' has no audio encoder and can't read a content part of type 'audio_url'",
        ),
        (
            [{"type": "sound", "sound": 1}],
            "unsupported content part type 'sound': supported types are text, image_url, input_audio, audio_url, video_url",
        ),
        (
            [{"type": "image_url", "image_url": {"url": "http://h/x.png"}}],
            "image_url.url is an http:// address; use https://",
        ),
        (
            [{"type": "image_url", "image_url": "https://h/x.png"}],
            "body.input[0].image_url must be an object",
        ),
        (
            [{"type": "image_url", "image_url": {"url": 7}}],
            "body.input[0].image_url.url must be a non-empty string",
        ),
        ([{"text": "x"}], "body.input[0] must be an object with a type"),
        (["x"], LIST_REFUSED),
    ],
)
def test_parts_that_a_model_does_not_take_are_refused(parts: list[Any], told: str) -> None:
    assert fault_of(MEDIA_SPEC, input=parts) == f"Line 2: {told}"


def test_parts_keep_their_order_and_more_items_than_a_model_takes_are_not_refused() -> None:
    parts: list[Any] = [
        {"type": "text", "text": "a"},
        *[{"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}}] * 5,
        {"type": "video_url", "video_url": {"url": "https://h/x.mp4", "duration_seconds": 24}},
        {"type": "text", "text": ""},
    ]
    data = join_lines(embed_line("a", input=parts, dimensions=64))
    assert check(data, MEDIA_SPEC).faults.sentences() == []
    (row,) = iterate_rows([data], EmbedFormat(MEDIA_SPEC), start_byte=0, first_line=1, first_row=1)
    assert [part["type"] for part in row.plain_message()["content"]] == [
        "text",
        *["image"] * 5,
        "video",
        "text",
    ]
    assert len(row.list_media()) == 6


def test_a_line_for_another_endpoint_is_refused() -> None:
    (fault,) = check(join_lines(embed_line("a", input="x"), chat_line("b"))).faults.sentences()
    assert (
        fault
        == "Line 2: url must be '/v1/embeddings' in every line for model 'test-embed', not '/v1/chat/completions'"
    )


def test_ordinary_lines_are_decoded_as_a_block() -> None:
    data = join_lines(*(embed_line(f"{number}", input="x" * number) for number in range(1, 500)))
    assert len(EmbedFormat(TEXT_SPEC).decode_lines(data)) == 499
    assert check(data).rows == 499


def test_the_line_of_the_reference_is_taken() -> None:
    line = {
        "custom_id": "q2",
        "method": "POST",
        "url": "/v1/embeddings",
        "body": {
            "model": "qwen3-vl-embedding-8b",
            "input": "<|im_start|>system\nRepresent the user's input.<|im_end|>\n",
        },
    }
    assert not check(json.dumps(line).encode()).faults
