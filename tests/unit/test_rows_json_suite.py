"""JSON, as a row's value may and may not be written: each wrong one is refused with its line, whoever its neighbours are.

The set is in the manner of https://github.com/nst/JSONTestSuite, put together anew from RFC 8259 and the contract's own rules
(no lone surrogate, no number out of range, at most 128 levels). Each value stands once where the fast way of reading meets it,
in a field that it decodes, and once in a field that nobody knows, which the careful way reads.
"""

from __future__ import annotations

import pytest

from anex.rows.check import RowChecker, Summary
from anex.rows.settings import RowSettings
from tests.support.row_samples import chat_line, chat_spec, compile_anything, join_lines

VALID = {
    "zero": b"0",
    "minus-zero": b"-0",
    "minus-zero-point-zero": b"-0.0",
    "exponent": b"1E5",
    "exponent-plus": b"1e+5",
    "exponent-minus": b"0.5e-7",
    "underflow": b"1e-400",
    "largest-double": b"1.7976931348623157e308",
    "beyond-64-bits": str(2**70).encode(),
    "minus-beyond-64-bits": str(-(2**70)).encode(),
    "4300-digits": b"9" * 4300,
    "true": b"true",
    "false": b"false",
    "null": b"null",
    "empty-text": b'""',
    "all-escapes": rb'"\"\\\/\b\f\n\r\t\u00e9"',
    "escaped-nul": rb'"\u0000"',
    "surrogate-pair": rb'"\ud83d\ude00"',
    "surrogate-pair-capitals": rb'"\uD83D\uDE00"',
    "escaped-line-separator": rb'"\u2028\u2029"',
    "line-separators": '"\u2028\u2029\u0085"'.encode(),
    "delete": b'"\x7f"',
    "no-character": '"\uffff\ufdd0"'.encode(),
    "last-character": '"\U0010ffff"'.encode(),
    "byte-order-mark-in-text": '"\ufeff"'.encode(),
    "empty-array": b"[]",
    "empty-object": b"{}",
    "white-space": b" [ 1 ,\t2\r, 3 ] ",
    "duplicate-keys": b'{"a":1,"a":2}',
    "empty-key": b'{"":0}',
    "escaped-key": rb'{"\u0061":0}',
    "brackets-in-text": b'"' + b"[{" * 300 + b'"',
    "126-deep": b"[" * 126 + b"]" * 126,
}
INVALID = {
    "nothing": b"",
    "only-white-space": b" ",
    "trailing-comma": b"[1,]",
    "leading-comma": b"[,1]",
    "double-comma": b"[1,,2]",
    "missing-comma": b"[1 2]",
    "comma-alone": b"[,]",
    "trailing-comma-in-object": b'{"a":1,}',
    "comma-alone-in-object": b"{,}",
    "key-without-value": b'{"a"}',
    "key-and-colon-without-value": b'{"a":}',
    "double-colon": b'{"a"::1}',
    "comma-for-colon": b'{"a",1}',
    "bare-key": b"{a:1}",
    "number-as-key": b"{1:1}",
    "null-as-key": b"{null:1}",
    "single-quotes": b"'a'",
    "single-quoted-key": b"{'a':1}",
    "two-texts": b'"a" "b"',
    "open-array": b"[1",
    "open-object": b'{"a":1',
    "open-text": b'"a',
    "only-a-quote": b'"',
    "closed-otherwise": b"[1}",
    "object-closed-otherwise": b'{"a":1]',
    "closed-twice": b"[1]]",
    "never-opened": b"]",
    "bare-word": b"word",
    "true-capital": b"True",
    "none": b"None",
    "null-cut": b"nul",
    "true-and-more": b"truee",
    "undefined": b"undefined",
    "nan": b"NaN",
    "nan-small": b"nan",
    "minus-nan": b"-NaN",
    "infinity": b"Infinity",
    "minus-infinity": b"-Infinity",
    "inf": b"inf",
    "leading-zero": b"01",
    "leading-zeros": b"-012",
    "point-last": b"1.",
    "point-first": b".5",
    "minus-point": b"-.5",
    "point-exponent": b"1.e1",
    "plus": b"+1",
    "minus-alone": b"-",
    "two-minuses": b"--1",
    "exponent-empty": b"1e",
    "exponent-plus-empty": b"1e+",
    "exponent-broken": b"1e1.5",
    "two-exponents": b"1eE2",
    "hexadecimal": b"0x10",
    "underscore": b"1_000",
    "full-width-digit": "\uff11".encode(),
    "overflow": b"1e400",
    "minus-overflow": b"-1e400",
    "wide-overflow": b"1e999999999",
    "too-many-digits": b"9" * 4301,
    "unknown-escape": rb'"\x41"',
    "escape-short": rb'"\u12"',
    "escape-not-hexadecimal": rb'"\u12G4"',
    "escape-braces": rb'"\u{41}"',
    "escape-last": b'"a\\"',
    "tab-in-text": b'"a\tb"',
    "nul-in-text": b'"a\x00b"',
    "control-in-text": b'"a\x1fb"',
    "high-surrogate": rb'"\ud800"',
    "low-surrogate": rb'"\udc00"',
    "high-surrogate-and-letter": rb'"\ud800\u0041"',
    "surrogates-in-wrong-order": rb'"\udc00\ud800"',
    "surrogate-as-key": rb'{"\ud800":1}',
    "lone-continuation": b'"\x80"',
    "overlong": b'"\xc0\xaf"',
    "overlong-nul": b'"\xe0\x80\x80"',
    "surrogate-in-utf-8": b'"\xed\xa0\x80"',
    "beyond-unicode": b'"\xf4\x90\x80\x80"',
    "cut-character": b'"\xe2\x82"',
    "latin-1": b'"caf\xe9"',
    "never-a-byte": b'"\xff"',
    "utf-8-outside-text": b"\xc3\xa9",
    "no-break-space": "\u00a01".encode(),
    "form-feed": b"\x0c1",
    "vertical-tab": b"\x0b1",
    "nul": b"\x001",
    "byte-order-mark": b"\xef\xbb\xbf1",
    "comment": b"1 /* one */",
    "comment-to-the-end": b"1 // one",
    "hash-comment": b"1 # one",
    "127-deep": b"[" * 127 + b"]" * 127,
    "200000-deep": b"[" * 200_000 + b"]" * 200_000,
    "200000-deep-and-open": b"[" * 200_000,
    "200000-objects-deep": b'{"a":' * 200_000,
}
HOLE = b'"hole"'


def read(value: bytes, field: str) -> Summary:
    """Check three lines; the value stands in the second."""
    line = chat_line("b", body={"messages": [{"role": "user", "content": "x"}], field: "hole"})
    assert line.count(HOLE) == 1
    data = join_lines(chat_line("a"), line.replace(HOLE, value), chat_line("c"))
    return RowChecker(chat_spec(), RowSettings(), "etag", compile_anything).check_stream([data])


@pytest.mark.parametrize("field", ["user", "zz"])
@pytest.mark.parametrize("name", VALID)
def test_what_is_json_is_taken(name: str, field: str) -> None:
    summary = read(VALID[name], field)
    assert (summary.rows, summary.faults.sentences()) == (3, [])


@pytest.mark.parametrize("field", ["user", "zz"])
@pytest.mark.parametrize("name", INVALID)
def test_what_is_not_is_refused_and_its_line_named(name: str, field: str) -> None:
    (fault,) = read(INVALID[name], field).faults.sentences()
    assert fault.startswith("Line 2: ")
