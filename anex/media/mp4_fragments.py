"""ISO base media files in fragments: what states their length, and else the sum of their samples.

In order: ``mehd`` states the whole, a ``sidx`` lists the lengths of all parts, and the runs of samples add up. Where those are
too many to follow, the index for random access, with which a file ends, leads to the last ones.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from anex.media.mp4_boxes import Box, Track, first_boxes, iterate_boxes
from anex.media.window import READ_MAX_BYTES, Unreached

if TYPE_CHECKING:
    from anex.media.window import Window

_TREX = struct.Struct(">4xIII")
_SIDX_HEADS = (struct.Struct(">4x4xIIIHH"), struct.Struct(">4x4xIQQHH"))
_REFERENCE = struct.Struct(">III")
_TFRA = struct.Struct(">B3x4xII")
_SIZE_MASK = 0x7FFFFFFF
_FRAGMENT_FLAGS = ((0x1, 8), (0x2, 4))
"""What stands in ``tfhd`` before its default duration: a base offset, a description's number."""
_DEFAULT_DURATION = 0x8
_RUN_FLAGS = ((0x1, 4), (0x4, 4))
"""What stands in ``trun`` before its samples: an offset, the first sample's flags."""
_SAMPLE_DURATION = 0x100
_SAMPLE_FIELDS = 0xF00


@dataclass(slots=True)
class _Sum:
    """What fragments add to one track."""

    default_duration: int = 0
    samples: int = 0
    duration: int = 0
    begin: int | None = None
    """Where its first fragment begins, by the times that fragments state; a cut of a live stream doesn't begin at 0."""
    end: int = 0
    """Where its last fragment ends."""

    def count_span(self, before: int) -> int:
        """Return from where to where it lasts, gaps included; ``before`` is the duration of the movie's own samples."""
        return self.end - (0 if before else self.begin or 0)


def read_fragments(
    window: Window, start: int, extends: Box, scale: int, tracks: list[Track]
) -> tuple[Fraction | None, list[Track]]:
    """Return the length of the whole, None where nothing says, and the tracks with what their fragments hold.

    ``scale`` is the movie's; ``start`` is where fragments may begin.
    """
    stated, sums = _read_extends(window, extends, scale)
    complete = True
    try:
        for box in iterate_boxes(window, start, window.size_bytes):
            if box.kind == b"sidx":
                stated = stated or _read_index(window, box)
            elif box.kind == b"moof":
                _add_fragment(window, box, sums)
    except Unreached:
        complete = False
    pairs = [(track, sums.get(track.number, _Sum())) for track in tracks]
    whole = [_join(track, added, complete=complete) for track, added in pairs]
    if stated is None and (complete or _follow_last(window.again(), sums)):
        stated = max((_measure(track, added) for track, added in pairs), default=None)
    return stated, whole


def _measure(track: Track, added: _Sum) -> Fraction:
    return Fraction(max(track.duration + added.duration, added.count_span(track.duration)), track.scale)


def _follow_last(window: Window, sums: dict[int, _Sum]) -> bool:
    """Note where the last fragments end, by the file's last index; return whether it leads to them."""
    try:
        size_bytes = int.from_bytes(window.take(window.size_bytes - 4, 4), "big")
        start = window.size_bytes - size_bytes
        if window.take(start + 4, 4) != b"mfra":
            return False
        boxes = iterate_boxes(window, start + 8, window.size_bytes)
        last = max((_read_last_place(window, box) for box in boxes if box.kind == b"tfra"), default=0)
        for box in iterate_boxes(window, last, start):
            if box.kind == b"moof":
                _add_fragment(window, box, sums)
    except Unreached:
        return False
    return last > 0


def _read_last_place(window: Window, box: Box) -> int:
    """Return where the last fragment lies that an index names."""
    head = window.take(box.body, _TFRA.size)
    version, widths, count = _TFRA.unpack(head)
    width = 8 if version else 4
    entry_bytes = 2 * width + sum((widths >> shift & 3) + 1 for shift in (0, 2, 4))
    if not count:
        return 0
    return int.from_bytes(
        window.take(box.body + _TFRA.size + (count - 1) * entry_bytes + width, width), "big"
    )


def _join(track: Track, added: _Sum, *, complete: bool) -> Track:
    return replace(
        track,
        duration=track.duration + added.duration,
        presented=0,
        samples=track.samples + added.samples,
        complete=complete,
    )


def _read_extends(window: Window, extends: Box, scale: int) -> tuple[Fraction | None, dict[int, _Sum]]:
    stated, sums = None, {}
    for box in iterate_boxes(window, extends.body, extends.end):
        if box.kind == b"mehd":
            wide = window.take(box.body, 1) == b"\x01"
            duration = int.from_bytes(window.take(box.body + 4, 8 if wide else 4), "big")
            stated = Fraction(duration, scale) if scale and duration else None
        elif box.kind == b"trex":
            number, _, duration = _TREX.unpack(window.take(box.body, _TREX.size))
            sums[number] = _Sum(default_duration=duration)
    return stated, sums


def _read_index(window: Window, box: Box) -> Fraction | None:
    """Return the length that an index states, None unless it lists everything to the end of the file."""
    version = window.take(box.body, 1)[0]
    if version >= len(_SIDX_HEADS):
        return None
    head = _SIDX_HEADS[version]
    scale, _, skipped_bytes, _, count = head.unpack(window.take(box.body, head.size))
    entries = window.take(box.body + head.size, min(count * _REFERENCE.size, READ_MAX_BYTES))
    entries = entries[: len(entries) // _REFERENCE.size * _REFERENCE.size]
    covered, duration = box.end + skipped_bytes, 0
    for reference, part_duration, _ in _REFERENCE.iter_unpack(entries):
        covered += reference & _SIZE_MASK
        duration += part_duration
    lists_all = covered >= window.size_bytes or _is_last(window, covered)
    return Fraction(duration, scale) if scale and duration and lists_all else None


def _is_last(window: Window, offset: int) -> bool:
    """Whether what lies there is the index of random access, with which a file ends."""
    return window.peek(offset + 4, 4) == b"mfra"


def _add_fragment(window: Window, fragment: Box, sums: dict[int, _Sum]) -> None:
    for box in iterate_boxes(window, fragment.body, fragment.end):
        if box.kind == b"traf":
            _add_track(window, box, sums)


def _add_track(window: Window, fragment: Box, sums: dict[int, _Sum]) -> None:
    boxes = first_boxes(window, fragment.body, fragment.end)
    if b"tfhd" not in boxes:
        return
    number, default_duration = _read_head(window, boxes[b"tfhd"])
    track = sums.setdefault(number, _Sum())
    samples = duration = 0
    for box in iterate_boxes(window, fragment.body, fragment.end):
        if box.kind == b"trun":
            run_samples, run_duration = _read_run(window, box, default_duration or track.default_duration)
            samples += run_samples
            duration += run_duration
    track.samples += samples
    track.duration += duration
    if b"tfdt" in boxes:
        begin = _read_start(window, boxes[b"tfdt"])
        track.begin = begin if track.begin is None else min(track.begin, begin)
        track.end = max(track.end, begin + duration)


def _read_head(window: Window, box: Box) -> tuple[int, int | None]:
    """Return the track's number and the duration of its samples, where the fragment states one."""
    flags = int.from_bytes(window.take(box.body, 4), "big")
    number = int.from_bytes(window.take(box.body + 4, 4), "big")
    if not flags & _DEFAULT_DURATION:
        return number, None
    offset = box.body + 8 + sum(size_bytes for flag, size_bytes in _FRAGMENT_FLAGS if flags & flag)
    return number, int.from_bytes(window.take(offset, 4), "big")


def _read_start(window: Window, box: Box) -> int:
    wide = window.take(box.body, 1) == b"\x01"
    return int.from_bytes(window.take(box.body + 4, 8 if wide else 4), "big")


def _read_run(window: Window, box: Box, default_duration: int) -> tuple[int, int]:
    """Return samples and duration of a run."""
    flags = int.from_bytes(window.take(box.body, 4), "big")
    count = int.from_bytes(window.take(box.body + 4, 4), "big")
    if not flags & _SAMPLE_DURATION:
        return count, count * default_duration
    offset = box.body + 8 + sum(size_bytes for flag, size_bytes in _RUN_FLAGS if flags & flag)
    entry_bytes = 4 * (flags & _SAMPLE_FIELDS).bit_count()
    count = min(count, max(0, box.end - offset) // entry_bytes)
    duration, left = 0, count
    while left:
        entries = min(left, READ_MAX_BYTES // entry_bytes)
        block = window.take(offset, entries * entry_bytes)
        duration += sum(number for (number,) in struct.iter_unpack(f">I{entry_bytes - 4}x", block))
        offset += len(block)
        left -= entries
    return count, duration
