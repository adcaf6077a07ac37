"""Base64 in rows: data: URIs, bytes read where one likes, and what is refused in which words."""

from __future__ import annotations

import binascii
import tracemalloc
from base64 import b64encode, urlsafe_b64encode
from typing import TYPE_CHECKING

import pytest

from anex.media.inline import Base64Source, find_base64_fault, parse_data_uri
from anex.media.model import MediaUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable

CONTENT = bytes(range(256)) * 3

forms = pytest.mark.parametrize("form", [str, lambda text: memoryview(text.encode())], ids=["str", "view"])


@forms
@pytest.mark.parametrize(
    ("header", "mime"),
    [
        ("data:image/png;base64,", "image/png"),
        ("DATA:image/PNG;base64,", "image/PNG"),
        ("data:;base64,", ""),
        ("data:audio/ogg; codecs=opus;base64,", "audio/ogg"),
        ("data:;charset=utf-8;base64,", ""),
    ],
)
def test_a_data_uri_is_taken_apart(form: Callable[[str], str | memoryview], header: str, mime: str) -> None:
    uri = parse_data_uri(form(header + "QUJD"))

    assert uri.mime == mime
    assert uri.begin == len(header)


@forms
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a data: URI begins with 'data:'"),
        ("https://example.com", "a data: URI begins with 'data:'"),
        ("data:image/png;base64", "has no comma before its data"),
        ("data:" + "x" * 2000 + ";base64,QUJD", "has no comma before its data"),
        ("data:,Hello%2C", "must hold base64"),
        ("data:base64,QUJD", "must hold base64"),
        ("data:image/png,%89PNG", "must hold base64"),
        ("data:image/png;base64;x=y,QUJD", "must hold base64"),
        ("data:image/png;BASE64,QUJD", "must hold base64"),
        ("data:bild/pn\u00e4;hex,00", "must hold base64"),
    ],
)
def test_other_data_uris_are_refused(
    form: Callable[[str], str | memoryview], text: str, message: str
) -> None:
    with pytest.raises(MediaUnreadable, match=message):
        parse_data_uri(form(text))


@forms
@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 200])
def test_bytes_are_read_where_one_likes(form: Callable[[str], str | memoryview], length: int) -> None:
    content = CONTENT[:length]
    source = Base64Source(form(b64encode(content).decode()))

    assert source.size_bytes == length
    for offset in range(length + 2):
        for count in (0, 1, 2, 3, 7, 500):
            assert source.read(offset, count) == content[offset : offset + count]


@forms
@pytest.mark.parametrize(
    "text", ["QUI", "Q\nUJ", "QU-_", "Q===", "\u00e4\u00e4\u00e4\u00e4", "====", "=", "A"]
)
def test_bytes_of_what_is_no_base64_are_unreadable_or_none(
    form: Callable[[str], str | memoryview], text: str
) -> None:
    source = Base64Source(form(text))

    assert 0 <= source.size_bytes <= len(text.encode())
    if source.size_bytes:
        with pytest.raises(MediaUnreadable, match="not valid base64"):
            source.read(0, source.size_bytes)


def test_reading_outside_gives_nothing() -> None:
    source = Base64Source("QUJD")

    assert source.read(-1, 2) == b""
    assert source.read(3, 1) == b""
    assert source.read(0, -1) == b""


@forms
@pytest.mark.parametrize("text", ["", "QQ==", "QUI=", "QUJD", "QR==", "ab+/" * 40_000])
def test_base64_has_no_fault(form: Callable[[str], str | memoryview], text: str) -> None:
    assert find_base64_fault(form(text)) is None
    binascii.a2b_base64(text, strict_mode=True)


@forms
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("QUJD\n", "character 5 is white space or a line break; write it without any"),
        ("QU D", "character 3 is white space or a line break; write it without any"),
        (
            urlsafe_b64encode(b"\xfb\xff\xff").decode(),
            "character 1 is of the URL-safe alphabet; use the standard one, with '+' and '/'",
        ),
        ("QQ==QQ==", "character 3 is padding ('='), which may stand at its end alone, at most 2 times"),
        ("Q===", "character 2 is padding ('='), which may stand at its end alone, at most 2 times"),
        ("QQ%3D%3D", "character 3 is '%'; write it without percent-encoding"),
        ("data:audio/wav;base64,QUJD", "it begins with 'data:'; leave out everything up to the comma"),
        ("QU\x00D", "character 3 is not of its alphabet"),
        ("A" * 200_000 + "*AAA", "character 200,001 is not of its alphabet"),
        (
            "QUI",
            "its length is not a multiple of 4 characters; it is cut off, or its padding ('=') was left out",
        ),
        (
            "=",
            "its length is not a multiple of 4 characters; it is cut off, or its padding ('=') was left out",
        ),
    ],
)
def test_a_fault_says_where_and_what(form: Callable[[str], str | memoryview], text: str, fault: str) -> None:
    assert find_base64_fault(form(text)) == fault
    with pytest.raises(binascii.Error):
        binascii.a2b_base64(text, strict_mode=True)


@pytest.mark.parametrize("text", ["QU\u00e4D", "QU\ud800D", memoryview("Q\u00e4D".encode())])
def test_a_fault_outside_ascii(text: str | memoryview) -> None:
    fault = find_base64_fault(text)

    assert fault is not None
    assert fault.endswith("is not of its alphabet")


@forms
def test_a_long_text_is_neither_copied_nor_decoded(form: Callable[[str], str | memoryview]) -> None:
    text = form("QUJD" * 2_000_000)
    tracemalloc.start()
    try:
        assert find_base64_fault(text) is None
        assert Base64Source(text).read(3_000_000, 6) == b"ABCABC"
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 1 << 20
