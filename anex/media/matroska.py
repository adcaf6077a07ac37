"""The length of a Matroska or WebM file, and the pictures of its first video track.

The file is read as one flat row of elements: those that hold what is wanted are stepped into, all others are skipped.
So elements of unknown size, which a live writer leaves, need nothing of their own. Pictures are not stated anywhere:
they are counted as far as the window reaches, and a short clip's are reached.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING

from anex.media.model import Clip, MediaUnreadable
from anex.media.window import READ_MAX_BYTES, Unreached

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anex.media.window import Window

_EBML = 0x1A45DFA3
_SEGMENT = 0x18538067
_SEEK, _SEEK_ID, _SEEK_POSITION = 0x4DBB, 0x53AB, 0x53AC
_INFO, _SCALE, _DURATION = 0x1549A966, 0x2AD7B1, 0x4489
_TRACKS, _TRACK, _NUMBER, _TYPE, _DEFAULT_DURATION = 0x1654AE6B, 0xAE, 0xD7, 0x83, 0x23E383
_CLUSTER, _TIME, _SIMPLE_BLOCK, _GROUP, _BLOCK, _BLOCK_DURATION = 0x1F43B675, 0xE7, 0xA3, 0xA0, 0xA1, 0x9B
_STEPPED_INTO = {_SEGMENT, 0x114D9B74, _SEEK, _INFO, _TRACKS, _TRACK, _CLUSTER, _GROUP}
_VIDEO = 1
_NANOS = 10**9
_TRACKS_MAX = 64
"""More are no clip; each block is looked up among them."""
_ROUNDING = Fraction(1, 50)
_HEAD_MAX_BYTES = 12
_NUMBER_MAX_BYTES = 8
_BLOCK_HEAD_BYTES = 12
_CLUSTER_BEGINNINGS = {_TIME, 0xBF}
"""What a cluster begins with: its time, or a checksum."""
_TAIL_BLOCKS_MAX = 32
"""How far from its end a file without a stated length is searched for its last cluster: 2 MiB."""
_CLUSTER_MARK = _CLUSTER.to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class _Element:
    kind: int
    body: int
    size_bytes: int


@dataclass(slots=True)
class _Track:
    number: int = 0
    kind: int = 0
    default_duration: int = 0
    """In nanoseconds, 0 where it doesn't say."""
    blocks: int = 0
    """Pictures, in a video track."""
    first: int = 0
    last: int = 0
    """The earliest and the latest time of a block, in ticks."""
    end: int = 0
    """Where its last block ends, in nanoseconds."""


@dataclass(slots=True)
class _Segment:
    """What was seen so far."""

    start: int = 0
    scale: int = 10**6
    """Nanoseconds of a tick."""
    duration: float = 0.0
    tracks: list[_Track] = field(default_factory=list)
    seeks: dict[int, int] = field(default_factory=dict)
    seek_id: int = 0
    has_info: bool = False
    time: int = 0
    """Of the cluster, in ticks."""
    last: tuple[_Track, int] | None = None
    """The last block's track and time, for the duration that may follow it."""


def read_matroska(window: Window) -> Clip | None:
    """Return the stated length, or else where the last block ends."""
    if int.from_bytes(window.peek(0, 4), "big") != _EBML:
        raise MediaUnreadable("the bytes are not a Matroska or WebM file")
    segment = _Segment()
    clusters = _read_heads(window, segment)
    complete = clusters is not None and _read_clusters(window, segment, clusters)
    frames, rate = _count_pictures(segment)
    seconds = _stated_seconds(segment)
    if seconds is None and clusters is not None and (complete or _read_end(window, segment, clusters)):
        seconds = _measured_seconds(segment)
    # What is seen of a clip's beginning says nothing of its rate: that may vary.
    pictures = (frames, rate) if complete else (None, None)
    return Clip(seconds, *pictures) if seconds and seconds > 0 else None


def _read_heads(window: Window, segment: _Segment) -> int | None:
    """Note what stands before the first cluster, and what the directory says stands elsewhere; return where that cluster begins."""
    clusters = None
    for element in _iterate(window, 0, window.size_bytes):
        if element.kind == _CLUSTER:
            clusters = element.body
            break
        _note(window, segment, element)
    wanted = {_INFO: segment.has_info, _TRACKS: bool(segment.tracks)}
    for kind, seen in wanted.items():
        if not seen and kind in segment.seeks:
            _read_elsewhere(window, segment, segment.start + segment.seeks[kind], kind)
    return clusters


def _read_elsewhere(window: Window, segment: _Segment, offset: int, kind: int) -> None:
    head = next(_iterate(window, offset, window.size_bytes), None)
    if head is not None and head.kind == kind:
        for element in _iterate(window, head.body, min(head.body + head.size_bytes, window.size_bytes)):
            _note(window, segment, element)


def _read_clusters(window: Window, segment: _Segment, start: int) -> bool:
    """Count pictures and follow the times; return whether it reached the end."""
    try:
        for element in _iterate(window, start, window.size_bytes):
            _note(window, segment, element)
    except Unreached:
        return False
    return True


def _read_end(window: Window, segment: _Segment, first: int) -> bool:
    """Follow the times of the last cluster, searched from the end; return whether they were followed to the end.

    ``window`` is spent, or stopped at something broken.
    """
    tail = window.again()
    offset = window.size_bytes
    try:
        for _ in range(_TAIL_BLOCKS_MAX):
            offset = max(first, offset - READ_MAX_BYTES + _HEAD_MAX_BYTES)
            block = tail.peek(offset, READ_MAX_BYTES)
            found = block.rfind(_CLUSTER_MARK)
            if found >= 0 and _is_cluster(tail, offset + found):
                return _read_clusters(tail, segment, offset + found)
            if offset == first:
                break
    except Unreached:
        pass
    return False


def _is_cluster(window: Window, offset: int) -> bool:
    """Whether it is no accident that four bytes there look like a cluster's beginning."""
    elements = _iterate(window, offset, window.size_bytes)
    return [element.kind for element in islice(elements, 2)][1:] in [[kind] for kind in _CLUSTER_BEGINNINGS]


def _note(window: Window, segment: _Segment, element: _Element) -> None:
    kind = element.kind
    if kind in {_SIMPLE_BLOCK, _BLOCK}:
        _note_block(window, segment, element)
    elif kind == _TIME:
        segment.time = _read_number(window, element)
    elif kind == _BLOCK_DURATION and segment.last is not None:
        track, time = segment.last
        track.end = max(track.end, (time + _read_number(window, element)) * segment.scale)
    elif kind == _TRACK:
        if len(segment.tracks) == _TRACKS_MAX:
            raise Unreached
        segment.tracks.append(_Track())
    elif kind in {_NUMBER, _TYPE, _DEFAULT_DURATION} and segment.tracks:
        _note_track(segment.tracks[-1], kind, _read_number(window, element))
    else:
        _note_segment(window, segment, element)


def _note_segment(window: Window, segment: _Segment, element: _Element) -> None:
    kind = element.kind
    if kind == _SEGMENT:
        segment.start = element.body
    elif kind == _INFO:
        segment.has_info = True
    elif kind == _SCALE:
        segment.scale = _read_number(window, element) or segment.scale
    elif kind == _DURATION:
        segment.duration = _read_float(window, element)
    elif kind == _SEEK_ID:
        segment.seek_id = _read_number(window, element)
    elif kind == _SEEK_POSITION:
        segment.seeks.setdefault(segment.seek_id, _read_number(window, element))


def _note_track(track: _Track, kind: int, number: int) -> None:
    if kind == _NUMBER:
        track.number = number
    elif kind == _TYPE:
        track.kind = number
    else:
        track.default_duration = number


def _note_block(window: Window, segment: _Segment, element: _Element) -> None:
    head = window.take(element.body, min(element.size_bytes, _BLOCK_HEAD_BYTES))
    number, size = _read_size(head)
    track = next((track for track in segment.tracks if track.number == number), None)
    if track is None or len(head) < size + 2:
        return
    time = segment.time + int.from_bytes(head[size : size + 2], "big", signed=True)
    track.first = min(track.first, time) if track.blocks else time
    track.last = max(track.last, time) if track.blocks else time
    track.end = max(track.end, time * segment.scale + track.default_duration)
    track.blocks += 1
    segment.last = track, time


def _stated_seconds(segment: _Segment) -> Fraction | None:
    if not isfinite(segment.duration) or segment.duration <= 0:
        return None
    return Fraction(segment.duration) * segment.scale / _NANOS


def _measured_seconds(segment: _Segment) -> Fraction:
    """Return from where the first block begins to where the last one ends."""
    tracks = [track for track in segment.tracks if track.blocks]
    begin = min((track.first for track in tracks), default=0) * segment.scale
    return Fraction(max((track.end for track in tracks), default=0) - begin, _NANOS)


def _count_pictures(segment: _Segment) -> tuple[int | None, Fraction | None]:
    """Return the pictures seen and their rate: the one that the track states if it agrees, for times are rounded."""
    video = next((track for track in segment.tracks if track.kind == _VIDEO), None)
    if video is None or not video.blocks:
        return None, None
    stated = Fraction(_NANOS, video.default_duration) if video.default_duration else None
    span = (video.last - video.first) * segment.scale
    if not span:
        return video.blocks, stated
    measured = Fraction((video.blocks - 1) * _NANOS, span)
    agrees = stated is not None and abs(stated - measured) <= measured * _ROUNDING
    return video.blocks, stated if agrees else measured


def _iterate(window: Window, start: int, end: int) -> Iterator[_Element]:
    """Yield the elements that begin between two places. Raises ``Unreached`` at one that can't be an element."""
    while start < end:
        head = window.peek(start, _HEAD_MAX_BYTES)
        kind_bytes = 9 - head[0].bit_length() if head else 0
        if not 0 < kind_bytes <= 4 or len(head) <= kind_bytes:  # noqa: PLR2004 - the longest identifier
            raise Unreached
        kind = int.from_bytes(head[:kind_bytes], "big")
        size_bytes, size_width = _read_size(head[kind_bytes:])
        if not size_width:
            raise Unreached
        body = start + kind_bytes + size_width
        yield _Element(kind, body, end - body if size_bytes is None else size_bytes)
        if kind in _STEPPED_INTO:
            start = body
        elif size_bytes is None:
            raise Unreached
        else:
            start = body + size_bytes


def _read_size(head: bytes) -> tuple[int | None, int]:
    """Return a number of variable width and its width: None for "unknown", width 0 where it is none."""
    width = 9 - head[0].bit_length() if head else 0
    if not 0 < width <= _NUMBER_MAX_BYTES or len(head) < width:
        return None, 0
    mask = (1 << 7 * width) - 1
    number = int.from_bytes(head[:width], "big") & mask
    return None if number == mask else number, width


def _read_number(window: Window, element: _Element) -> int:
    if element.size_bytes > _NUMBER_MAX_BYTES:
        return 0
    return int.from_bytes(window.take(element.body, element.size_bytes), "big")


def _read_float(window: Window, element: _Element) -> float:
    layout = {4: ">f", 8: ">d"}.get(element.size_bytes)
    if layout is None:
        return 0.0
    (number,) = struct.unpack(layout, window.take(element.body, element.size_bytes))
    return float(number)
