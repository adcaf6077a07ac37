"""Media within a row, in base64: checked as a whole, decoded only where somebody reads.

An item may have 200 million characters, so no function here copies or decodes more of them than one block. What is
taken is what the engine's own decoder takes: the standard alphabet, padded to a multiple of four characters, with nothing
in between; media types and their parameters are as RFC 2397 has them. The bits that the last character has too many may
be anything.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass

from anex.media.model import MediaUnreadable

HEADER_MAX_CHARACTERS = 1024
"""Of a ``data:`` URI, up to its comma. Media types are short, whatever parameters they carry."""

_SCHEME = "data:"
_ENCODING = "base64"
_BLOCK_CHARACTERS = 1 << 16
"""Of a check; larger ones are slower, as they leave the processor's cache."""
_PADDING_MAX = 2
_GROUP_CHARACTERS = 4
_GROUP_BYTES = 3
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


@dataclass(frozen=True, slots=True)
class DataUri:
    """What stands before the payload of a ``data:`` URI, and where that begins; it lasts to the text's end."""

    mime: str
    """Without parameters, as it was written; empty where the URI names none."""
    begin: int


def parse_data_uri(text: str | memoryview) -> DataUri:
    """Return the head of a ``data:`` URI. Raises ``MediaUnreadable``, whose message is a whole sentence."""
    head = _read_text(text[:HEADER_MAX_CHARACTERS])
    if head[: len(_SCHEME)].lower() != _SCHEME:
        raise MediaUnreadable("a data: URI begins with 'data:'")
    header, comma, _ = head[len(_SCHEME) :].partition(",")
    if not comma:
        raise MediaUnreadable(
            f"a data: URI has no comma before its data (within its first {HEADER_MAX_CHARACTERS:,} characters)"
        )
    fields = header.split(";")
    if len(fields) == 1 or fields[-1] != _ENCODING:
        raise MediaUnreadable(
            "a data: URI must hold base64, and say so: ';base64,' stands directly before the data"
        )
    return DataUri(fields[0].strip(), len(_SCHEME) + len(header) + 1)


def _read_text(text: str | memoryview) -> str:
    """Return a piece as text in which each place is the same as in the piece."""
    return text if isinstance(text, str) else str(text, "latin-1")


class Base64Source:
    """A ``ByteSource`` over base64, which need not have been checked: its size is what the text has room for."""

    def __init__(self, text: str | memoryview) -> None:
        self._text = text
        characters = len(text) - _count_padding(text)
        self._size_bytes = characters * _GROUP_BYTES // _GROUP_CHARACTERS

    @property
    def size_bytes(self) -> int:
        """How many bytes the text encodes."""
        return self._size_bytes

    def read(self, offset: int, count: int) -> bytes:
        """Return the ``count`` bytes from ``offset`` on. Raises ``MediaUnreadable`` where the text isn't base64."""
        count = min(count, self._size_bytes - offset)
        if offset < 0 or count <= 0:
            return b""
        first = offset // _GROUP_BYTES
        last = -(-(offset + count) // _GROUP_BYTES)
        piece = self._text[first * _GROUP_CHARACTERS : last * _GROUP_CHARACTERS]
        try:
            decoded = binascii.a2b_base64(piece, strict_mode=True)
        except ValueError:
            raise MediaUnreadable("it is not valid base64") from None
        skipped = offset - first * _GROUP_BYTES
        return decoded[skipped : skipped + count]


def find_base64_fault(text: str | memoryview) -> str | None:
    """Return why a text isn't base64, None where it is. An empty one is: it holds no bytes.

    The words follow "… is not valid base64:". 150 MB take a tenth of a second.
    """
    end = len(text) - _count_padding(text)
    for begin in range(0, end, _BLOCK_CHARACTERS):
        piece = text[begin : min(begin + _BLOCK_CHARACTERS, end)]
        # One replacement a character, so that places stay the same.
        block = piece.encode("ascii", "replace") if isinstance(piece, str) else bytes(piece)
        strange = block.translate(None, _ALPHABET)[:1]
        if strange:
            return _describe_fault(text, begin + block.index(strange), strange)
    if len(text) % _GROUP_CHARACTERS:
        return (
            "its length is not a multiple of 4 characters; it is cut off, or its padding ('=') was left out"
        )
    return None


def _count_padding(text: str | memoryview) -> int:
    tail = _read_text(text[-_PADDING_MAX:])
    return len(tail) - len(tail.rstrip("="))


def _describe_fault(text: str | memoryview, place: int, strange: bytes) -> str:
    """Return what is wrong with the first character that base64 doesn't have."""
    if _read_text(text[: len(_SCHEME)]).lower() == _SCHEME:
        return "it begins with 'data:'; leave out everything up to the comma"
    named = f"character {place + 1:,}"
    if strange.isspace():
        return f"{named} is white space or a line break; write it without any"
    if strange in b"-_":
        return f"{named} is of the URL-safe alphabet; use the standard one, with '+' and '/'"
    if strange == b"=":
        return f"{named} is padding ('='), which may stand at its end alone, at most {_PADDING_MAX} times"
    if strange == b"%":
        return f"{named} is '%'; write it without percent-encoding"
    return f"{named} is not of its alphabet"
