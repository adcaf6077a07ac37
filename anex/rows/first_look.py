"""Judge an input by its first bytes: is it JSONL at all? Everything that needs rows is checked in the job."""

from __future__ import annotations

import codecs
from typing import Any

import msgspec

_GZIP = b"\x1f\x8b"
_UTF16_OR_32 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_SPACE = b" \t\r\n"

_decode = msgspec.json.Decoder().decode


def find_first_fault(head: bytes, *, is_whole: bool) -> str | None:
    """Return why ``head``, the first bytes of an input, is not JSONL; None where it may be.

    ``is_whole`` says that the input ends there. A first line that does not end within ``head`` is only asked to begin with an
    opening brace and to be UTF-8 so far.
    """
    if head.startswith(_GZIP):
        return "the input is compressed with gzip; send it uncompressed"
    if head.startswith(_UTF16_OR_32):
        return "the input is UTF-16 or UTF-32; send it as UTF-8"
    text = head.removeprefix(codecs.BOM_UTF8).lstrip(_SPACE)
    if not text:
        return None  # that it holds no rows is found in the job, like all that needs rows
    line, newline, _ = text.partition(b"\n")
    if newline or is_whole:
        return _find_line_fault(line)
    return _find_opening_fault(text)


def _find_line_fault(line: bytes) -> str | None:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return "the input's first line is not UTF-8"
    try:
        value: Any = _decode(line)
    except RecursionError:
        return None  # how deep it nests is the job's to tell, with the line
    except msgspec.DecodeError:
        return "the input's first line is not JSON; send JSONL, one object per line"
    return (
        None
        if isinstance(value, dict)
        else "the input's first line is not a JSON object; send one object per line"
    )


def _find_opening_fault(text: bytes) -> str | None:
    try:
        # Not final: an incomplete character at the end is where the look ends, not a fault.
        codecs.getincrementaldecoder("utf-8")().decode(text, final=False)
    except UnicodeDecodeError:
        return "the input is not UTF-8"
    return (
        None
        if text.startswith(b"{")
        else "the input's first line is not a JSON object; send one object per line"
    )
