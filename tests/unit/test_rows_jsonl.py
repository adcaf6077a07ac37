"""Cutting a byte stream into lines."""

from __future__ import annotations

from anex.rows.jsonl import LineBlock, OversizeLine, cut_line_blocks
from anex.rows.lines import index_lines, nests_deeper


def read_lines(data: bytes, piece: int = 7) -> list[tuple[int, int, bytes]]:
    """Return (line number, offset, bytes) of each non-empty line, from pieces of ``piece`` bytes."""
    blocks = [data[begin : begin + piece] for begin in range(0, len(data), piece)]
    found = []
    for block in cut_line_blocks(blocks, block_bytes=16):
        assert isinstance(block, LineBlock)
        index = index_lines(block)
        for start, end, number in zip(index.starts, index.ends, index.numbers, strict=True):
            found.append((int(number), block.start_byte + int(start), bytes(block.data[start:end])))
    return found


def test_lines_end_at_newlines_only_and_one_carriage_return_is_dropped() -> None:
    data = "a\u2028b\u0085\r\n\r\n\nc\r\r\nd".encode()
    lines = read_lines(data)
    assert [line for _, _, line in lines] == ["a\u2028b\u0085".encode(), b"c\r", b"d"]
    assert [number for number, _, _ in lines] == [1, 4, 5]
    assert all(data[start : start + len(line)] == line for _, start, line in lines)


def test_a_byte_order_mark_is_dropped_at_the_start_only_and_offsets_count_it() -> None:
    assert read_lines(b"\xef\xbb\xbfab\n\xef\xbb\xbfc", piece=1) == [
        (1, 3, b"ab"),
        (2, 6, b"\xef\xbb\xbfc"),
    ]


def test_a_line_over_the_limit_is_named_and_passed_over() -> None:
    data = b"ok\n" + b"x" * 50 + b"\nnext\n" + b"y" * 20
    blocks = list(cut_line_blocks([data], block_bytes=8, line_max_bytes=16))
    assert [(block.line, block.start_byte) for block in blocks if isinstance(block, OversizeLine)] == [
        (2, 3),
        (4, 59),
    ]
    kept = [block for block in blocks if isinstance(block, LineBlock)]
    assert [(bytes(block.data), block.first_line, block.start_byte) for block in kept] == [
        (b"ok\n", 1, 0),
        (b"next\n", 3, 54),
    ]


def test_a_line_of_exactly_the_limit_is_kept() -> None:
    (block,) = cut_line_blocks([b"x" * 16, b"\n"], block_bytes=8, line_max_bytes=16)
    assert isinstance(block, LineBlock)
    assert block.data == b"x" * 16 + b"\n"


def test_an_endless_line_is_not_held() -> None:
    def endless() -> object:
        for _ in range(1000):
            yield b"x" * 1000

    (block,) = cut_line_blocks(endless(), block_bytes=1000, line_max_bytes=4000)  # type: ignore[arg-type]
    assert block == OversizeLine(0, 1)


def test_an_empty_stream_has_no_lines() -> None:
    assert list(cut_line_blocks([])) == []
    assert list(cut_line_blocks([b"", b""])) == []


def test_depth_counts_objects_and_arrays() -> None:
    assert nests_deeper({"a[[[": [[1], {}]}, 2)
    assert not nests_deeper({"a[[[": [[1], {}]}, 3)
    assert not nests_deeper({}, 1)
