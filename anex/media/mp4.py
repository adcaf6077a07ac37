"""The length of an ISO base media file (MP4, MOV, M4A), and the pictures of its first video track.

The movie header's duration is what is presented: edit lists are in it already, and players and ffprobe go by it.
A file in fragments states no whole length there (``anex.media.mp4_fragments``).
"""

from __future__ import annotations

import struct
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from anex.media.model import Clip, MediaUnreadable
from anex.media.mp4_boxes import Box, Track, first_boxes, iterate_boxes
from anex.media.mp4_fragments import read_fragments
from anex.media.window import READ_MAX_BYTES

if TYPE_CHECKING:
    from anex.media.window import Window

_CLOCKS = (struct.Struct(">4x8xII"), struct.Struct(">4x16xIQ"))
"""Scale and duration of ``mvhd`` and ``mdhd``, by version; before them times of creation and change."""
_TRACK_HEADS = (struct.Struct(">4x8xI4xI"), struct.Struct(">4x16xI4xQ"))
"""Number and presented duration of ``tkhd``, by version."""
_UNKNOWN = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
_KIND_OFFSET = 8
_SIZES_COUNT = 8
"""Where ``stsz`` and ``stz2`` hold their count: after version, flags and a size."""
_TIMES_COUNT = 4
_TIMES_ENTRY = struct.Struct(">II")


def read_mp4(window: Window) -> Clip | None:
    """Return what ``moov``, wherever it lies, and the fragments after it say."""
    first = window.peek(0, 8)
    if len(first) < 8 or not all(0x20 <= byte < 0x7F for byte in first[4:]):  # noqa: PLR2004 - a box's size and its kind
        raise MediaUnreadable("the bytes are not an MP4 or MOV file")
    for box in iterate_boxes(window, 0, window.size_bytes):
        if box.kind == b"moov":
            return _read_movie(window, box) if box.whole else None
    return None


def _read_movie(window: Window, movie: Box) -> Clip | None:
    header, extends, tracks = None, None, []
    for box in iterate_boxes(window, movie.body, movie.end):
        if box.kind == b"mvhd":
            header = _read_versioned(window, box, _CLOCKS)
        elif box.kind == b"mvex":
            extends = box
        elif box.kind == b"trak" and (track := _read_track(window, box)) is not None:
            tracks.append(track)
    if header is None:  # a compressed movie, say
        return None
    scale, duration = header
    seconds: Fraction | None
    if extends is not None:
        seconds, tracks = read_fragments(window, movie.end, extends, scale, tracks)
    else:
        seconds = Fraction(duration, scale) if scale and duration else _longest(tracks, scale)
    return None if not seconds else _with_pictures(seconds, tracks)


def _longest(tracks: list[Track], scale: int) -> Fraction | None:
    """Return the length of the longest track, for a movie header that leaves it open."""
    lengths = [
        Fraction(track.presented, scale)
        if scale and track.presented
        else Fraction(track.duration, track.scale)
        for track in tracks
    ]
    return max(lengths, default=None)


def _with_pictures(seconds: Fraction, tracks: list[Track]) -> Clip:
    video = next((track for track in tracks if track.kind == b"vide"), None)
    if video is None:
        return Clip(seconds)
    if not (
        video.complete and video.samples
    ):  # what is seen of the beginning says nothing of the rate: that may vary
        return Clip(seconds)
    rate = Fraction(video.samples * video.scale, video.duration) if video.duration else None
    return Clip(seconds, video.samples, rate)


def _read_track(window: Window, box: Box) -> Track | None:
    boxes = first_boxes(window, box.body, box.end)
    if b"tkhd" not in boxes or b"mdia" not in boxes:
        return None
    number, presented = _read_versioned(window, boxes[b"tkhd"], _TRACK_HEADS) or (0, 0)
    media = first_boxes(window, boxes[b"mdia"].body, boxes[b"mdia"].end)
    clock = _read_versioned(window, media[b"mdhd"], _CLOCKS) if b"mdhd" in media else None
    if clock is None or not clock[0] or b"hdlr" not in media:
        return None
    kind = window.take(media[b"hdlr"].body + _KIND_OFFSET, 4)
    track = Track(number, kind, clock[0], duration=clock[1], presented=presented)
    return _with_samples(window, media[b"minf"], track) if b"minf" in media else track


def _with_samples(window: Window, information: Box, track: Track) -> Track:
    """Return the track with the count of its samples (pictures, in a video track) and, where that is short to read, their duration.

    The media header's duration may count a gap at the start, and then no rate comes out right.
    """
    table = first_boxes(window, information.body, information.end).get(b"stbl")
    boxes = {} if table is None else first_boxes(window, table.body, table.end)
    sizes = boxes.get(b"stsz") or boxes.get(b"stz2")
    if sizes is not None:
        track = replace(track, samples=_read_count(window, sizes, _SIZES_COUNT))
    times = boxes.get(b"stts")
    if times is None:
        return track
    size_bytes = _read_count(window, times, _TIMES_COUNT) * _TIMES_ENTRY.size
    if not 0 < size_bytes <= READ_MAX_BYTES:
        return track
    entries = window.take(times.body + _TIMES_COUNT + 4, size_bytes)
    return replace(track, duration=sum(count * delta for count, delta in _TIMES_ENTRY.iter_unpack(entries)))


def _read_count(window: Window, box: Box, offset: int) -> int:
    return int.from_bytes(window.take(box.body + offset, 4), "big")


def _read_versioned(
    window: Window, box: Box, layouts: tuple[struct.Struct, struct.Struct]
) -> tuple[int, int] | None:
    """Return a number and a duration of a box whose version says how wide it is; 0 for a duration that is unknown."""
    version = window.take(box.body, 1)[0]
    if version >= len(layouts):
        return None
    layout = layouts[version]
    number, duration = layout.unpack(window.take(box.body, layout.size))
    return number, 0 if duration == _UNKNOWN[version] else duration
