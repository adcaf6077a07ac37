"""Formats by the names that rows, files and hosts give them."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from anex.media.formats import (
    BIT_RATES_KBITS,
    FORMATS,
    estimate_seconds,
    find_by_extension,
    find_by_mime,
    find_by_name,
)

if TYPE_CHECKING:
    from anex.catalog import Modality

EVERY = [(modality, named) for modality, formats in FORMATS.items() for named in formats]


def test_the_formats_are_those_of_the_documents() -> None:
    assert FORMATS == {
        "audio": ("wav", "mp3", "m4a", "aac", "ogg", "opus", "flac", "aiff"),
        "video": ("mp4", "webm", "mov", "mkv", "avi"),
        "image": ("png", "jpeg", "webp", "gif", "bmp", "tiff"),
    }


@pytest.mark.parametrize(("modality", "named"), EVERY)
def test_each_format_is_found_by_its_name_and_by_the_media_type_of_that_name(
    modality: Modality, named: str
) -> None:
    assert find_by_name(modality, named) == named
    assert find_by_name(modality, f" {named.upper()}") == named
    assert find_by_mime(modality, f"{modality}/{named}") == named
    assert find_by_mime(modality, f"{modality.title()}/X-{named.upper()} ; charset=binary") == named


@pytest.mark.parametrize(
    ("modality", "name", "expected"),
    [
        ("audio", "wave", "wav"),
        ("audio", "mpga", "mp3"),
        ("audio", "oga", "ogg"),
        ("audio", "aif", "aiff"),
        ("audio", "aifc", "aiff"),
        ("video", "m4v", "mp4"),
        ("video", "qt", "mov"),
        ("image", "jpg", "jpeg"),
        ("image", "jpe", "jpeg"),
        ("image", "tif", "tiff"),
    ],
)
def test_other_names(modality: Modality, name: str, expected: str) -> None:
    assert find_by_name(modality, name) == expected


@pytest.mark.parametrize(
    ("modality", "name"),
    [
        ("audio", "wma"),
        ("audio", "webm"),
        ("audio", "mp4"),
        ("audio", ""),
        ("audio", "pcm16"),
        ("video", "m4a"),
        ("video", "ogg"),
        ("image", "heic"),
        ("image", "svg"),
        ("image", "pn g"),
    ],
)
def test_names_of_no_format(modality: Modality, name: str) -> None:
    assert find_by_name(modality, name) is None


@pytest.mark.parametrize(
    ("modality", "mime", "expected"),
    [
        ("audio", "audio/mpeg", "mp3"),
        ("audio", "audio/mp4", "m4a"),
        ("audio", "audio/mp4; codecs=mp4a.40.2", "m4a"),
        ("audio", "audio/vnd.wave", "wav"),
        ("audio", "audio/x-pn-wav", "wav"),
        ("audio", "audio/aacp", "aac"),
        ("audio", "application/ogg", "ogg"),
        ("audio", "audio/ogg; codecs=vorbis", "ogg"),
        ("audio", "audio/ogg;codecs=opus", "opus"),
        ("audio", 'audio/ogg; x=y; codecs="opus"', "opus"),
        ("video", "video/quicktime", "mov"),
        ("video", "video/x-matroska", "mkv"),
        ("video", "video/x-msvideo", "avi"),
        ("video", "video/vnd.avi", "avi"),
        ("video", "application/mp4", "mp4"),
        ("image", "image/jpg", "jpeg"),
        ("image", "image/pjpeg", "jpeg"),
        ("image", "image/x-ms-bmp", "bmp"),
        ("image", "image/apng", "png"),
    ],
)
def test_media_types(modality: Modality, mime: str, expected: str) -> None:
    assert find_by_mime(modality, mime) == expected


@pytest.mark.parametrize(
    ("modality", "mime"),
    [
        ("audio", ""),
        ("audio", "audio/"),
        ("audio", "wav"),
        ("audio", "audio/webm"),
        ("audio", "audio/x-ms-wma"),
        ("audio", "video/mp4"),
        ("audio", "application/octet-stream"),
        ("video", "video/ogg"),
        ("video", "audio/mp4"),
        ("video", "text/mp4"),
        ("image", "image/svg+xml"),
        ("image", "image/heic"),
        ("image", "application/png"),
    ],
)
def test_media_types_of_no_format(modality: Modality, mime: str) -> None:
    assert find_by_mime(modality, mime) is None


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.com/a/clip.MP4?name=x.png#y.gif", "mp4"),
        ("https://example.com/clip%2Emp3", "mp3"),
        ("https://example.com/a%2Fclip.tar.gz", "gz"),
        ("https://example.com/clip.mp3;v=1.2", "mp3"),
        ("https://example.com/v1.2/clip", None),
        ("https://example.com/clip.", None),
        ("https://example.com/clip.mp4/", None),
        ("https://example.com", None),
        ("https://example.com/Dr. No", None),
        ("https://example.com/ein.b%C3%A4r", None),
        ("https://[::1/clip.mp4", None),
    ],
)
def test_extensions(url: str, expected: str | None) -> None:
    assert find_by_extension(url) == expected


def test_bit_rates_are_those_of_the_contract() -> None:
    assert BIT_RATES_KBITS == {
        "wav": 256,
        "aiff": 256,
        "flac": 500,
        "mp3": 64,
        "aac": 48,
        "m4a": 48,
        "ogg": 48,
        "opus": 24,
        "avi": 1000,
    }


def test_a_length_by_bytes_is_exact_and_known_only_for_formats_that_have_a_rate() -> None:
    assert estimate_seconds("mp3", 8000) == 1
    assert estimate_seconds("opus", 1) == Fraction(1, 3000)
    assert estimate_seconds("mp4", 8000) is None
