"""No bytes at all break what looks at media in rows: they are told apart, decoded, or refused, within bounds."""

from __future__ import annotations

import binascii
import io
import warnings
from base64 import b64encode
from functools import cache
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from anex.media.formats import FORMATS, find_by_extension, find_by_mime, find_by_name
from anex.media.images import READS_MAX, find_image_fault, read_image
from anex.media.inline import Base64Source, find_base64_fault, parse_data_uri
from anex.media.model import MediaUnreadable
from anex.media.sniff import find_contradiction, identify, sniff_format
from tests.support.containers import MemorySource

if TYPE_CHECKING:
    from anex.catalog import Modality

bounded = settings(derandomize=True, max_examples=300)

MODALITIES: list[Modality] = ["audio", "video", "image"]
BEGINNINGS = [
    *(b"", b"ID3\x04\0\0\0\0\0\x05", b"\0\0\0\x14ftyp", b"RIFF\0\0\0\0", b"FORM\0\0\0\0AIFF", b"OggS", b"BM"),
    *(
        b"\xff\xfb\x90\0",
        b"\xff\xf1\x50\x80",
        b"\x1a\x45\xdf\xa3",
        b"#EXTM3U",
        b"<?xml",
        b"GIF89a",
        b"II\x2a\0",
    ),
]
heads = st.builds(bytes.__add__, st.sampled_from(BEGINNINGS), st.binary(max_size=64))
base64_like = st.text("ABCabc019+/=-_ \n%,;:d\u00e4", max_size=40)
edits = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=6)


@cache
def make_images(format: str) -> list[bytes]:  # noqa: A002
    """Return real files: one picture, and three where the format can."""
    pictures = [Image.new("RGB", (9, 5), (number * 40, 0, 0)) for number in range(3)]
    animated = {"save_all": True, "append_images": pictures[1:]} if format not in {"jpeg", "bmp"} else {}
    made = []
    for options in ({}, animated):
        file = io.BytesIO()
        pictures[0].save(file, format, **options)
        made.append(file.getvalue())
    return made


def edit(content: bytes, changes: list[tuple[int, int]]) -> bytes:
    edited = bytearray(content)
    for place, value in changes:
        edited[place % len(edited)] = value
    return bytes(edited)


@st.composite
def damaged_images(draw: st.DrawFn) -> tuple[str, bytes]:
    """Draw a format and a real file of it, some of its bytes changed."""
    named = draw(st.sampled_from(FORMATS["image"]))
    return named, edit(draw(st.sampled_from(make_images(named))), draw(edits))


@given(modality=st.sampled_from(MODALITIES), text=st.text(max_size=60))
@bounded
def test_any_name_is_one_of_a_format_or_not(modality: Modality, text: str) -> None:
    for found in (find_by_name(modality, text), find_by_mime(modality, text)):
        assert found is None or found in FORMATS[modality]
    extension = find_by_extension(text)
    assert extension is None or extension.isalnum()


@given(modality=st.sampled_from(MODALITIES), head=heads)
@bounded
def test_what_bytes_are_told_to_be_they_do_not_contradict(modality: Modality, head: bytes) -> None:
    named = sniff_format(modality, head)
    contradicted = [each for each in FORMATS[modality] if find_contradiction(each, head) is not None]

    assert named not in contradicted
    if identify(head) is None and head:
        assert set(FORMATS[modality]) - set(contradicted) <= {"mp3", "aac"}


@given(text=base64_like | st.binary(max_size=60).map(lambda content: b64encode(content).decode()))
@settings(derandomize=True, max_examples=500)
def test_base64_is_judged_as_a_strict_decoder_judges_it(text: str) -> None:
    try:
        decoded = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        assert find_base64_fault(text) is not None
        assert find_base64_fault(memoryview(text.encode())) is not None
        return
    assert find_base64_fault(text) is None
    assert Base64Source(text).size_bytes == len(decoded)


@given(content=st.binary(max_size=90), offset=st.integers(-5, 100), count=st.integers(-5, 100))
@bounded
def test_any_bytes_are_read_from_any_place(content: bytes, offset: int, count: int) -> None:
    source = Base64Source(memoryview(b64encode(content)))
    expected = content[offset : offset + count] if offset >= 0 and count > 0 else b""

    assert source.read(offset, count) == expected


@given(text=base64_like, offset=st.integers(0, 40), count=st.integers(0, 40))
@bounded
def test_reading_what_is_no_base64_is_refused_in_one_way(text: str, offset: int, count: int) -> None:
    source = Base64Source(text)
    try:
        assert len(source.read(offset, count)) <= count
    except MediaUnreadable:
        assert find_base64_fault(text) is not None


@given(
    start=st.sampled_from(["", "data:", "DATA:"]),
    middle=base64_like,
    end=st.sampled_from(["", ";base64,QUJD"]),
)
@bounded
def test_any_data_uri_is_taken_apart_or_refused(start: str, middle: str, end: str) -> None:
    text = start + middle + end
    try:
        uri = parse_data_uri(text)
    except MediaUnreadable:
        return
    assert text[: uri.begin].endswith(";base64,")
    assert "," not in uri.mime
    assert parse_data_uri(memoryview(text.encode("latin-1"))).begin == uri.begin


@given(format=st.sampled_from(FORMATS["image"]), content=st.binary(max_size=200))
@bounded
def test_images_of_bytes_at_random(format: str, content: bytes) -> None:  # noqa: A002
    source = MemorySource(content)

    assert find_image_fault(format, source) is not None or content
    assert source.reads <= READS_MAX


@given(image=damaged_images(), cut=st.none() | st.integers(0, 400), put_in=st.binary(max_size=12))
@settings(derandomize=True, max_examples=1500)
def test_a_damaged_image_is_refused_or_as_large_as_the_engine_finds_it(
    image: tuple[str, bytes], cut: int | None, put_in: bytes
) -> None:
    named, content = image
    content = content if cut is None else content[:cut] + put_in + content[cut + len(put_in) :]
    source = MemorySource(content)
    try:
        found = read_image(named, source)
    except MediaUnreadable:
        return
    finally:
        assert source.reads <= READS_MAX
    opened = open_like_the_engine(content)
    assert opened is None or found.width * found.height >= opened[0] * opened[1]


def open_like_the_engine(content: bytes) -> tuple[int, int] | None:
    """Return the size of an image as Pillow finds it, None where it opens none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(
                io.BytesIO(content), formats=[each.upper() for each in FORMATS["image"]]
            ) as image:
                return image.size
        except Exception:  # noqa: BLE001 - a stranger's bytes: Pillow raises whatever it meets
            return None
