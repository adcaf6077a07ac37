"""A range of a checked input, as a worker reads it, and the length that a row may have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anex.catalog import ContextLimits, MediaContext
from anex.errors import RowsInvalid
from anex.rows.chat import ChatFormat
from anex.rows.decode import iterate_rows
from anex.rows.faults import find_length_fault
from tests.support.row_samples import chat_line, chat_spec


def test_a_row_that_leaves_no_room_for_an_answer_is_too_long() -> None:
    spec = chat_spec()
    assert find_length_fault("x", 999, spec) is None
    assert find_length_fault("x" * 99, 37_500, replace(spec, context_tokens=32_768)) == (
        f"Row '{'x' * 63}…' is too long: 37,500 input tokens exceeds the 32,768-token maximum that model 'test-chat'"
        " can serve. Shorten or split this row."
    )


def test_what_media_encode_to_counts_and_a_wider_context_is_theirs_alone() -> None:
    nemotron = replace(chat_spec(), id="nemotron-3-nano-omni-30b", context_tokens=32_768)
    assert find_length_fault("x", 37_500, nemotron, {"audio"}) == (
        "Row 'x' is too long: 37,500 input tokens (including media) exceeds the 32,768-token maximum that model"
        " 'nemotron-3-nano-omni-30b' can serve with audio input. Shorten or split this row."
    )
    wide = MediaContext(frozenset({"image", "video"}), ContextLimits(131_072, 32_768, 131_072))
    qwen = replace(nemotron, media_context=wide)
    assert find_length_fault("x", 131_071, qwen, {"image"}) is None
    assert "with image and video input" in (find_length_fault("x", 131_072, qwen, {"video", "image"}) or "")
    assert find_length_fault("x", 40_000, qwen) is not None


def test_a_range_that_is_not_what_was_checked_is_refused() -> None:
    def run(data: bytes) -> None:
        list(iterate_rows([data], ChatFormat(chat_spec()), start_byte=9, first_line=4, first_row=2))

    with pytest.raises(RowsInvalid, match=r"^Line 5: not a JSON object$"):
        run(chat_line("a") + b"\n[]\n[]\n")
    too_long = chat_line("a", body={"messages": [{"role": "user", "content": "x" * (2 << 20)}]})
    rows = iterate_rows(
        [too_long], ChatFormat(chat_spec()), start_byte=9, first_line=4, first_row=2, line_max_bytes=1 << 20
    )
    with pytest.raises(RowsInvalid, match=r"^Line 4: the line is over 1 MiB$"):
        list(rows)
