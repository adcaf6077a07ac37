"""Lines of many megabytes: read as any other line is, without being held twice."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from anex.catalog import AudioSpec, ImageSpec, VideoSpec
from anex.rows import long_lines
from anex.rows.chat import ChatFormat
from anex.rows.check import RowChecker, Summary
from anex.rows.decode import iterate_rows
from anex.rows.faults import RowRefused
from anex.rows.jsonl import LONG_LINE_BYTES, LongLine, cut_line_blocks
from anex.rows.long_lines import LongText, as_plain, parse_long_line
from anex.rows.settings import RowSettings
from tests.support.row_samples import chat_line, chat_spec, compile_anything, join_lines

MIB = 1 << 20
SPEC = replace(
    chat_spec(),
    modalities=frozenset({"image", "audio", "video"}),
    context_tokens=32_768,
    image=ImageSpec(1280, 20 * MIB, 2),
    audio=AudioSpec(12_500, 2400, 90 * MIB, 1),
    video=VideoSpec(256, 2, 20, None, 60, 2, 150 * MIB, 1),
)


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def check(data: bytes, spec: Any = SPEC, piece: int = MIB) -> Summary:
    pieces = [data[begin : begin + piece] for begin in range(0, len(data), piece)]
    return RowChecker(spec, RowSettings(), "etag", compile_anything).check_stream(pieces)


def parse(text: str) -> Any:
    return as_plain(parse_long_line(bytearray(text.encode()), 0))


@pytest.fixture
def short_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_lines, "LONG_STRING_BYTES", 4)


@pytest.mark.usefixtures("short_is_long")
@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"a":"bcdefg","h":["ijklmn",{"opqrst":"uvwxyz"}],"n":1}',
        '{"a":"b\\"c\\\\defg","e":"\\u00e4\\ud83d\\ude00xx"}',
        '{"a":"äöüäöü \U0001f600","b":"xx\\/yy\\/zz","b":"last wins"}',
        '  {"a" : "bcdefg" }  ',
        '{"aaaaaaaa":{"aaaaaaaa":"aaaaaaaa"}}',
        '{"a":"{[{[{[","b":"long:0","c":"\\nlines\\t"}',
    ],
)
def test_a_long_line_reads_like_any_other(text: str) -> None:
    assert parse(text) == json.loads(text)


@pytest.mark.usefixtures("short_is_long")
@pytest.mark.parametrize("block_bytes", [2, 3, 5, 100])
def test_media_whose_slashes_are_escaped_are_shortened_where_they_lie(
    block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_lines, "TEXT_MAX_BYTES", 0)
    monkeypatch.setattr(long_lines, "_BLOCK_BYTES", block_bytes)
    parsed = parse_long_line(bytearray(rb'{"a":"\/xx\/\/yy\/","b":["\/\/\/\/zzz"],"c":"plain/text"}'), 0)
    assert parsed is not None
    assert [bytes(text.data) for text in (parsed["a"], *parsed["b"], parsed["c"])] == [
        b"/xx//yy/",
        b"////zzz",
        b"plain/text",
    ]


@pytest.mark.usefixtures("short_is_long")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b'{"a":"bcdefg"', "not valid JSON: the line ends before the object does"),
        (b'{"a":"bcdefg', "not valid JSON: the line ends before the object does"),
        (b'{"a":"bcde\\', "not valid JSON: the line ends before the object does"),
        (b'{"a":"bcdefg","b":1,}', "not valid JSON: trailing comma in object (byte 20 of the line)"),
        (
            b'{"a":"bcdefghijklmnopqrs","b":"bcdefghijk" 1}',
            "not valid JSON: expected ',' or '}' (byte 43 of the line)",
        ),
        (b'{"a":"bcd\x01efg"}', "not valid JSON: invalid character (byte 9 of the line)"),
        (b'{"a":"bcd\\xefg"}', "not valid JSON: invalid escape or half of a surrogate pair in a string"),
        (b'{"a":"bcd\\ud800efg"}', "not valid JSON: invalid escape or half of a surrogate pair in a string"),
        (b'{"a":"bcd\xffefg"}', "not valid UTF-8 at byte 109 of the file"),
        (b'{"a":"bcdef\xc3', "not valid UTF-8 at byte 111 of the file"),
        (b'["abcdef"]', "not a JSON object"),
        (b'{"a":"bcdefg","b":NaN}', "NaN is not a JSON number"),
        (
            b'{"a":' + b"[" * 200 + b'"bcdefg"' + b"]" * 200 + b"}",
            "objects and arrays nest deeper than 128 levels",
        ),
    ],
)
def test_a_long_line_that_is_no_object_is_refused_in_the_same_words(text: bytes, told: str) -> None:
    with pytest.raises(RowRefused) as refused:
        parse_long_line(bytearray(text), 100)
    assert refused.value.message == told


@pytest.mark.parametrize("before", range(MIB - 20, MIB + 4))
def test_a_character_over_the_border_of_two_blocks_is_whole(before: int) -> None:
    line = bytearray(b'{"a":"' + b"x" * (before - 6) + "äöü€\U0001f600".encode() * 2 + b"x" * MIB + b'"}')
    assert isinstance((parse_long_line(line, 0) or {})["a"], LongText)
    line[before + 1] = 0x28  # the second byte of the first character
    with pytest.raises(RowRefused) as refused:
        parse_long_line(line, 7)
    assert refused.value.message == f"not valid UTF-8 at byte {before + 7} of the file"


def test_long_lines_are_cut_out_and_counted_among_the_others() -> None:
    text = "x" * (LONG_LINE_BYTES + 5000)
    data = (
        b"\xef\xbb\xbf"
        + chat_line("a", body=said(text))
        + b"\r\n"
        + join_lines(chat_line("b"))
        + chat_line("c", body=said(text))
    )
    cuts = list(cut_line_blocks([data[begin : begin + 1000] for begin in range(0, len(data), 1000)]))
    long = [cut for cut in cuts if isinstance(cut, LongLine)]
    assert [(cut.line, cut.start_byte) for cut in long] == [(1, 3), (3, data.rindex(b'{"custom_id"'))]
    assert all(data[cut.start_byte : cut.start_byte + len(cut.data)] == cut.data for cut in long)
    rows = iterate_rows(
        [data], ChatFormat(replace(SPEC, context_tokens=1 << 30)), start_byte=0, first_line=1, first_row=1
    )
    assert [(row.row_number, row.custom_id, len(row.messages[0].content or "")) for row in rows] == [
        (1, "a", len(text)),
        (2, "b", 2),
        (3, "c", len(text)),
    ]


def test_a_text_that_no_model_could_read_is_refused_uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_lines, "TEXT_MAX_BYTES", 9 * MIB)
    data = join_lines(chat_line("a"), chat_line("b", body=said("x" * (10 * MIB))))
    assert check(data).faults.sentences() == [
        (
            "Row 'b' is too long: at least 40,960 input tokens exceeds the 32,768-token maximum that model"
            " 'test-chat' can serve. Shorten or split this row."
        )
    ]


def test_a_long_line_of_short_texts_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_lines, "SHORT_PART_MAX_BYTES", MIB)
    turns = [{"role": "user", "content": "x" * 1000}] * 9000
    (fault,) = check(join_lines(chat_line("b", body={"messages": turns}))).faults.sentences()
    assert (
        fault
        == "Line 1: the line holds over 1 MiB beside its media, more than any model reads. Split this row"
    )


@pytest.mark.parametrize("place", ["custom_id", "method", "url"])
def test_a_long_string_where_none_belongs_is_refused(place: str) -> None:
    (fault,) = check(join_lines(chat_line("a", **{place: "x" * (9 * MIB)}))).faults.sentences()
    assert fault.startswith(f"Line 1: {place} must be ")


@pytest.mark.parametrize(
    "body",
    [
        {**said("hi"), "metadata": "x" * (9 * MIB)},
        {**said("hi"), "x" * (9 * MIB): 1},
        {**said("hi"), "chat_template_kwargs": {"style": "x" * (9 * MIB)}},
    ],
)
def test_a_long_string_that_is_not_looked_at_harms_nobody(body: dict[str, Any]) -> None:
    assert check(join_lines(chat_line("a", body=body))).faults.sentences() == []


@pytest.mark.parametrize("role", ["x" * (9 * MIB), None])
def test_a_long_role_or_name_is_refused(role: str | None) -> None:
    message = {"role": role or "user", "content": "hi", **({} if role else {"name": ["x" * (9 * MIB)]})}
    (fault,) = check(join_lines(chat_line("a", body={"messages": [message]}))).faults.sentences()
    assert "must be" in fault


@pytest.mark.parametrize("repeated", ["A" * 9, "A" * 7 + "/"])
def test_a_line_with_200_mb_of_media_is_held_once(repeated: str) -> None:
    """Measured with 36 MB, so that the test is quick; ``bench/validate.py`` reads 200 MB. Some writers escape each slash."""
    payload = repeated * (4 * MIB)
    part = {
        "type": "video_url",
        "video_url": {"url": f"data:video/mp4;base64,{payload}", "duration_seconds": 1},
    }
    line = chat_line("a", body={"messages": [{"role": "user", "content": [part]}]}).replace(b"A/", b"A\\/")
    pieces = [line[begin : begin + MIB] for begin in range(0, len(line), MIB)]
    tracemalloc.start()
    try:
        (fault,) = (
            RowChecker(SPEC, RowSettings(), "etag", compile_anything)
            .check_stream(iter(pieces))
            .faults.sentences()
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert fault.startswith("Line 1: an embedded video file is declared as mp4")
    assert peak <= 1.3 * len(line)


def test_a_line_whose_string_never_ends_is_not_looked_at_again_from_each_quote_in_it() -> None:
    """A pattern that refused such a string was tried anew at each escaped quote: a megabyte kept a planner busy for hours."""
    line = b'{"a":"' + b'\\"' * (4 * MIB)
    (fault,) = check(line[: 2 * MIB]).faults.sentences()
    assert fault == "Line 1: not valid JSON: the line ends before the object does"
    (fault,) = check(line + line).faults.sentences()
    assert fault.startswith("Line 1: not valid JSON")


def test_a_line_of_millions_of_values_is_refused_before_it_is_parsed() -> None:
    """31 MiB of empty arrays took a planner to two gigabytes."""
    line = chat_line("a", body={**said("hi"), "zz": ["x" * (9 * MIB)]}).replace(
        b'"zz":[', b'"zz":[' + b"[]," * 600_000
    )
    (fault,) = check(join_lines(line)).faults.sentences()
    assert fault == "Line 1: the line holds over 1,000,000 values beside its media. Split this row"
