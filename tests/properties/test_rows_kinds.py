"""Lines of every kind, media and all, damaged at random: both ways of reading agree, and no line changes how another is judged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anex.rows.check import RowChecker, Summary
from anex.rows.decode import decode_block, line_format
from anex.rows.faults import RowRefused
from anex.rows.jsonl import LineBlock, cut_line_blocks
from anex.rows.parse import parse_line
from anex.rows.settings import RowSettings
from tests.support.media_rows import CATALOG, PNG, inline, wav
from tests.support.row_samples import compile_anything, join_lines

if TYPE_CHECKING:
    from anex.catalog import ModelSpec

MODELS = (
    "nemotron-3-nano-omni-30b",
    "qwen3.8-27b",
    "qwen3-14b",
    "qwen3-embedding-8b",
    "qwen3-vl-embedding-2b",
    "laya",
)
URLS = {"chat": "/v1/chat/completions", "embed": "/v1/embeddings", "decide": "/v1/systemone"}
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(max_size=5))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
ADDRESSES = st.sampled_from(
    (
        "https://h.example/a.png",
        "https://h.example/a.mp4",
        "https://h.example/a",
        "http://h.example/a.wav",
        "https://[h",
        "ftp://h/a.png",
        "data:image/png;base64,",
        "data:,x",
        inline("image/png", PNG),
        inline("image/png", PNG[:20]),
        inline("image/jpeg", PNG),
        inline("audio/wav", wav(0.2)),
        inline("video/mp4", b"#EXTM3U"),
    )
)
SECONDS = st.sampled_from((None, 0, -1, 0.5, 30, 1e9, "30", True))


@st.composite
def parts(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(("text", "image_url", "audio_url", "video_url", "input_audio", "file")))
    if kind == "text":
        return {"type": "text", "text": draw(st.text(max_size=8) | VALUES)}
    inner: dict[str, Any] = {"url": draw(ADDRESSES | VALUES)}
    if kind == "input_audio":
        inner = {
            "data": draw(st.sampled_from(("", "UklG", "*", 7))),
            "format": draw(st.sampled_from(("wav", "mp3", "x", None))),
        }
    if kind != "image_url" and draw(st.booleans()):
        inner["duration_seconds"] = draw(SECONDS)
    return {"type": kind, kind: draw(st.just(inner) | VALUES), **draw(st.just({}) | st.just({"zz": 1}))}


CONTENTS = st.text(max_size=10) | st.lists(parts(), max_size=3) | VALUES
ROLES = st.sampled_from(("user", "user", "system", "assistant", "x"))
MESSAGES = st.fixed_dictionaries({"role": ROLES, "content": CONTENTS})
QUESTIONS = st.sampled_from(({"instructions": "x"}, {"options": ["a", "b"]}))
BODIES: dict[str, st.SearchStrategy[Any]] = {
    "chat": st.fixed_dictionaries(
        {"messages": st.lists(MESSAGES, max_size=2)},
        optional={
            "chat_template_kwargs": st.sampled_from(({}, {"enable_thinking": False}, {"reasoning_effort": "low"})) | VALUES,
            "response_format": st.sampled_from(({"type": "text"}, {"type": "json_object"}, {"type": "json_schema"})) | VALUES,
            "max_tokens": VALUES,
        },
    ),
    "embed": st.fixed_dictionaries(
        {"input": CONTENTS}, optional={"dimensions": st.integers(0, 5000) | VALUES, "encoding_format": VALUES, "messages": VALUES}
    ),
    "decide": st.fixed_dictionaries(
        {
            "state": st.text(max_size=8) | VALUES,
            "questions": st.dictionaries(st.text(max_size=3), QUESTIONS) | VALUES,
        },
        optional={"lang": st.sampled_from(("en", "de", "", 3)), "zz": VALUES},
    ),
}  # fmt: skip
DAMAGE = st.lists(st.tuples(st.integers(0, 2000), st.binary(max_size=2), st.integers(0, 2)), max_size=1)


def make_line(spec: ModelSpec, custom_id: Any, body: Any, damage: list[tuple[int, bytes, int]]) -> bytes:
    value = {"custom_id": custom_id, "method": "POST", "url": URLS[spec.kind], "body": body}
    line = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    for place, inserted, dropped in damage:
        at = place % (len(line) + 1)
        line = line[:at] + inserted + line[at + dropped :]
    return line.replace(b"\n", b" ")


def check(spec: ModelSpec, data: bytes) -> Summary:
    return RowChecker(spec, RowSettings(), "etag", compile_anything).check_stream([data])


def read_alone(spec: ModelSpec, line: bytes) -> tuple[list[Any], list[tuple[int, str]]]:
    try:
        value = parse_line(line, 0)
        return ([] if value is None else [line_format(spec).read_line(value)]), []
    except RowRefused as refusal:
        return [], [(1, refusal.describe(1))]


def plain(lines: list[Any]) -> Any:
    used = [
        (line.custom_id, {name: getattr(line.body, name) for name in line.body.__struct_fields__})
        for line in lines
    ]
    kept = (
        "messages",
        "chat_template_kwargs",
        "response_format",
        "input",
        "dimensions",
        "state",
        "questions",
        "lang",
    )
    return msgspec.to_builtins(
        [(custom_id, {name: body[name] for name in kept if name in body}) for custom_id, body in used]
    )


@pytest.mark.parametrize("model", MODELS)
@given(data=st.data())
@settings(max_examples=60)
def test_what_the_fast_way_accepts_the_careful_one_reads_alike(model: str, data: st.DataObject) -> None:
    spec = CATALOG.get(model)
    line = make_line(
        spec,
        data.draw(st.text(min_size=1, max_size=4) | VALUES),
        data.draw(BODIES[spec.kind]),
        data.draw(DAMAGE),
    )
    (block,) = cut_line_blocks([line]) if line else [None]
    if not isinstance(block, LineBlock):
        return
    decoded = decode_block(block, line_format(spec))
    expected, faults = read_alone(spec, line)
    assert decoded.faults == faults
    assert plain(decoded.lines) == plain(expected)


@pytest.mark.parametrize("model", MODELS)
@given(data=st.data())
@settings(max_examples=40)
def test_a_line_is_judged_alike_whatever_stands_beside_it(model: str, data: st.DataObject) -> None:
    spec = CATALOG.get(model)
    bodies = data.draw(st.lists(st.tuples(BODIES[spec.kind], DAMAGE), min_size=2, max_size=4))
    lines = [make_line(spec, f"row-{place}", body, damage) for place, (body, damage) in enumerate(bodies)]
    alone = [check(spec, join_lines(line)) for line in lines]
    together = check(spec, join_lines(*lines))
    expected = [
        sentence.replace("Line 1:", f"Line {number}:", 1)
        for number, summary in enumerate(alone, start=1)
        if (summary.rows or summary.faults.sentences() != ["The input has no rows."])
        for sentence in summary.faults.sentences()
    ]
    blind = [sentence for sentence in expected if "of the file" not in sentence]
    assert [sentence for sentence in together.faults.sentences() if "of the file" not in sentence] in (
        blind,
        ["The input has no rows."],
    )
    assert together.rows == sum(summary.rows for summary in alone)
