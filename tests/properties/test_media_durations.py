"""No bytes at all break a reader of lengths: it answers, or refuses, within its bounds."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from anex.media.durations import read_clip, read_pictures
from anex.media.model import MediaUnreadable
from anex.media.window import READS_MAX
from tests.support.containers import MemorySource, box, chunk, element, opus_head, page, riff

if TYPE_CHECKING:
    from collections.abc import Callable

FORMATS = ["mp4", "mov", "m4a", "webm", "mkv", "wav", "aiff", "flac", "ogg", "opus", "mp3", "aac", "avi"]
READS_AT_MOST = READS_MAX + READS_MAX // 4 + 1
NUMBERS = st.one_of(st.integers(0, 2000), st.sampled_from([2**31 - 1, 2**31, 2**32 - 1]))
BODIES = st.one_of(
    st.binary(max_size=90),
    st.lists(NUMBERS, max_size=12).map(lambda numbers: struct.pack(f">{len(numbers)}I", *numbers)),
)
BOXES = b"moov mvhd mvex mehd trex trak tkhd mdia mdhd hdlr minf stbl stsz stts moof traf tfhd tfdt trun sidx".split()
ELEMENTS = [
    *(
        0x18538067,
        0x114D9B74,
        0x4DBB,
        0x53AB,
        0x53AC,
        0x1549A966,
        0x2AD7B1,
        0x4489,
        0x1654AE6B,
        0xAE,
        0xD7,
        0x83,
    ),
    *(0x23E383, 0x1F43B675, 0xE7, 0xA3, 0xA0, 0xA1, 0x9B, 0xEC),
]
CHUNKS = [b"fmt ", b"data", b"fact", b"ds64", b"LIST", b"strh", b"COMM", b"SSND"]


def read_anything(format: str, content: bytes) -> None:  # noqa: A002
    """Read bytes that may be anything; ``MemorySource`` fails on a read out of bounds."""
    source = MemorySource(content)
    try:
        clip = read_clip(format, source)
        read_pictures(format, MemorySource(content))
    except MediaUnreadable:
        return
    finally:
        assert source.reads <= READS_AT_MOST
    assert clip is None or clip.seconds > 0


def nest(kinds: list[bytes], make: Callable[..., bytes]) -> st.SearchStrategy[bytes]:
    """Return a strategy for pieces within pieces, of kinds that readers look into."""

    def grow(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
        return st.builds(make, st.sampled_from(kinds), st.lists(inner, max_size=5).map(b"".join))

    return st.lists(st.recursive(BODIES, grow, max_leaves=25), max_size=6).map(b"".join)


@given(format=st.sampled_from(FORMATS), content=st.binary(max_size=600))
@settings(derandomize=True, max_examples=300)
def test_bytes_at_random(format: str, content: bytes) -> None:  # noqa: A002
    read_anything(format, content)


@given(content=nest(BOXES, box))
@settings(derandomize=True, max_examples=150)
def test_boxes_at_random(content: bytes) -> None:
    read_anything("mp4", box(b"ftyp", b"isom") + content)


@given(movie=nest(BOXES[1:], box), fragments=nest(BOXES, box))
@settings(derandomize=True, max_examples=150)
def test_a_movie_of_boxes_at_random(movie: bytes, fragments: bytes) -> None:
    header = box(b"mvhd", struct.pack(">4x8xII", 1000, 0), bytes(80))
    read_anything("mov", box(b"moov", header, movie, box(b"mvex")) + fragments)


@given(
    content=nest(
        [kind.to_bytes(4, "big").lstrip(b"\0") for kind in ELEMENTS],
        lambda kind, body: element(int.from_bytes(kind, "big"), body),
    )
)
@settings(derandomize=True, max_examples=150)
def test_elements_at_random(content: bytes) -> None:
    read_anything("mkv", element(0x1A45DFA3) + element(0x18538067, content, unknown=True))


@given(content=nest(CHUNKS, chunk), kind=st.sampled_from([b"WAVE", b"AVI "]))
@settings(derandomize=True, max_examples=150)
def test_chunks_at_random(content: bytes, kind: bytes) -> None:
    read_anything("wav" if kind == b"WAVE" else "avi", riff(kind, content))


@given(
    pages=st.lists(
        st.builds(
            page,
            st.integers(0, 2),
            st.integers(-(2**63), 2**63 - 1),
            st.binary(max_size=200),
            first=st.booleans(),
        ),
        max_size=8,
    )
)
@settings(derandomize=True, max_examples=300)
def test_pages_at_random(pages: list[bytes]) -> None:
    read_anything("ogg", opus_head(1) + b"".join(pages))
