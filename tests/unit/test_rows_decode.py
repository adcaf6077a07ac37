"""A range of a checked input, as a worker reads it, and the length that a row may have."""

from __future__ import annotations

import pytest

from anex.errors import RowsInvalid
from anex.rows.decode import iterate_rows
from anex.rows.faults import find_length_fault
from tests.support.row_samples import chat_line, chat_spec


def test_a_row_that_leaves_no_room_for_an_answer_is_too_long() -> None:
    assert find_length_fault("x", 999, 1000, "m") is None
    assert find_length_fault("x" * 99, 37_500, 32_768, "m") == (
        f"Row '{'x' * 63}…' is too long: 37,500 input tokens exceeds the 32,768-token maximum that model 'm'"
        " can serve. Shorten or split this row."
    )


def test_a_range_that_is_not_what_was_checked_is_refused() -> None:
    def run(data: bytes) -> None:
        list(iterate_rows([data], chat_spec(), start_byte=9, first_line=4, first_row=2))

    with pytest.raises(RowsInvalid, match=r"^Line 5: not a JSON object$"):
        run(chat_line("a") + b"\n[]\n[]\n")
    too_long = chat_line("a", body={"messages": [{"role": "user", "content": "x" * (2 << 20)}]})
    rows = iterate_rows(
        [too_long], chat_spec(), start_byte=9, first_line=4, first_row=2, line_max_bytes=1 << 20
    )
    with pytest.raises(RowsInvalid, match=r"^Line 4: the line is over 1 MiB$"):
        list(rows)
