"""First bytes: what they are, and which formats they contradict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from anex.media.formats import FORMATS
from anex.media.sniff import HEAD_BYTES, find_contradiction, identify, sniff_format
from tests.support.containers import box, element, opus_head, page, riff

if TYPE_CHECKING:
    from anex.catalog import Modality

MP3 = b"\xff\xfb\x90\x00" + bytes(60)
ADTS = b"\xff\xf1\x50\x80" + bytes(60)
BMP = b"BM" + bytes(12) + b"\x28\0\0\0"

HEADS: dict[str, bytes] = {
    "wav": riff(b"WAVE"),
    "mp3": MP3,
    "m4a": box(b"ftyp", b"M4A \0\0\0\0isom"),
    "aac": ADTS,
    "ogg": page(1, 0, b"\x01vorbis"),
    "opus": opus_head(1),
    "flac": b"fLaC" + bytes(8),
    "aiff": b"FORM\0\0\0\x20AIFC",
    "mp4": box(b"ftyp", b"isom"),
    "webm": element(0x1A45DFA3, element(0x4282, b"webm")),
    "mov": box(b"ftyp", b"qt  "),
    "mkv": element(0x1A45DFA3, element(0x4282, b"matroska")),
    "avi": riff(b"AVI "),
    "png": b"\x89PNG\r\n\x1a\n",
    "jpeg": b"\xff\xd8\xff\xe0",
    "webp": riff(b"WEBP"),
    "gif": b"GIF89a",
    "bmp": BMP,
    "tiff": b"MM\0\x2a",
}
FAMILIES = [{"mp4", "mov", "m4a"}, {"webm", "mkv"}, {"ogg", "opus"}]
OTHERS = {
    "hls": b"#EXTM3U\n#EXT-X-VERSION:3\n",
    "html": b"\xef\xbb\xbf\r\n<!DOCTYPE html><html>",
    "svg": b'<?xml version="1.0"?>\n<svg xmlns="x">',
    "xml": b'<?xml version="1.0"?><Error>',
    "json": b'{"error": "not found"}',
    "text": b"UklGRiQAAABXQVZFZm10",
    "pdf": b"%PDF-1.7",
    "zip": b"PK\x03\x04",
    "gzip": b"\x1f\x8b\x08",
    "asf": b"\x30\x26\xb2\x75\x8e\x66\xcf\x11",
    "mpegts": (b"\x47" + bytes(187)) * 3,
    "heif": box(b"ftyp", b"heic\0\0\0\0mif1"),
    "avif": box(b"ftyp", b"avif"),
}


def made_of(format: str, other: str) -> bool:  # noqa: A002
    return format == other or any({format, other} <= family for family in FAMILIES)


@pytest.mark.parametrize("format", HEADS)
@pytest.mark.parametrize("other", HEADS)
def test_a_head_contradicts_the_formats_of_other_families_and_no_others(format: Any, other: str) -> None:  # noqa: A002
    contradiction = find_contradiction(format, HEADS[other])

    assert (contradiction is None) == made_of(format, other)


@pytest.mark.parametrize("family", OTHERS)
@pytest.mark.parametrize("format", HEADS)
def test_what_is_no_media_of_ours_contradicts_every_format(format: Any, family: str) -> None:  # noqa: A002
    assert identify(OTHERS[family]) == family
    assert "its first bytes are those of " in str(find_contradiction(format, OTHERS[family]))


@pytest.mark.parametrize("format", HEADS)
@pytest.mark.parametrize("head", [b"\0" * 40, b"\xfe\xdc\xba" * 9, b"R", b"RIFF\0\0\0\0XXXX"])
def test_an_unknown_head_contradicts_all_but_formats_without_one(format: Any, head: bytes) -> None:  # noqa: A002
    contradiction = find_contradiction(format, head)

    assert (contradiction is None) == (format in {"mp3", "aac"})
    assert contradiction is None or contradiction.startswith("its first bytes are not those of a")


@pytest.mark.parametrize("format", HEADS)
def test_no_bytes_are_a_fault_of_their_own(format: Any) -> None:  # noqa: A002
    assert find_contradiction(format, b"") == "it holds no bytes"


def test_a_contradiction_says_what_the_bytes_are() -> None:
    assert find_contradiction("mp4", OTHERS["hls"]) == "its first bytes are those of an HLS playlist"
    assert find_contradiction("png", HEADS["jpeg"]) == "its first bytes are those of a JPEG image"
    assert find_contradiction("mov", b"?") == "its first bytes are not those of an MP4 or QuickTime file"


@pytest.mark.parametrize("kind", [b"moov", b"mdat", b"wide", b"free", b"skip"])
def test_quicktime_of_old_has_no_type_box(kind: bytes) -> None:
    assert find_contradiction("mov", box(kind, bytes(8))) is None
    assert sniff_format("video", box(kind, bytes(8))) == "mov"


def test_the_size_of_a_first_box_is_not_taken_for_an_icon() -> None:
    assert identify(box(b"ftyp", b"isom", bytes(244))) == "isobmff"


@pytest.mark.parametrize("mark", [b"RF64", b"BW64"])
def test_wav_over_4_gib(mark: bytes) -> None:
    assert identify(riff(b"WAVE", mark=mark)) == "wav"


def id3(body_bytes: int, *, footer: bool = False) -> bytes:
    size = bytes([0, 0, body_bytes >> 7, body_bytes & 0x7F])
    tag = b"ID3\x04\0" + (b"\x10" if footer else b"\0") + size + b"\1" * body_bytes
    return tag + b"3DI\x04\0\x10" + size if footer else tag


@pytest.mark.parametrize("footer", [False, True])
@pytest.mark.parametrize(("format", "rest"), [("mp3", MP3), ("aac", ADTS), ("flac", HEADS["flac"])])
def test_what_follows_a_tag_decides(format: Any, rest: bytes, footer: bool) -> None:  # noqa: A002
    head = id3(300, footer=footer) + rest

    assert identify(head) == format
    assert sniff_format("audio", head) == format


@pytest.mark.parametrize("head", [id3(10_000)[:HEAD_BYTES], b"ID3", id3(5), id3(5) + id3(5) + HEADS["flac"]])
def test_a_tag_before_what_is_not_seen_fits_the_formats_that_have_tags(head: bytes) -> None:
    assert identify(head) == "id3"
    assert sniff_format("audio", head) == "mp3"
    fitting = {named for named in FORMATS["audio"] if find_contradiction(named, head) is None}
    assert fitting == {"mp3", "aac", "flac"}


def test_mp3_may_begin_with_zeros() -> None:
    assert identify(bytes(1000) + MP3) == "mp3"
    assert find_contradiction("mp3", bytes(HEAD_BYTES)) is None


@pytest.mark.parametrize(
    "head",
    [b"\xff\xfe<\0h\0t\0m\0", b"\xff\xfb\xf0\0", b"\xff\xfb\x9c\0", b"\xff\xeb\x90\0", b"\xff\xf1\x74\0"],
)
def test_reserved_values_make_no_frame(head: bytes) -> None:
    assert identify(head) is None


@pytest.mark.parametrize("format", HEADS)
def test_each_format_is_told_by_its_head(format: str) -> None:  # noqa: A002
    modality: Modality = next(each for each, formats in FORMATS.items() if format in formats)

    assert sniff_format(modality, HEADS[format]) == format


@pytest.mark.parametrize(
    ("modality", "format"),
    [
        ("image", "mp4"),
        ("video", "png"),
        ("audio", "mkv"),
        ("audio", "avi"),
        ("video", "ogg"),
        ("video", "wav"),
    ],
)
def test_heads_of_another_modality_tell_no_format(modality: Modality, format: str) -> None:  # noqa: A002
    assert sniff_format(modality, HEADS[format]) is None


def test_an_mp4_brand_on_audio_is_m4a_and_nothing_tells_nothing() -> None:
    assert sniff_format("audio", HEADS["mp4"]) == "m4a"
    assert sniff_format("audio", b"") is None
    assert sniff_format("video", b"anything") is None
