"""One line's bytes to a JSON object, or the sentence that says why not.

This is the careful way, taken for lines in whose block something is out of the ordinary. msgspec's own
refusals are kept where they are clear and put into words where they are not. What it would let pass is
refused before: bytes that are not UTF-8 and numbers out of range in fields that a typed decoder skips
(decoding to plain objects skips none), and nesting beyond 128. Of duplicate keys the last one wins. Integers
are exact up to 4,300 digits; a number with a fraction or an exponent must fit a double.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from anex.rows.faults import RowRefused
from anex.rows.lines import NESTING_MAX, nests_deeper

if TYPE_CHECKING:
    from collections.abc import Callable

_ANY = msgspec.json.Decoder()
_WHITE_SPACE = b" \t\r"
_MALFORMED = "JSON is malformed: "
_AT_BYTE = re.compile(r" \(byte (\d+)\)$")
_TOO_DEEP = f"objects and arrays nest deeper than {NESTING_MAX} levels"
_DIAGNOSED_MAX_BYTES = 8 << 20
"""Longer lines get the plain refusal: the finer one costs a second parse into memory."""


def parse_line(
    line: bytes, start_byte: int, locate: Callable[[int], int] | None = None
) -> dict[str, Any] | None:
    """Return the object that a line holds, None for a line of white space. Raises ``RowRefused``.

    ``start_byte`` is where the line begins in the file: the fault of a byte that is not UTF-8 names its own
    offset. ``locate`` tells which byte of the file's line a byte of this one is, where it was shortened.
    """
    if not line.strip(_WHITE_SPACE):
        return None
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise RowRefused(f"not valid UTF-8 at byte {start_byte + error.start} of the file") from None
    value = _decode(line, locate or _same)
    if not isinstance(value, dict):
        raise RowRefused("not a JSON object")
    if line.count(b"{") + line.count(b"[") > NESTING_MAX and nests_deeper(value):
        raise RowRefused(_TOO_DEEP)
    return value


def _same(place: int) -> int:
    return place


def _decode(line: bytes, locate: Callable[[int], int]) -> Any:
    try:
        return _ANY.decode(line)
    except msgspec.DecodeError as error:
        raise RowRefused(_explain(line, str(error), locate)) from None
    except RecursionError:
        raise RowRefused(_TOO_DEEP) from None


def _explain(line: bytes, refusal: str, locate: Callable[[int], int]) -> str:
    """Put into words why the decoder refused a line."""
    if len(line) > _DIAGNOSED_MAX_BYTES:
        return _plain_refusal(refusal, locate)
    try:
        text = json.dumps(json.loads(line, parse_constant=_refuse_constant), ensure_ascii=False)
        text.encode()
    except _ConstantFound as constant:
        return f"{constant} is not a JSON number"
    except UnicodeEncodeError:
        return r"a lone surrogate (\ud800 to \udfff without its other half) is not a character"
    except (json.JSONDecodeError, RecursionError):
        return _plain_refusal(refusal, locate)
    except ValueError:
        return "a number has too many digits"
    return "a number is out of range" if "out of range" in refusal else _plain_refusal(refusal, locate)


class _ConstantFound(Exception):
    pass


def _refuse_constant(name: str) -> float:
    raise _ConstantFound(name)


def _plain_refusal(refusal: str, locate: Callable[[int], int]) -> str:
    if refusal.startswith(_MALFORMED):
        found = _AT_BYTE.search(refusal)
        what = refusal.removeprefix(_MALFORMED) if found is None else refusal[len(_MALFORMED) : found.start()]
        at = "" if found is None else f" (byte {locate(int(found[1]))} of the line)"
        return f"not valid JSON: {what}{at}"
    if "truncated" in refusal:
        return "not valid JSON: the line ends before the object does"
    return "a number is out of range" if "out of range" in refusal else "not valid JSON"
