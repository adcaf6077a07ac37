"""Boxes of ISO base media files, and what is noted of a track."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anex.media.window import Window

_HEAD = struct.Struct(">I4s")
_WIDE_BYTES = 8


@dataclass(frozen=True, slots=True)
class Box:
    """One box: its kind, where its content begins, and where it ends; never past what holds it."""

    kind: bytes
    body: int
    end: int
    whole: bool
    """Whether what holds it holds all of it."""


@dataclass(frozen=True, slots=True)
class Track:
    """One track of a movie. Durations are in the track's own scale, but for ``presented``."""

    number: int
    kind: bytes
    """``vide``, ``soun`` and others, of its handler."""
    scale: int
    """Units of a second, above 0."""
    duration: int = 0
    presented: int = 0
    """With its edits, in the movie's scale; 0 where it doesn't say."""
    samples: int = 0
    complete: bool = True
    """Whether all its samples were counted."""


def iterate_boxes(window: Window, start: int, end: int) -> Iterator[Box]:
    """Yield the boxes that lie between two places, until one can't be a box. Raises ``Unreached`` at bytes that are missing."""
    while start + _HEAD.size <= end:
        size_bytes, kind = _HEAD.unpack(window.take(start, _HEAD.size))
        body = start + _HEAD.size
        if size_bytes == 1:
            size_bytes = int.from_bytes(window.take(body, _WIDE_BYTES), "big")
            body += _WIDE_BYTES
        elif size_bytes == 0:
            size_bytes = end - start
        if size_bytes < body - start:
            return
        yield Box(kind, body, min(start + size_bytes, end), start + size_bytes <= end)
        start += size_bytes


def first_boxes(window: Window, start: int, end: int) -> dict[bytes, Box]:
    """Return the first box of each kind between two places."""
    boxes: dict[bytes, Box] = {}
    for box in iterate_boxes(window, start, end):
        boxes.setdefault(box.kind, box)
    return boxes
