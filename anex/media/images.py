"""How large an image is, by its header; nothing of its pixels is decoded.

Pillow, with which the engine opens images, is not asked: opening reads and inflates whatever stands before the pixels,
keeps all of it, and warns through a switch of the whole process. The readers here take the few fields that decide how much
memory the engine will need. Where two places of a header could disagree, the engine's choice counts, or the larger one.
Data that are cut off behind the header are found where they are decoded.

An engine decodes the first frame of an animation and leaves the others. Frames are counted as far as the bounds
reach, and not refused for what lies behind them.
"""

from __future__ import annotations

import re
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from anex.media.model import MediaUnreadable
from anex.media.window import Unreached, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from anex.media.model import ByteSource

PIXELS_MAX = 178_956_970
"""The bound of vLLM (``VLLM_MAX_IMAGE_PIXELS``) and of Pillow, which refuses to open a larger image: half a gigabyte in RGB."""
FRAMES_MAX = 1000
READS_MAX = 1024
"""Of one image: 64 MiB, the largest that is fetched from a host."""
SUB_BLOCKS_MAX = 300_000
"""Pieces of a GIF file that are passed over: 64 MiB of full ones."""
TIFF_ENTRIES_MAX = 3000
"""Of a directory; the usual ones have twenty, and all known tags are some hundreds."""

_BROKEN = "its header is broken"

_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_PNG_HEAD = struct.Struct(">II5B")
_PNG_CHUNK = struct.Struct(">I4s")
_PNG_DEPTHS = {0: {1, 2, 4, 8, 16}, 2: {8, 16}, 3: {1, 2, 4, 8}, 4: {8, 16}, 6: {8, 16}}
"""Bits a sample, by colour type."""

_JPEG_MARKER = re.compile(rb"\xff[^\x00\xff]")
"""The end of any number of 0xFF: to match all of them would take the square of their number."""
_JPEG_SEARCH_BYTES = 256
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE = frozenset((0x01, *range(0xD0, 0xD9)))
"""Markers without a segment behind them."""
_JPEG_END = 0xD9
_JPEG_SCAN = 0xDA

_GIF_BLOCK_BYTES = 4096
_GIF_FRAME, _GIF_EXTENSION, _GIF_END = b",", b"!", b";"

_WEBP_LOSSY = b"\x9d\x01\x2a"
_WEBP_LOSSLESS = 0x2F
_WEBP_SIDE_BITS = 14
_WEBP_SIDE_MASK = (1 << _WEBP_SIDE_BITS) - 1

_BMP_OLD = 12
_BMP_HEADERS = {40, 52, 56, 64, 108, 124}
"""How long a header may be that holds its sides in 32 bits, by its version."""
_BMP_NEGATIVE = 0xFF000000

_TIFF_CLASSIC, _TIFF_BIG = ("H", "HHI4s", "I"), ("Q", "HHQ8s", "Q")
_TIFF_LAYOUTS = {
    b"II\x2a\0": _TIFF_CLASSIC,
    b"MM\0\x2a": _TIFF_CLASSIC,
    b"II\x2b\0": _TIFF_BIG,
    b"MM\0\x2b": _TIFF_BIG,
}
"""How the number of entries, an entry, and the place of the next directory are written."""
_TIFF_NUMBERS = {1: "B", 3: "H", 4: "I", 16: "Q"}
_TIFF_WIDTH, _TIFF_HEIGHT = 256, 257
_TIFF_TILE_WIDTH, _TIFF_TILE_HEIGHT = 322, 323


@dataclass(frozen=True, slots=True)
class ImageSize:
    """What an image's header says of it."""

    width: int
    height: int
    frames: int = 1
    """As far as they were counted; ``FRAMES_MAX`` + 1 stands for any number above the bound."""


def find_image_fault(format: str, source: ByteSource) -> str | None:  # noqa: A002
    """Return the sentence for an image that no engine should open, None for one that may be."""
    if not source.size_bytes:
        return "an image holds no bytes"
    try:
        size = read_image(format, source)
    except MediaUnreadable as unreadable:
        return f"an image can't be read: {unreadable.message}"
    sides = f"{size.width:,} x {size.height:,} pixels"
    if size.width * size.height > PIXELS_MAX:
        return f"an image is {sides}; at most {PIXELS_MAX:,} pixels are taken"
    if not size.width or not size.height:
        return f"an image is {sides}: there is nothing in it"
    if size.frames > FRAMES_MAX:
        return f"an image holds over {FRAMES_MAX:,} frames; at most {FRAMES_MAX:,} are taken"
    return None


def read_image(format: str, source: ByteSource) -> ImageSize:  # noqa: A002
    """Return what an image's header says. Raises ``MediaUnreadable``."""
    try:
        return _READERS[format](Window(source, READS_MAX))
    except Unreached:
        raise MediaUnreadable("its header is cut off, or too long") from None


def _require_magic(found: bool, kind: str) -> None:
    if not found:
        raise MediaUnreadable(f"the bytes are not a {kind} image")


def _read_png(window: Window) -> ImageSize:
    """Read all chunks before the pixels: of two headers the second would count, so there is to be one."""
    _require_magic(window.peek(0, len(_PNG_MAGIC)) == _PNG_MAGIC, "PNG")
    offset = len(_PNG_MAGIC)
    sides: tuple[int, int] | None = None
    frames = 1
    while True:
        size_bytes, kind = _PNG_CHUNK.unpack(window.take(offset, _PNG_CHUNK.size))
        if (kind == b"IHDR") != (sides is None):
            raise MediaUnreadable(_BROKEN)
        if kind == b"IHDR":
            sides = _read_png_head(size_bytes, window.take(offset + 4, 4 + _PNG_HEAD.size + 4))
        if kind == b"IDAT" and sides is not None:
            return ImageSize(*sides, min(frames, FRAMES_MAX + 1))
        if kind == b"acTL":
            frames = max(frames, int.from_bytes(window.take(offset + _PNG_CHUNK.size, 4), "big"))
        offset += _PNG_CHUNK.size + size_bytes + 4


def _read_png_head(size_bytes: int, chunk: bytes) -> tuple[int, int]:
    width, height, depth, colour, *_ = _PNG_HEAD.unpack(chunk[4:-4])
    known = size_bytes == _PNG_HEAD.size and depth in _PNG_DEPTHS.get(colour, ())
    if not known or zlib.crc32(chunk[:-4]) != int.from_bytes(chunk[-4:], "big"):
        raise MediaUnreadable(_BROKEN)
    return width, height


def _read_jpeg(window: Window) -> ImageSize:
    """Read all segments before the pixels: of two frames' headers the second would count, so there is to be one."""
    _require_magic(window.peek(0, 3) == b"\xff\xd8\xff", "JPEG")
    offset = 2
    size: ImageSize | None = None
    while True:
        marker, offset = _find_marker(window, offset)
        if marker == _JPEG_END:
            raise MediaUnreadable(_BROKEN)
        if marker == _JPEG_SCAN and size is not None:
            return size
        if marker in _JPEG_BARE:
            continue
        size_bytes = int.from_bytes(window.take(offset, 2), "big")
        if marker in _JPEG_FRAMES:
            if size is not None:
                raise MediaUnreadable(_BROKEN)
            height, width = struct.unpack(">HH", window.take(offset + 3, 4))
            size = ImageSize(width, height)
        offset += max(2, size_bytes)


def _find_marker(window: Window, offset: int) -> tuple[int, int]:
    """Return the next marker and where its segment begins; what stands between two is passed over, as decoders do."""
    while True:
        block = window.peek(offset, _JPEG_SEARCH_BYTES)
        found = _JPEG_MARKER.search(block)
        if found is not None:
            return found[0][-1], offset + found.end()
        if len(block) < _JPEG_SEARCH_BYTES:
            raise Unreached
        offset += len(block) - 1


def _read_gif(window: Window) -> ImageSize:
    """Read the screen, and the first frame, which may be larger than the screen and then is what counts."""
    _require_magic(window.peek(0, 6) in {b"GIF87a", b"GIF89a"}, "GIF")
    width, height, flags = struct.unpack("<HHB", window.take(6, 5))
    frames = _find_gif_frames(window, 13 + _size_palette(flags))
    try:
        left, top, frame_width, frame_height = struct.unpack("<4H", window.take(next(frames) + 1, 8))
    except StopIteration:
        raise MediaUnreadable(_BROKEN) from None
    count = 1
    with suppress(Unreached):
        for _ in islice(frames, FRAMES_MAX):
            count += 1
    return ImageSize(max(width, left + frame_width), max(height, top + frame_height), count)


def _size_palette(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _find_gif_frames(window: Window, offset: int) -> Iterator[int]:
    """Yield where each frame begins. Raises ``Unreached``."""
    blocks = _GifBlocks(window)
    while (kind := window.take(offset, 1)) != _GIF_END:
        if kind == _GIF_FRAME:
            yield offset
            flags = window.take(offset + 9, 1)[0]
            offset = blocks.skip(offset + 11 + _size_palette(flags))
        elif kind == _GIF_EXTENSION:
            offset = blocks.skip(offset + 2)
        else:
            offset += 1


class _GifBlocks:
    """Passes over the pieces of at most 255 bytes that data are cut into."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._left = SUB_BLOCKS_MAX

    def skip(self, offset: int) -> int:
        """Return where the data end that begin at ``offset``. Raises ``Unreached``."""
        while block := self._window.peek(offset, _GIF_BLOCK_BYTES):
            place = 0
            while place < len(block):
                self._left -= 1
                if self._left < 0:
                    raise Unreached
                size_bytes = block[place]
                place += 1 + size_bytes
                if not size_bytes:
                    return offset + place
            offset += place
        raise Unreached


def _read_webp(window: Window) -> ImageSize:
    head = window.peek(0, 12)
    _require_magic(head[:4] == b"RIFF" and head[8:] == b"WEBP", "WebP")
    kind = window.take(12, 4)
    if kind == b"VP8 ":
        body = window.take(20, 10)
        if body[3:6] != _WEBP_LOSSY:
            raise MediaUnreadable(_BROKEN)
        width, height = struct.unpack("<HH", body[6:])
        return ImageSize(width & _WEBP_SIDE_MASK, height & _WEBP_SIDE_MASK)
    if kind == b"VP8L":
        body = window.take(20, 5)
        if body[0] != _WEBP_LOSSLESS:
            raise MediaUnreadable(_BROKEN)
        bits = int.from_bytes(body[1:], "little")
        return ImageSize((bits & _WEBP_SIDE_MASK) + 1, (bits >> _WEBP_SIDE_BITS & _WEBP_SIDE_MASK) + 1)
    if kind != b"VP8X":
        raise MediaUnreadable(_BROKEN)
    body = window.take(20, 10)
    width, height = (int.from_bytes(body[start : start + 3], "little") + 1 for start in (4, 7))
    return ImageSize(width, height, _count_webp_frames(window))


def _count_webp_frames(window: Window) -> int:
    frames, offset = 0, 12
    with suppress(Unreached):
        while frames <= FRAMES_MAX:
            kind, size_bytes = struct.unpack("<4sI", window.take(offset, 8))
            frames += kind == b"ANMF"
            offset += 8 + size_bytes + size_bytes % 2
    return max(1, frames)


def _read_bmp(window: Window) -> ImageSize:
    _require_magic(window.peek(0, 2) == b"BM", "BMP")
    (header_bytes,) = struct.unpack("<I", window.take(14, 4))
    if header_bytes == _BMP_OLD:
        return ImageSize(*struct.unpack("<HH", window.take(18, 4)))
    if header_bytes not in _BMP_HEADERS:
        raise MediaUnreadable(_BROKEN)
    width, height = struct.unpack("<II", window.take(18, 8))
    # Negative for an image that is stored from the top down; what looks like neither is read as large, as Pillow does.
    return ImageSize(width, (1 << 32) - height if height >= _BMP_NEGATIVE else height)


def _read_tiff(window: Window) -> ImageSize:
    """Read the first directory, and follow the others: each is a frame, and may lead back to an earlier one."""
    tiff = _Tiff(window)
    entries, offset = tiff.read_directory(tiff.first)
    tags = tiff.read_numbers(entries)
    if _TIFF_WIDTH not in tags or _TIFF_HEIGHT not in tags:
        raise MediaUnreadable(_BROKEN)
    # A tile is decoded as a whole, however little of it the image shows.
    tile = ImageSize(tags.get(_TIFF_TILE_WIDTH, 0), tags.get(_TIFF_TILE_HEIGHT, 0))
    if tile.width * tile.height > PIXELS_MAX:
        return tile
    seen = {tiff.first}
    with suppress(Unreached):
        while offset and offset not in seen and len(seen) <= FRAMES_MAX:
            _, following = tiff.read_directory(offset)
            seen.add(offset)
            offset = following
    return ImageSize(tags[_TIFF_WIDTH], tags[_TIFF_HEIGHT], len(seen))


class _Tiff:
    """Reads directories in the byte order and the width of numbers that a TIFF file has."""

    def __init__(self, window: Window) -> None:
        head = window.peek(0, 4)
        layout = _TIFF_LAYOUTS.get(head)
        if layout is None:
            raise MediaUnreadable("the bytes are not a TIFF image")
        self._window = window
        self._order = "<" if head[:2] == b"II" else ">"
        self._count, self._entry, self._next = (struct.Struct(self._order + part) for part in layout)
        at = self._next.size
        (self.first,) = self._next.unpack(window.take(at, at))

    def read_directory(self, offset: int) -> tuple[bytes, int]:
        """Return a directory's entries, and where the next directory is; 0 where it is the last. Raises ``Unreached``."""
        (count,) = self._count.unpack(self._window.take(offset, self._count.size))
        if count > TIFF_ENTRIES_MAX:
            raise Unreached
        offset += self._count.size
        size_bytes = count * self._entry.size
        entries = self._window.take(offset, size_bytes)
        # Some writers leave the last one out at the end of a file.
        following = self._window.peek(offset + size_bytes, self._next.size)
        return entries, int.from_bytes(following, "little" if self._order == "<" else "big")

    def read_numbers(self, entries: bytes) -> dict[int, int]:
        """Return the numbers that stand in a directory itself, by tag; the larger one where a tag stands twice."""
        numbers: dict[int, int] = {}
        for tag, kind, count, value in self._entry.iter_unpack(entries):
            number = struct.Struct(self._order + _TIFF_NUMBERS.get(kind, "Q"))
            if count == 1 and kind in _TIFF_NUMBERS and number.size <= len(value):
                numbers[tag] = max(numbers.get(tag, 0), *number.unpack_from(value))
        return numbers


_READERS: Mapping[str, Callable[[Window], ImageSize]] = {
    "png": _read_png,
    "jpeg": _read_jpeg,
    "webp": _read_webp,
    "gif": _read_gif,
    "bmp": _read_bmp,
    "tiff": _read_tiff,
}
