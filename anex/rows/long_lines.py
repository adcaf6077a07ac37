"""Read a line of many megabytes without holding it twice.

Such a line is nearly always media in base64. Its long strings are cut out: what is left is parsed as any line is, with a mark
where each long string stood, and the marks become views into the line's own buffer. So a line of 200 MB costs 200 MB, and whoever
reads the media decodes what it looks at and no more. A view is UTF-8 without escapes: those of media (whose slashes some writers
escape) go where they stand, and texts that hold escapes are unescaped into buffers of their own.
"""

from __future__ import annotations

import codecs
import re
import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from anex.rows.faults import RowRefused
from anex.rows.parse import parse_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONG_STRING_BYTES = 64 << 10
SHORT_PART_MAX_BYTES = 32 << 20
"""Of a line beside its long strings: parsed, it takes some ten times as much."""
VALUES_MAX = 1_000_000
"""Of the same: strings, numbers, objects and arrays, counted by the marks between them, in texts too."""
TEXT_MAX_BYTES = 32 << 20
"""Of a string that is text: no model's context holds more (131,072 tokens of ``TOKEN_MAX_BYTES``)."""
TOKEN_MAX_BYTES = 256
"""More than tokenizers make one token of; runs of spaces come near to it."""

_BLOCK_BYTES = 1 << 20
_BACKSLASH = 0x5C
_MARK = f"long:{secrets.token_hex(12)}:"
"""Begins a mark; nobody can write one into a file that doesn't know the process."""

_TOKEN = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)("?)', re.DOTALL)
"""A string, or what begins like one and never ends (see ``anex.rows.lines``)."""
_NAMES = re.compile(rb"[ \t\r]*+:")
_CONTROL = re.compile(rb"[\x00-\x1f]")
_ESCAPED = re.compile(rb'(?:[^\\]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+', re.DOTALL)

_decode = msgspec.json.Decoder(str).decode


class TextTooLong(Exception):
    """A text is longer than any model reads."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.size_bytes = size_bytes


@dataclass(frozen=True, slots=True, eq=False)
class LongText:
    """A long string of a line, as UTF-8."""

    data: memoryview

    def __len__(self) -> int:
        return len(self.data)

    def text(self) -> str:
        """Return it as a text of its own. Raises ``TextTooLong``."""
        if len(self.data) > TEXT_MAX_BYTES:
            raise TextTooLong(len(self.data))
        return str(self.data, "utf-8")


def parse_long_line(line: bytearray, start_byte: int) -> dict[str, Any] | None:
    """Return the object that a line holds, its long strings as ``LongText``; None for white space. Raises ``RowRefused``."""
    _require_utf8(line, start_byte)
    strings = list(_find_long_strings(line))
    texts = [_read_long(line, begin, end) for begin, end in strings]
    value = parse_line(_cut_out(line, strings), start_byte, partial(_locate, strings))
    if value is not None and texts:
        _put_back(value, texts)
    return value


def as_plain(value: Any) -> Any:
    """Return a parsed value with texts of their own in place of ``LongText``. Raises ``TextTooLong``."""
    if isinstance(value, LongText):
        return value.text()
    if isinstance(value, dict | list):
        _replace(value, lambda text: text.text())
    return value


def _require_utf8(line: bytearray, start_byte: int) -> None:
    """Raise unless the line is UTF-8, looking at a block at a time."""
    if line.isascii():
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(line)
    for begin in range(0, len(line), _BLOCK_BYTES):
        kept_bytes = len(decoder.getstate()[0])
        block = view[begin : begin + _BLOCK_BYTES]
        try:
            decoder.decode(block, final=begin + _BLOCK_BYTES >= len(line))
        except UnicodeDecodeError as error:
            offset = start_byte + begin - kept_bytes + error.start
            raise RowRefused(f"not valid UTF-8 at byte {offset} of the file") from None


def _cut_out(line: bytearray, strings: list[tuple[int, int]]) -> bytes:
    """Return the line with a mark in place of each of these strings."""
    kept_bytes = len(line) - sum(end - begin for begin, end in strings)
    if kept_bytes > SHORT_PART_MAX_BYTES:
        raise RowRefused(
            f"the line holds over {SHORT_PART_MAX_BYTES >> 20} MiB beside its media, more than any model reads. Split this row"
        )
    pieces: list[bytes | memoryview] = []
    done = 0
    for place, (begin, end) in enumerate(strings):
        pieces += (memoryview(line)[done:begin], _mark(place))
        done = end
    kept = b"".join((*pieces, memoryview(line)[done:]))
    # Each value is an object of some tens of bytes: 31 MiB of empty arrays took a planner to 2 GB.
    if kept.count(b",") + kept.count(b"[") + kept.count(b"{") > VALUES_MAX:
        raise RowRefused(f"the line holds over {VALUES_MAX:,} values beside its media. Split this row")
    return kept


def _mark(place: int) -> bytes:
    return f"{_MARK}{place}".encode()


def _locate(strings: list[tuple[int, int]], at: int) -> int:
    """Return which byte of the line a byte of the cut line is."""
    for place, (begin, end) in enumerate(strings):
        if at <= begin:
            break
        at += end - begin - len(_mark(place))
    return at


def _find_long_strings(line: bytearray) -> Iterator[tuple[int, int]]:
    """Yield where the content of each long string begins and ends. Names of fields stay where they are."""
    for token in _TOKEN.finditer(line):
        begin, end = token.span(1)
        if not token[2]:
            raise RowRefused("not valid JSON: the line ends before the object does")
        if end - begin >= LONG_STRING_BYTES and _NAMES.match(line, token.end()) is None:
            yield begin, end


def _read_long(line: bytearray, begin: int, end: int) -> LongText:
    view = memoryview(line)[begin:end]
    control = _CONTROL.search(line, begin, end)
    if control is not None:
        raise RowRefused(f"not valid JSON: invalid character (byte {control.start()} of the line)")
    if line.find(b"\\", begin, end) < 0:
        return LongText(view)
    if len(view) <= TEXT_MAX_BYTES:
        return LongText(memoryview(_unescape(view)))
    # Too long for a text. Media of another writer may have all its slashes escaped; nothing else in base64 is.
    if _ESCAPED.fullmatch(view) is None:
        raise RowRefused("not valid JSON: invalid escape in a string")
    return LongText(_drop_escapes(view))


def _drop_escapes(view: memoryview) -> memoryview:
    r"""Write ``/`` for ``\/`` where it stands: nobody reads the line's own bytes again."""
    at = kept_bytes = 0
    while at < len(view):
        end = min(at + _BLOCK_BYTES, len(view))
        if end < len(view) and view[end - 1] == _BACKSLASH:
            end -= 1  # it may belong to a slash behind it
        block = bytes(view[at:end]).replace(b"\\/", b"/")
        view[kept_bytes : kept_bytes + len(block)] = block
        kept_bytes += len(block)
        at = end
    return view[:kept_bytes]


def _unescape(view: memoryview) -> bytes:
    try:
        return _decode(b"".join((b'"', view, b'"'))).encode()
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise RowRefused("not valid JSON: invalid escape or half of a surrogate pair in a string") from None


def _put_back(value: dict[str, Any], texts: list[LongText]) -> None:
    """Put the long strings where their marks are."""

    def find(text: str) -> Any:
        return texts[int(text.removeprefix(_MARK))] if text.startswith(_MARK) else text

    _replace(value, find, str)


def _replace(
    value: dict[str, Any] | list[Any], make: Callable[[Any], Any], kind: type[str | LongText] = LongText
) -> None:
    """Replace each value of a ``kind`` in nested objects and arrays, however deep."""
    open_values: list[Any] = [value]
    while open_values:
        each = open_values.pop()
        for place, inner in list(each.items() if isinstance(each, dict) else enumerate(each)):
            if isinstance(inner, kind):
                each[place] = make(inner)
            elif isinstance(inner, dict | list):
                open_values.append(inner)
