"""What one pass over an input accepts, refuses and reports."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from anex.catalog import Reasoning
from anex.rows import decode
from anex.rows.chat import ChatFormat
from anex.rows.check import CheckLimits, RowChecker, Summary
from anex.rows.decode import iterate_rows
from anex.rows.settings import RowSettings
from tests.support.row_samples import chat_line, chat_spec, compile_anything, join_lines

if TYPE_CHECKING:
    from anex.catalog import ModelSpec


def check(
    data: bytes, spec: ModelSpec | None = None, settings: RowSettings | None = None, **limits: int
) -> Summary:
    checker = RowChecker(
        spec or chat_spec(), settings or RowSettings(), "etag", compile_anything, CheckLimits(**limits)
    )
    summary = checker.check_stream([data])
    checker.find_duplicates(summary, [data])
    return summary


def faults_of(data: bytes, spec: ModelSpec | None = None, settings: RowSettings | None = None) -> list[str]:
    return check(data, spec, settings).faults.sentences()


def fault_of(**changes: Any) -> str:
    """Return the one fault of a file whose second line is a good line with ``changes``."""
    data = join_lines(chat_line("a"), chat_line("b", **changes))
    (fault,) = faults_of(data)
    return fault


def body(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hi"}], **fields}


def message(**fields: Any) -> dict[str, Any]:
    return body(messages=[{"role": "user", "content": "hi", **fields}])


def test_a_good_file_is_counted_and_cut() -> None:
    data = b"\xef\xbb\xbf\n" + join_lines(*(chat_line(f"row-{n}") for n in range(150)))
    summary = check(data)
    assert not summary.faults
    assert summary.rows == 150
    assert summary.size_bytes == len(data)
    (span,) = summary.spans
    assert (span.first_row, span.rows, span.first_line) == (1, 150, 2)
    assert [data[cut : cut + 1] for cut in span.cut_bytes] == [b"{"] * 3
    assert list(span.cut_lines) == [2, 66, 130]
    assert data[span.end_byte - 1 : span.end_byte] == b"}"
    assert [row.row_number for row in summary.sample.rows] == list(range(1, 151))


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"[1]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b'{"a":NaN}', "NaN is not a JSON number"),
        (b'{"a":-Infinity}', "-Infinity is not a JSON number"),
        (b'{"a":1e400}', "a number is out of range"),
        (b'{"a":' + b"9" * 5000 + b"}", "a number has too many digits"),
        (b'{"a":"\\ud800"}', "lone surrogate"),
        (b'{"a":"\\udc00xxxxxxxxx"}', "lone surrogate"),
        (b'{"a":1,}', "not valid JSON: trailing comma in object (byte 7 of the line)"),
        (b'{"a":[1,]}', "not valid JSON: trailing comma in array"),
        (b'{"a":1', "the line ends before the object does"),
        (b'{"a":1} {"b":2}', "not valid JSON: trailing characters"),
        (b'{"a":' + b"[" * 128 + b"]" * 128 + b"}", "nest deeper than 128"),
        (b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nest deeper than 128"),
        (b'{"a":"\x01"}', "not valid JSON: invalid character"),
    ],
)
def test_bad_json_is_refused_in_words_with_its_line(raw: bytes, told: str) -> None:
    (fault,) = faults_of(join_lines(chat_line("a")) + b"\n" + raw + b"\n" + join_lines(chat_line("b")))
    assert fault.startswith("Line 3: ")
    assert told in fault


@pytest.mark.parametrize("place", [b'"zz":"%s",', b'"%s":1,'])
def test_bytes_that_are_not_utf8_are_named_even_in_fields_that_nobody_reads(place: bytes) -> None:
    good = join_lines(chat_line("a"))
    bad = b"{" + place % b"\xff" + good[1:]
    offset = len(good) + bad.index(b"\xff")
    assert faults_of(good + bad) == [f"Line 2: not valid UTF-8 at byte {offset} of the file"]


def test_numbers_that_overflow_are_refused_even_in_fields_that_nobody_reads() -> None:
    line = chat_line("a", body=body(temperature=0)).replace(b'"temperature":0', b'"zz":-1e400')
    assert faults_of(join_lines(line)) == ["Line 1: a number is out of range"]
    line = chat_line("a", body=body(temperature=0)).replace(b'"temperature":0', b'"temperature":1e400')
    assert faults_of(join_lines(line)) == ["Line 1: a number is out of range"]


def test_nesting_of_128_is_accepted_and_brackets_in_text_do_not_nest() -> None:
    deep: Any = 1
    for _ in range(126):  # beside the line's own object and its body
        deep = [deep]
    text = "[{" * 500
    data = join_lines(chat_line("a", body=body(zz=deep)), chat_line("b", body=message(content=text)))
    assert not check(data).faults
    assert "nest deeper" in faults_of(join_lines(chat_line("a", body=body(zz=[deep]))))[0]
    used = chat_line("a", body=body(chat_template_kwargs={"zz": deep}))
    assert "nest deeper" in faults_of(join_lines(used))[0]


@pytest.mark.parametrize("neighbour", [chat_line("b"), chat_line("b", body=body(zz=1))])
def test_a_deep_value_that_a_duplicate_key_replaces_is_not_there_whichever_way_its_block_is_read(
    neighbour: bytes,
) -> None:
    deep = b"[" * 200 + b"]" * 200
    line = chat_line("a", body=body(response_format=None)).replace(
        b'"response_format"', b'"response_format":{"a":' + deep + b'},"response_format"'
    )
    assert deep in line
    summary = check(join_lines(line, neighbour))
    assert (summary.rows, summary.faults.sentences()) == (2, [])


def test_of_duplicate_keys_the_last_wins() -> None:
    line = b'{"custom_id":"first",' + chat_line("last")[1:]
    (row,) = iterate_rows([line], ChatFormat(chat_spec()), start_byte=0, first_line=1, first_row=1)
    assert row.custom_id == "last"


def test_an_object_over_two_lines_and_two_on_one_line_are_refused() -> None:
    good = chat_line("a")
    middle = good.index(b'"body"')
    faults = faults_of(
        join_lines(good[:middle], good[middle:], good + good)
    )  # one block, as many values as lines
    assert [fault.split(":")[0] for fault in faults] == ["Line 1", "Line 2", "Line 3"]


def test_white_space_around_a_line_and_blank_lines_are_no_rows() -> None:
    summary = check(b"  \t\n " + chat_line("a") + b" \r\n\r\n" + chat_line("b"))
    assert (summary.rows, summary.faults.sentences()) == (2, [])
    assert summary.spans[0].first_line == 2


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"custom_id": ""}, "custom_id must be a string of 1 to 512 characters"),
        ({"custom_id": "x" * 513}, "custom_id must be a string of 1 to 512 characters"),
        ({"custom_id": 7}, "custom_id must be a string of 1 to 512 characters"),
        ({"custom_id": None}, "custom_id must be a string of 1 to 512 characters"),
        ({"method": "GET"}, "method must be 'POST'"),
        (
            {"url": "/v1/embeddings"},
            "url must be '/v1/chat/completions' in every line for model 'test-chat', not '/v1/embeddings'",
        ),
        ({"url": None}, "url must be '/v1/chat/completions' in every line for model 'test-chat'"),
        ({"body": []}, "body must be an object"),
        ({"body": {}}, "body.messages must be a non-empty list of messages"),
        ({"body": {"messages": []}}, "body.messages must be a non-empty list of messages"),
        ({"body": {"messages": ["hi"]}}, "body.messages[0] must be an object with a role and a content"),
        (
            {"body": message(role="robot")},
            "body.messages[0].role must be one of system, user, assistant, developer, tool, not 'robot'",
        ),
        (
            {"body": message(content=5)},
            "body.messages[0].content must be a string or a non-empty list of content parts",
        ),
        (
            {"body": message(content=[])},
            "body.messages[0].content must be a string or a non-empty list of content parts",
        ),
        ({"body": message(content=["x"])}, "body.messages[0].content[0] must be an object with a type"),
        ({"body": message(content=[{"type": "text"}])}, "body.messages[0].content[0].text must be a string"),
        ({"body": message(name=5)}, "body.messages[0].name must be a string"),
        ({"body": message(tool_calls=5)}, "body.messages[0].tool_calls must be a list of objects"),
        (
            {"body": message(content=[{"type": "hologram"}])},
            (
                "unsupported content part type 'hologram': supported types are"
                " text, image_url, input_audio, audio_url, video_url"
            ),
        ),
        (
            {"body": message(content=[{"type": "image_url", "image_url": {"url": "https://x/y.png"}}])},
            "model 'test-chat' has no image encoder and can't read a content part of type 'image_url'",
        ),
        ({"body": body(chat_template_kwargs=[])}, "body.chat_template_kwargs must be an object"),
        ({"body": body(response_format="json")}, "body.response_format must be an object"),
        (
            {"body": body(response_format={"type": "xml"})},
            "response_format.type must be 'json_object', 'json_schema' or 'text'",
        ),
        (
            {"body": body(chat_template_kwargs={"enable_thinking": 1})},
            "chat_template_kwargs.enable_thinking must be true or false",
        ),
    ],
)
def test_a_line_that_breaks_the_contract_is_named(changes: dict[str, Any], told: str) -> None:
    assert fault_of(**changes) == f"Line 2: {told}"


def test_null_equals_absent_and_unknown_fields_are_ignored() -> None:
    line = chat_line(
        "a",
        zz={"y": 1},
        body=body(chat_template_kwargs=None, response_format=None, logit_bias={"1": 2}, model="other"),
    )
    spoken = chat_line(
        "b",
        body=body(
            messages=[
                {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}], "zz": 1},
                {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "x", "zz": 1}]},
            ]
        ),
    )
    data = join_lines(line, spoken)
    assert not check(data).faults
    rows = list(iterate_rows([data], ChatFormat(chat_spec()), start_byte=0, first_line=1, first_row=5))
    assert [row.row_number for row in rows] == [5, 6]
    assert rows[1].plain_messages() == [
        {"role": "assistant", "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": [{"type": "text", "text": "x"}], "tool_call_id": "1"},
    ]


THINKER = replace(chat_spec(), reasoning=Reasoning(("low", "high"), "high", 64))


@pytest.mark.parametrize(
    ("spec", "settings", "kwargs", "told"),
    [
        (chat_spec(), RowSettings(), {"enable_thinking": True}, "produces no reasoning trace"),
        (chat_spec(), RowSettings(), {"reasoning_effort": "low"}, "takes no effort level"),
        (THINKER, RowSettings(), {"reasoning_effort": "LOW"}, "'LOW' is not a level of model 'test-chat'"),
        (THINKER, RowSettings(), {"reasoning_effort": 3}, "must be a string"),
        (
            THINKER,
            RowSettings(),
            {"zz": 1, "truncation": True},
            "chat_template_kwargs.truncation is an option of the tok",
        ),
        (THINKER, RowSettings(reasoning=False), {"reasoning_effort": "low"}, "whose thinking is off"),
        (
            THINKER,
            RowSettings(),
            {"reasoning_effort": "low", "enable_thinking": False},
            "whose thinking is off",
        ),
        (
            THINKER,
            RowSettings(reasoning_budget=5),
            {"enable_thinking": False},
            "the job sets a reasoning_budget",
        ),
    ],
)
def test_a_rows_thinking_is_held_against_model_and_job(
    spec: ModelSpec, settings: RowSettings, kwargs: dict[str, Any], told: str
) -> None:
    data = join_lines(chat_line("a", body=body(chat_template_kwargs=kwargs)))
    (fault,) = faults_of(data, spec, settings)
    assert fault.startswith("Line 1: chat_template_kwargs.")
    assert told in fault


def test_allowed_thinking_settings_make_classes() -> None:
    lines = [
        chat_line("a", body=body(chat_template_kwargs={"enable_thinking": False, "other": 1})),
        chat_line("b", body=body(chat_template_kwargs={"reasoning_effort": "low"})),
        chat_line("c", body=body(response_format={"type": "json_object"})),
        chat_line("d"),
    ]
    summary = check(join_lines(*lines), THINKER, RowSettings(reasoning_budget=0))
    assert not summary.faults
    assert dict(zip(summary.classes, summary.class_rows, strict=True)) == {
        (True, None, None): 1,
        (False, None, None): 1,
        (True, "low", None): 1,
        (True, None, "json_object"): 1,
    }


def test_duplicates_name_both_lines_and_cost_a_second_look_only_when_suspected() -> None:
    data = join_lines(chat_line("a"), chat_line("b"), b"", chat_line("a"), chat_line("a"))
    assert faults_of(data) == [
        "Line 4: custom_id 'a' was already used in line 1",
        "Line 5: custom_id 'a' was already used in line 1",
    ]
    assert not check(join_lines(chat_line("a"), chat_line("b"))).suspects.hashes


def test_more_duplicates_than_are_looked_up_are_counted() -> None:
    data = join_lines(*(chat_line(f"{n % 1500}") for n in range(3000)))
    sentences = faults_of(data)
    assert len(sentences) == 21
    assert sentences[-1] == "and 1,480 more"


def test_twenty_faults_are_told_and_the_rest_counted() -> None:
    sentences = faults_of(b"{}\n" * 25)
    assert len(sentences) == 21
    assert sentences[0].startswith("Line 1: ")
    assert sentences[-1] == "and 5 more"


def test_faults_of_parsing_and_of_settings_come_in_the_order_of_lines() -> None:
    wrong = body(chat_template_kwargs={"enable_thinking": 1})
    faults = faults_of(join_lines(chat_line("a", body=wrong), b"nonsense", chat_line("b", body=wrong)))
    assert [fault.split(":")[0] for fault in faults] == ["Line 1", "Line 2", "Line 3"]


def test_an_empty_input_and_too_many_rows_are_refused() -> None:
    assert faults_of(b"\n\n") == ["The input has no rows."]
    data = join_lines(*(chat_line(f"{n}") for n in range(5)))
    summary = check(data, rows_max=4)
    assert summary.faults.sentences() == ["The input has more than 4 rows. Split it over several jobs."]


def test_a_line_over_the_limit_is_refused_by_its_number() -> None:
    data = join_lines(chat_line("a"), chat_line("b", body=message(content="x" * (2 << 20))), chat_line("c"))
    summary = check(data, line_max_bytes=1 << 20)
    assert summary.faults.sentences() == ["Line 2: the line is over 1 MiB"]


def test_payload_is_cut_in_sentences() -> None:
    sentence = fault_of(url="z" * 500)
    assert sentence.count("z") == 63


def test_progress_is_reported_every_few_mebibytes() -> None:
    seen: list[tuple[int, int]] = []
    big = join_lines(*(chat_line(f"{n}", body=message(content="x" * 100_000)) for n in range(200)))
    pieces = [big[begin : begin + (1 << 20)] for begin in range(0, len(big), 1 << 20)]
    RowChecker(chat_spec(), RowSettings(), "e", compile_anything).check_stream(
        pieces, lambda size, rows: seen.append((size, rows))
    )
    assert len(seen) == 2
    assert seen[0][0] == 8 << 20
    assert 0 < seen[0][1] < seen[1][1] < 200


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n", b"\r\n\r\n"])
def test_ordinary_lines_are_decoded_as_a_block(end: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        chat_line(f"{n}", body=message(content=[{"type": "text", "text": "[{" * 300}])) for n in range(9)
    ]
    monkeypatch.setattr(decode, "parse_line", None)
    plain = [
        chat_line("a", body=body(model="m", stop=["x"], seed=2**40, top_p=0.5, stream=False)),
        chat_line("b"),
    ]
    for each in (plain, lines):
        summary = check(end.join(each) + end)
        assert (summary.rows, summary.faults.sentences()) == (len(each), [])


def test_lines_over_the_limit_do_not_hide_duplicates() -> None:
    big = chat_line("b", body=message(content="x" * (2 << 20)))
    summary = check(join_lines(chat_line("a"), big, chat_line("a")), line_max_bytes=1 << 20)
    assert summary.faults.sentences() == [
        "Line 2: the line is over 1 MiB",
        "Line 3: custom_id 'a' was already used in line 1",
    ]


def test_more_settings_than_are_remembered_are_judged_again() -> None:
    lines = [chat_line(f"{n}", body=body(chat_template_kwargs={"k": n})) for n in range(5000)]
    summary = check(join_lines(*lines))
    assert (summary.faults.sentences(), summary.class_rows) == ([], (5000,))


def test_a_long_line_that_is_not_json_is_refused_without_a_second_parse() -> None:
    data = b'{"a":"' + b"x" * (9 << 20) + b'",}'
    (fault,) = faults_of(data)
    assert fault.startswith("Line 1: not valid JSON: trailing comma in object")


def test_json_written_with_spaces_is_read() -> None:
    line = json.dumps(json.loads(chat_line("a"))).encode()
    assert not check(line + b"\n").faults
