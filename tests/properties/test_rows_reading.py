"""The fast way of reading rows never accepts what the careful one refuses, and cutting loses nothing."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from anex.rows.chat import ChatFormat, ChatLine
from anex.rows.check import RowChecker, Summary
from anex.rows.decode import decode_block, iterate_rows
from anex.rows.faults import RowRefused
from anex.rows.jsonl import LineBlock, cut_line_blocks
from anex.rows.parse import parse_line
from anex.rows.settings import RowSettings
from tests.support.row_samples import chat_line, chat_spec, compile_anything, join_lines

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.floats(allow_nan=True))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
CONTENTS = st.one_of(
    st.text(max_size=20), st.just([{"type": "text", "text": "x"}]), st.lists(VALUES, max_size=2), VALUES
)
MESSAGES = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "tool", "robot"]), "content": CONTENTS},
            optional={"name": VALUES, "tool_calls": VALUES, "zz": VALUES},
        ),
        VALUES,
    ),
    max_size=3,
)
LINES = st.fixed_dictionaries(
    {
        "custom_id": st.one_of(st.text(min_size=1, max_size=8), VALUES),
        "method": st.one_of(st.just("POST"), VALUES),
        "url": st.one_of(st.just("/v1/chat/completions"), VALUES),
        "body": st.one_of(
            st.fixed_dictionaries(
                {"messages": MESSAGES},
                optional={"chat_template_kwargs": VALUES, "response_format": VALUES, "temperature": VALUES},
            ),
            VALUES,
        ),
    },
    optional={"zz": VALUES},
)
MUTATIONS = st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=2), st.integers(0, 2)), max_size=2)


def mutate(line: bytes, mutations: list[tuple[int, bytes, int]]) -> bytes:
    for place, inserted, dropped in mutations:
        at = place % (len(line) + 1)
        line = line[:at] + inserted + line[at + dropped :]
    return line.replace(b"\n", b" ")


def read_carefully(line: bytes) -> tuple[list[ChatLine], list[tuple[int, str]]]:
    try:
        value = parse_line(line, 0)
        return ([] if value is None else [ChatFormat(chat_spec()).read_line(value)]), []
    except RowRefused as refusal:
        return [], [(1, refusal.describe(1))]


def used_fields(line: ChatLine) -> Any:
    body = line.body
    return line.custom_id, msgspec.to_builtins(body.messages), body.chat_template_kwargs, body.response_format


@given(value=LINES, mutations=MUTATIONS)
def test_what_the_fast_way_accepts_the_careful_one_reads_alike(
    value: dict[str, Any], mutations: list[tuple[int, bytes, int]]
) -> None:
    line = mutate(
        json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace"), mutations
    )
    reader = ChatFormat(chat_spec())
    (block,) = cut_line_blocks([line])
    assert isinstance(block, LineBlock)
    decoded = decode_block(block, reader)
    expected, faults = read_carefully(line)
    assert decoded.faults == faults
    assert [used_fields(one) for one in decoded.lines] == [used_fields(one) for one in expected]


@given(
    lines=st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=20),
    closed=st.booleans(),
    cuts=st.integers(1, 30),
    block_bytes=st.integers(1, 50),
)
def test_blocks_hold_every_byte_once_with_their_line_numbers(
    lines: list[bytes], closed: bool, cuts: int, block_bytes: int
) -> None:
    data = b"\n".join(lines) + (b"\n" if closed else b"")
    pieces = [data[begin : begin + cuts] for begin in range(0, len(data), cuts)]
    blocks = [
        block for block in cut_line_blocks(pieces, block_bytes=block_bytes) if isinstance(block, LineBlock)
    ]
    marked = data.startswith(b"\xef\xbb\xbf")
    assert b"".join(block.data for block in blocks) == data[3 * marked :]
    for block in blocks:
        assert data[block.start_byte : block.start_byte + len(block.data)] == block.data
        assert block.first_line == 1 + data[: block.start_byte].count(b"\n")


def check_in_pieces(data: bytes, piece: int, seed: str = "etag") -> Summary:
    pieces = [data[begin : begin + piece] for begin in range(0, len(data), piece)]
    return RowChecker(chat_spec(), RowSettings(), seed, compile_anything).check_stream(pieces)


@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=300),
    piece=st.integers(100, 5000),
    blanks=st.sets(st.integers(0, 299), max_size=5),
)
def test_spans_and_sub_cuts_cover_each_row_once(sizes: list[int], piece: int, blanks: set[int]) -> None:
    lines = []
    for number, size in enumerate(sizes):
        lines += [b""] * (number in blanks)
        lines.append(chat_line(f"{number}", body={"messages": [{"role": "user", "content": "x" * size}]}))
    data = join_lines(*lines)
    summary = check_in_pieces(data, piece)
    assert summary == check_in_pieces(data, len(data))
    seen = []
    for span in summary.spans:
        ends = [*span.cut_bytes[1:], span.end_byte]
        for start, end, line in zip(span.cut_bytes, ends, span.cut_lines, strict=True):
            rows = list(
                iterate_rows(
                    [data[start:end]], ChatFormat(chat_spec()), start_byte=start, first_line=line, first_row=1
                )
            )
            assert len(rows) <= 64
            assert line == 1 + data[:start].count(b"\n")
            seen += [row.custom_id for row in rows]
    assert seen == [f"{number}" for number in range(len(sizes))]


@given(count=st.integers(1, 400), seed=st.text(max_size=5))
def test_a_sample_is_a_census_up_to_200_rows_and_points_at_its_rows(count: int, seed: str) -> None:
    data = join_lines(
        *(
            chat_line(f"{n}", body={"messages": [{"role": "user", "content": "x" * (n % 97)}]})
            for n in range(count)
        )
    )
    sample = check_in_pieces(data, 997, seed).sample
    assert len(sample.rows) == min(count, 200)
    assert len({row.row_number for row in sample.rows}) == len(sample.rows)
    assert sum(stratum.rows for stratum in sample.strata) == count
    for row in sample.rows:
        assert json.loads(data[row.start_byte : row.end_byte])["custom_id"] == f"{row.row_number - 1}"
        assert 0 <= row.stratum < len(sample.strata)
