"""ID3v2 tags, which stand before MP3, and by some writers' habit before AAC and FLAC too."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anex.media.window import Window

_HEAD_BYTES = 10
_FOOTER = 0x10
_TAGS_MAX = 8


def skip_id3(window: Window) -> int:
    """Return where the bytes after the tags begin."""
    offset = 0
    for _ in range(_TAGS_MAX):
        head = window.peek(offset, _HEAD_BYTES)
        if len(head) < _HEAD_BYTES or head[:3] != b"ID3" or max(head[6:]) > 0x7F:  # noqa: PLR2004 - seven bits a byte
            break
        size_bytes = head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9]
        offset += _HEAD_BYTES + size_bytes + (_HEAD_BYTES if head[5] & _FOOTER else 0)
    return offset
