"""Images by their headers: real files of Pillow's, and headers that lie."""

from __future__ import annotations

import io
import struct
import zlib
from base64 import b64encode
from contextlib import suppress
from typing import Any

import pytest
from PIL import Image

from anex.media.formats import FORMATS
from anex.media.images import FRAMES_MAX, PIXELS_MAX, READS_MAX, ImageSize, find_image_fault, read_image
from anex.media.inline import Base64Source
from anex.media.model import MediaUnreadable
from tests.support.containers import LargeSource, MemorySource, chunk, riff

IMAGES = FORMATS["image"]
BROKEN = "an image can't be read: its header is broken"
CUT_OFF = "an image can't be read: its header is cut off, or too long"


def save(format: str, size: tuple[int, int] = (33, 17), mode: str = "RGB", **options: Any) -> bytes:  # noqa: A002
    file = io.BytesIO()
    Image.new(mode, size).save(file, format, **options)
    return file.getvalue()


def animate(format: str, frames: int, **options: Any) -> bytes:  # noqa: A002
    pictures = [Image.new("RGB", (8, 4), (number * 16, 0, 0)) for number in range(frames)]
    file = io.BytesIO()
    pictures[0].save(file, format, save_all=True, append_images=pictures[1:], **options)
    return file.getvalue()


def fault(format: str, content: bytes) -> str | None:  # noqa: A002
    return find_image_fault(format, MemorySource(content))


def size(format: str, content: bytes) -> ImageSize:  # noqa: A002
    return read_image(format, MemorySource(content))


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_head(width: int, height: int, depth: int = 8, colour: int = 2) -> bytes:
    return png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))


def png(*chunks: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks) + png_chunk(b"IDAT", b"")


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def jpeg(*segments: bytes) -> bytes:
    return b"\xff\xd8" + b"".join(segments) + segment(0xDA, b"\0" * 10)


def jpeg_frame(width: int, height: int, marker: int = 0xC0) -> bytes:
    return segment(marker, struct.pack(">BHHB", 8, height, width, 3) + bytes(9))


def gif(*blocks: bytes, width: int = 5, height: int = 5) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b"".join(blocks)


def gif_frame(left: int = 0, top: int = 0, width: int = 5, height: int = 5, data: bytes = b"\0") -> bytes:
    return struct.pack("<c4HBB", b",", left, top, width, height, 0, 2) + data


def bmp(header_bytes: int, *sides: int) -> bytes:
    layout = "<HH" if header_bytes == 12 else "<II"
    return b"BM" + bytes(12) + struct.pack("<I", header_bytes) + struct.pack(layout, *sides) + bytes(40)


def tiff(*directories: tuple[list[tuple[int, int, int, int]], int]) -> bytes:
    """Return a TIFF file of directories: entries, and where the next directory is said to be."""
    content = b"II\x2a\0" + struct.pack("<I", 8)
    for entries, following in directories:
        content += struct.pack("<H", len(entries))
        content += b"".join(struct.pack("<HHII", *entry) for entry in entries) + struct.pack("<I", following)
    return content


def tiff_sides(width: int, height: int) -> list[tuple[int, int, int, int]]:
    return [(256, 4, 1, width), (257, 4, 1, height)]


def test_the_bound_is_the_one_above_which_the_engine_opens_no_image() -> None:
    assert Image.MAX_IMAGE_PIXELS is not None
    assert 2 * Image.MAX_IMAGE_PIXELS == PIXELS_MAX


@pytest.mark.parametrize("format", IMAGES)
@pytest.mark.parametrize("sides", [(1, 1), (33, 17), (300, 2)])
def test_real_images(format: str, sides: tuple[int, int]) -> None:  # noqa: A002
    content = save(format, sides)

    assert size(format, content) == ImageSize(*sides)
    assert fault(format, content) is None


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("jpeg", {"progressive": True}),
        ("jpeg", {"mode": "CMYK", "exif": b"Exif\0\0" + bytes(60_000)}),
        ("png", {"mode": "P"}),
        ("png", {"mode": "I;16"}),
        ("png", {"mode": "1"}),
        ("webp", {"mode": "RGBA", "lossless": True}),
        ("webp", {"exif": b"Exif\0\0"}),
        ("tiff", {"compression": "tiff_lzw"}),
        ("tiff", {"big_tiff": True}),
        ("gif", {"mode": "P"}),
        ("bmp", {"mode": "1"}),
    ],
)
def test_real_images_of_other_kinds(format: str, options: dict[str, Any]) -> None:  # noqa: A002
    assert size(format, save(format, **options)) == ImageSize(33, 17)


@pytest.mark.parametrize("format", ["png", "webp", "gif", "tiff"])
def test_frames_are_counted(format: str) -> None:  # noqa: A002
    content = animate(format, 7)

    assert size(format, content) == ImageSize(8, 4, 7)
    assert fault(format, content) is None


def test_an_image_is_read_from_base64() -> None:
    text = memoryview(b64encode(save("png")))

    assert read_image("png", Base64Source(text)) == ImageSize(33, 17)


@pytest.mark.parametrize("format", IMAGES)
def test_no_bytes_and_bytes_of_another_kind(format: str) -> None:  # noqa: A002
    assert fault(format, b"") == "an image holds no bytes"
    for content in (b"?", b"%PDF-1.7 and more", save("jpeg" if format != "jpeg" else "png")):
        assert "can't be read: the bytes are not a " in str(fault(format, content))


@pytest.mark.parametrize("format", IMAGES)
def test_a_header_that_is_cut_off_is_refused_and_data_that_are_cut_off_are_not(format: str) -> None:  # noqa: A002
    content = save(format)
    found = [fault(format, content[:length]) for length in range(12, len(content) + 1)]

    assert found[0] == CUT_OFF
    assert found[-1] is None
    assert set(found) == {CUT_OFF, None}


HUGE = {
    "png": png(png_head(50_000, 50_000)),
    "jpeg": jpeg(jpeg_frame(50_000, 50_000)),
    "gif": gif(gif_frame(), width=50_000, height=50_000),
    "bmp": bmp(40, 50_000, 50_000),
    "tiff": tiff((tiff_sides(50_000, 50_000), 0)),
}


@pytest.mark.parametrize("format", HUGE)
def test_too_many_pixels(format: str) -> None:  # noqa: A002
    expected = "an image is 50,000 x 50,000 pixels; at most 178,956,970 pixels are taken"

    assert fault(format, HUGE[format]) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"VP8 " + bytes(4) + b"\x10\0\0\x9d\x01\x2a" + struct.pack("<HH", 16_383, 0xFFFF),
        b"VP8L" + bytes(4) + b"\x2f\xff\xff\xff\x0f",
        b"VP8X" + bytes(4) + bytes(4) + b"\xff\xff\xff\xff\xff\xff",
    ],
)
def test_too_many_pixels_in_webp(body: bytes) -> None:
    assert "at most 178,956,970 pixels are taken" in str(fault("webp", riff(b"WEBP", body)))


def test_the_bound_itself_is_taken() -> None:
    assert fault("png", png(png_head(PIXELS_MAX, 1))) is None
    assert fault("png", png(png_head(PIXELS_MAX + 1, 1))) is not None


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ("png", png(png_head(0, 5))),
        ("jpeg", jpeg(jpeg_frame(5, 0))),
        ("gif", gif(gif_frame(width=0), width=0)),
        ("bmp", bmp(12, 0, 5)),
        ("tiff", tiff((tiff_sides(5, 0), 0))),
    ],
)
def test_no_pixels(format: str, content: bytes) -> None:  # noqa: A002
    assert "pixels: there is nothing in it" in str(fault(format, content))


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ("png", png(png_chunk(b"tEXt", b"x"), png_head(5, 5))),
        ("png", png(png_head(5, 5), png_head(50_000, 50_000))),
        ("png", png(png_head(5, 5, depth=3))),
        ("png", png(png_head(5, 5, colour=5))),
        ("png", png(png_head(5, 5)[:-1] + b"?")),
        ("png", png(png_chunk(b"IHDR", bytes(14)))),
        ("png", png()),
        ("jpeg", jpeg(jpeg_frame(5, 5), jpeg_frame(50_000, 50_000))),
        ("jpeg", b"\xff\xd8\xff\xd9"),
        ("gif", gif(b";")),
        ("bmp", bmp(41, 5, 5)),
        ("webp", riff(b"WEBP", chunk(b"ALPH", bytes(20)))),
        ("webp", riff(b"WEBP", chunk(b"VP8 ", bytes(20)))),
        ("webp", riff(b"WEBP", chunk(b"VP8L", bytes(20)))),
        ("tiff", tiff(([(256, 4, 1, 5)], 0))),
        ("tiff", tiff(([(256, 4, 2, 5), (257, 4, 1, 5)], 0))),
        ("tiff", tiff(([(256, 12, 1, 5), (257, 4, 1, 5)], 0))),
    ],
)
def test_broken_headers(format: str, content: bytes) -> None:  # noqa: A002
    assert fault(format, content) == BROKEN


# PNG


def test_text_that_would_inflate_without_end_is_passed_over() -> None:
    bomb = png_chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(50_000_000)))

    assert fault("png", png(png_head(5, 5), bomb, png_chunk(b"iTXt", bytes(500_000)))) is None


def test_a_claim_of_too_many_frames_in_png() -> None:
    content = png(png_head(5, 5), png_chunk(b"acTL", struct.pack(">II", 100_000, 0)))

    assert fault("png", content) == "an image holds over 1,000 frames; at most 1,000 are taken"


def test_chunks_without_end_are_given_up() -> None:
    content = png(png_head(5, 5), png_chunk(b"teSt", b"") * 50_000)

    assert fault("png", content) == CUT_OFF


# JPEG


def test_megabytes_before_the_frame_are_passed_over_without_reading_them_all() -> None:
    source = MemorySource(jpeg(*[segment(0xE1, bytes(65_000))] * 60, jpeg_frame(7, 9, marker=0xC2)))

    assert read_image("jpeg", source) == ImageSize(7, 9)
    assert source.reads < 130


def test_padding_and_junk_between_segments_are_passed_over() -> None:
    content = jpeg(b"\xff" * 300, b"\xff\x01", segment(0xC4, bytes(20)), b"\xff\0" * 300, jpeg_frame(7, 9))

    assert size("jpeg", content) == ImageSize(7, 9)


# GIF


def test_a_first_frame_larger_than_the_screen_counts() -> None:
    content = gif(gif_frame(left=10, top=20, width=50_000, height=50_000))

    assert size("gif", content) == ImageSize(50_010, 50_020)


def test_a_hundred_thousand_frames_are_not_all_counted() -> None:
    source = MemorySource(gif(*[gif_frame()] * 100_000, b";"))

    assert find_image_fault("gif", source) == "an image holds over 1,000 frames; at most 1,000 are taken"
    assert source.reads < 10


def test_frames_that_lie_behind_all_bounds_are_not_counted() -> None:
    endless = gif_frame(data=b"\x01x" * 400_000 + b"\0")

    assert size("gif", gif(endless, gif_frame(), b";")) == ImageSize(5, 5, 1)
    assert size("gif", gif(gif_frame(data=b"\x05xxxxx\x09x"))) == ImageSize(5, 5, 1)


def test_palettes_extensions_and_junk_are_passed_over() -> None:
    content = bytearray(
        gif(bytes(6), b"!\xf9\x04\0\0\0\0\0", b"\0\0", gif_frame(), b"!\xfe\x03abc\0", gif_frame(), b";")
    )
    content[10] = 0x80

    assert size("gif", bytes(content)) == ImageSize(5, 5, 2)


def test_a_real_animation_with_large_frames_is_counted_to_its_end() -> None:
    noise = [Image.effect_noise((300, 300), number) for number in range(90, 96)]
    file = io.BytesIO()
    noise[0].save(file, "gif", save_all=True, append_images=noise[1:])

    assert size("gif", file.getvalue()).frames == 6


# WebP, BMP


def test_a_hundred_thousand_frames_in_webp() -> None:
    head = chunk(b"VP8X", bytes(4) + bytes(6))
    content = riff(b"WEBP", head, chunk(b"ANMF", bytes(2)) * 100_000)

    assert fault("webp", content) == "an image holds over 1,000 frames; at most 1,000 are taken"


def test_an_image_stored_from_the_top_down() -> None:
    assert size("bmp", bmp(40, 7, 2**32 - 9)) == ImageSize(7, 9)
    assert size("bmp", bmp(12, 7, 9)) == ImageSize(7, 9)


@pytest.mark.parametrize("sides", [(2**32 - 7, 9), (7, 0x80000000)])
def test_sides_that_are_neither(sides: tuple[int, int]) -> None:
    assert "pixels are taken" in str(fault("bmp", bmp(40, *sides)))


# TIFF


def test_directories_in_a_circle_are_counted_once() -> None:
    length = 2 + 24 + 4
    content = tiff((tiff_sides(7, 9), 8 + length), (tiff_sides(7, 9), 8))

    assert size("tiff", content) == ImageSize(7, 9, 2)


@pytest.mark.parametrize("frames", [FRAMES_MAX, FRAMES_MAX + 1, FRAMES_MAX + 500])
def test_frames_of_tiff_up_to_the_bound(frames: int) -> None:
    length = 2 + 24 + 4
    places = [8 + length * number for number in range(1, frames)]
    source = MemorySource(tiff(*[(tiff_sides(7, 9), place) for place in [*places, 0]]))

    expected = None if frames <= FRAMES_MAX else "an image holds over 1,000 frames; at most 1,000 are taken"
    assert find_image_fault("tiff", source) == expected


def test_a_huge_tile_of_a_small_image_counts() -> None:
    tile = [(322, 4, 1, 50_000), (323, 4, 1, 50_000)]

    assert "50,000 x 50,000 pixels" in str(fault("tiff", tiff((tiff_sides(5, 5) + tile, 0))))


def test_the_larger_of_two_sides_counts() -> None:
    assert size("tiff", tiff((tiff_sides(5, 700) + tiff_sides(600, 5), 0))) == ImageSize(600, 700)


@pytest.mark.parametrize(
    "content",
    [
        b"II\x2a\0\xff\xff\xff\xff",
        b"II\x2a\0\x08\0\0\0\xff\xff" + bytes(100_000),
        b"MM\0\x2b\0\x08\0\0" + b"\0" * 7 + b"\x10" + b"\xff" * 8,
    ],
)
def test_directories_that_are_not_there(content: bytes) -> None:
    assert fault("tiff", content) == CUT_OFF


def test_a_next_directory_that_is_not_there_is_none() -> None:
    assert size("tiff", tiff((tiff_sides(5, 5), 5000))) == ImageSize(5, 5, 1)
    assert size("tiff", tiff((tiff_sides(5, 5), 0))[:-4]) == ImageSize(5, 5, 1)


@pytest.mark.parametrize("format", IMAGES)
def test_reads_are_bounded_however_large_the_file_is(format: str) -> None:  # noqa: A002
    source = LargeSource(save(format)[:12], 1 << 40)

    with suppress(MediaUnreadable):
        read_image(format, source)
    assert source.reads <= READS_MAX
