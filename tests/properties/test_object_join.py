"""The plan of a join, for any sizes: legal parts that hold every byte once, in order, in bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anex.object_join import (
    OBJECT_MAX_BYTES,
    PART_MAX_BYTES,
    PART_MIN_BYTES,
    PARTS_MAX,
    JoinedPart,
    Stretch,
    plan_join,
)

near_minimum = st.integers(PART_MIN_BYTES - 2, PART_MIN_BYTES + 2)
near_double = st.integers(2 * PART_MIN_BYTES - 2, 2 * PART_MIN_BYTES + 2)
near_maximum = st.integers(PART_MAX_BYTES - 2, 2 * PART_MAX_BYTES + 2)
anything = st.integers(0, 100 << 20)
sizes_lists = st.lists(
    st.one_of(st.integers(0, 9), near_minimum, near_double, near_maximum, anything), max_size=40
)


def walk(parts: list[JoinedPart]) -> list[Stretch]:
    return [stretch for part in parts for stretch in part.stretches]


@given(sizes_lists)
@example([1, PART_MIN_BYTES - 1, 1])
@example([1, 2 * PART_MIN_BYTES - 1])
@example([1, 2 * PART_MIN_BYTES - 2])
@example([PART_MAX_BYTES + 1])
def test_every_byte_stands_once_in_order_in_legal_parts(sizes: list[int]) -> None:
    parts = plan_join(sizes)

    expected_at = [(index, 0) for index, size in enumerate(sizes) if size]
    for stretch in walk(parts):
        assert stretch.size_bytes > 0
        assert (stretch.index, stretch.start) == expected_at.pop(0)
        if stretch.end < sizes[stretch.index]:
            expected_at.insert(0, (stretch.index, stretch.end))
        else:
            assert stretch.end == sizes[stretch.index]
    assert expected_at == []
    assert all(part.size_bytes >= PART_MIN_BYTES for part in parts[:-1])
    assert all(part.size_bytes <= PART_MAX_BYTES for part in parts)
    assert all(part.size_bytes < 3 * PART_MIN_BYTES for part in parts if not part.is_copy)
    assert len(parts) <= PARTS_MAX


@given(st.lists(near_minimum, min_size=1, max_size=20), st.integers(1000, 1100))
@settings(max_examples=25)
def test_tens_of_thousands_of_sources_stay_within_the_most_parts(sizes: list[int], repeats: int) -> None:
    many = sizes * repeats
    parts = plan_join(many)

    assert len(parts) <= PARTS_MAX
    assert sum(part.size_bytes for part in parts) == sum(many)
    assert all(part.size_bytes >= PART_MIN_BYTES for part in parts[:-1])
    assert all(part.size_bytes < 12 * PART_MIN_BYTES for part in parts if not part.is_copy)


def test_large_sources_are_never_read_by_us() -> None:
    assert [part.is_copy for part in plan_join([64 << 20] * 5)] == [True] * 5


def test_more_than_the_largest_object_is_refused() -> None:
    with pytest.raises(ValueError, match="largest object"):
        plan_join([OBJECT_MAX_BYTES, 1])
