"""The length of an Ogg file: where its last pages end, by their granule positions.

A page says how many samples its stream has had when it ends. Streams side by side are told by their serial numbers;
a chain (one stream after the other, as radio stations write) is added up page by page, as far as the window reaches.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from anex.media.flac import read_streaminfo
from anex.media.model import Clip, MediaUnreadable
from anex.media.window import READ_MAX_BYTES, Unreached

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anex.media.window import Window

_HEAD = struct.Struct("<4sBBqIIIB")
_MARK = b"OggS"
_MARK_AND_VERSION = b"OggS\0"
_FIRST_OF_STREAM = 2
_FLAGS_MAX = 7
_NO_GRANULE = -1
_PAGE_MAX_BYTES = 27 + 255 + 255 * 255
_LACING_FULL = 255
_FIRST_PACKET_BYTES = 64
_START_PAGES_MAX = 64
_OPUS_RATE = 48_000
_OPUS_PACKET_SAMPLES_MAX = 5760
_FLAC_STREAMINFO = 17
_FLAC_BLOCK_SAMPLES_MAX = 65_535


@dataclass(frozen=True, slots=True)
class _Page:
    first: bool
    granule: int
    serial: int
    body: int
    end: int
    packets: int
    """That end in it."""


@dataclass(slots=True)
class _Stream:
    """One stream of sound."""

    rate: int
    skipped: int = 0
    """Samples at its start that no one hears."""
    packet_samples_max: int = 0
    start: int | None = None
    """The granule position at which it begins: 0, but for a cut of a live stream."""
    granule: int = 0
    """Of its last page so far."""

    def seconds(self) -> Fraction:
        """Return its length so far."""
        return Fraction(max(0, self.granule - (self.start or 0) - self.skipped), self.rate)


def read_ogg(window: Window) -> Clip | None:
    """Return the length of the longest stream of sound, or of a chain of them."""
    if window.peek(0, len(_MARK)) != _MARK:
        raise MediaUnreadable("the bytes are not an Ogg file")
    streams = _read_beginning(window)
    seconds = _measure_ends(window, streams) if streams else None
    if seconds is None:
        seconds = _measure_chain(window)
    return Clip(seconds) if seconds else None


def _read_beginning(window: Window) -> dict[int, _Stream]:
    """Return the streams that the file begins with, each with its start."""
    streams: dict[int, _Stream] = {}
    for number, page in enumerate(_iterate(window, 0)):
        if number == _START_PAGES_MAX:
            break
        _follow(window, streams, page)
        if streams and all(stream.start is not None for stream in streams.values()):
            break
    return streams


def _measure_ends(window: Window, streams: dict[int, _Stream]) -> Fraction | None:
    """Return the length by the pages at the end, None where they belong to other streams than the first ones."""
    offset, seen = max(0, window.size_bytes - 2 * _PAGE_MAX_BYTES), False
    while offset < window.size_bytes:
        page = _read_page(window, offset)
        if page is None:
            offset = _find_mark(window, offset + 1)
        elif page.serial not in streams:
            return None
        else:
            seen = seen or page.granule != _NO_GRANULE
            _advance(streams[page.serial], page)
            offset = page.end
    return max(stream.seconds() for stream in streams.values()) if seen else None


def _find_mark(window: Window, offset: int) -> int:
    """Return the next place at which a page may begin, the end where there is none."""
    while offset < window.size_bytes:
        block = window.peek(offset, READ_MAX_BYTES)
        found = block.find(_MARK_AND_VERSION)
        if found >= 0:
            return offset + found
        offset += max(1, len(block) - len(_MARK))
    return offset


def _measure_chain(window: Window) -> Fraction | None:
    """Return the lengths of all links together."""
    done, data_seen = Fraction(0), False
    streams: dict[int, _Stream] = {}
    for page in _iterate(window, 0):
        if page.first and data_seen:
            done += _longest(streams)
            streams, data_seen = {}, False
        data_seen = data_seen or not page.first
        _follow(window, streams, page)
    return done + _longest(streams)


def _longest(streams: dict[int, _Stream]) -> Fraction:
    return max((stream.seconds() for stream in streams.values()), default=Fraction(0))


def _follow(window: Window, streams: dict[int, _Stream], page: _Page) -> None:
    """Note a page in its stream, which may begin with it."""
    if page.first:
        stream = _identify(window.peek(page.body, _FIRST_PACKET_BYTES))
        if stream is not None:
            streams[page.serial] = stream
    elif page.serial in streams:
        _advance(streams[page.serial], page)


def _advance(stream: _Stream, page: _Page) -> None:
    if page.granule <= 0:  # a head's page, or one in which no packet ends
        return
    if stream.start is None:
        longest = page.packets * stream.packet_samples_max
        stream.start = max(0, page.granule - longest) if longest else 0
    stream.granule = max(stream.granule, page.granule)


def _identify(packet: bytes) -> _Stream | None:
    """Return the stream that begins with a packet; None for one that isn't sound, or of no known kind."""
    packet = packet.ljust(_FIRST_PACKET_BYTES, b"\0")
    stream = None
    if packet.startswith(b"OpusHead"):
        skipped = int.from_bytes(packet[10:12], "little")
        return _Stream(_OPUS_RATE, skipped, _OPUS_PACKET_SAMPLES_MAX)
    if packet.startswith(b"\x01vorbis"):
        stream = _Stream(int.from_bytes(packet[12:16], "little"), 0, (1 << (packet[28] >> 4)) // 2)
    elif packet.startswith(b"\x7fFLAC"):
        rate, _ = read_streaminfo(packet[_FLAC_STREAMINFO:])
        stream = _Stream(rate, 0, _FLAC_BLOCK_SAMPLES_MAX)
    elif packet.startswith(b"Speex   "):
        stream = _Stream(int.from_bytes(packet[36:40], "little"))
    return stream if stream is not None and stream.rate else None


def _iterate(window: Window, offset: int) -> Iterator[_Page]:
    """Yield the pages from ``offset`` on. Raises ``Unreached`` where none begins."""
    while offset < window.size_bytes:
        page = _read_page(window, offset)
        if page is None:
            raise Unreached
        yield page
        offset = page.end


def _read_page(window: Window, offset: int) -> _Page | None:
    """Return the page that begins there, None where none does; its last bytes may be missing."""
    head = window.peek(offset, _HEAD.size + _LACING_FULL)
    if len(head) < _HEAD.size:
        return None
    mark, version, flags, granule, serial, _, _, count = _HEAD.unpack_from(head)
    lacing = head[_HEAD.size : _HEAD.size + count]
    if mark != _MARK or version or flags > _FLAGS_MAX or len(lacing) < count:
        return None
    body = offset + _HEAD.size + count
    packets = sum(number < _LACING_FULL for number in lacing)
    return _Page(bool(flags & _FIRST_OF_STREAM), granule, serial, body, body + sum(lacing), packets)
