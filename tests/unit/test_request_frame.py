"""Where a request ends, however the bytes come; and that gunicorn, given what was cut off, agrees."""

from __future__ import annotations

from itertools import pairwise

import pytest
from gunicorn.config import Config
from gunicorn.http import get_parser
from hypothesis import given
from hypothesis import strategies as st

from api.request_frame import (
    BODY_MAX_BYTES,
    CHUNKED_BYTES_MAX,
    CHUNKS_MAX,
    HEAD_BYTES_MAX,
    HeadTooLarge,
    RequestFrame,
)

GET = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: a\r\n"
LENGTH = POST + b"Content-Length: 5\r\n\r\nGET /"
EMPTY = POST + b"Content-Length: 0\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = [
    GET,
    LENGTH,
    EMPTY,
    CHUNKED + b"0\r\n\r\n",
    CHUNKED + b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nX-Trailer: 0\r\n\r\n",
    CHUNKED + b"4\r\n\r\n\r\n\r\n0\r\n\r\n",
    POST + b"cOnTeNt-LeNgTh: 2\r\n\r\n{}",
]
CLIENT = ("127.0.0.1", 1)


def make_frame(received: bytes = b"") -> RequestFrame:
    frame = RequestFrame(Config(), CLIENT)
    frame.received += received
    return frame


def read_body(request: bytes) -> bytes:
    body: bytes = next(get_parser(Config(), [request], CLIENT)).body.read()
    return body


@given(requests=st.lists(st.sampled_from(WHOLE), min_size=1, max_size=4), data=st.data())
def test_requests_are_cut_off_wherever_the_bytes_are_cut(requests: list[bytes], data: st.DataObject) -> None:
    sent = b"".join(requests)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(sent)))) | {0, len(sent)})
    frame, taken = make_frame(), []
    for begin, end in pairwise(cuts):
        frame.received += sent[begin:end]
        while (request := frame.take()) is not None:
            taken.append(request)

    assert taken == requests
    assert frame.received == b""
    assert not frame.is_last


@pytest.mark.parametrize(
    ("request_bytes", "body"), [(LENGTH, b"GET /"), (WHOLE[4], b"abc0123456789"), (WHOLE[5], b"\r\n\r\n")]
)
def test_gunicorn_finds_the_whole_body_in_what_is_cut_off(request_bytes: bytes, body: bytes) -> None:
    request = make_frame(request_bytes + GET).take()

    assert request == request_bytes
    assert read_body(request) == body


@pytest.mark.parametrize("request_bytes", WHOLE)
def test_nothing_is_taken_before_the_last_byte(request_bytes: bytes) -> None:
    assert make_frame(request_bytes[:-1]).take() is None


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: -1",
        b"Content-Length: 1\r\nContent-Length: 2",
        b"Content-Length : 3",
        b"Content-Length: 3\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: gzip",
        b"Transfer-Encoding: chunked, chunked",
    ],
)
def test_after_a_head_that_is_refused_nothing_is_a_request(head: bytes) -> None:
    frame = make_frame(POST + head + b"\r\n\r\n" + GET)

    assert frame.take() == POST + head + b"\r\n\r\n"
    assert frame.is_last


@pytest.mark.parametrize("size", [b"zz", b"-1", b"1_0", b"0x1", b"", b"+1"])
def test_after_chunks_that_are_none_nothing_is_a_request(size: bytes) -> None:
    frame = make_frame(CHUNKED + size + b"\r\n{}\r\n" + GET)

    assert frame.take() is not None
    assert frame.is_last
    assert frame.received == b""


def test_a_size_line_without_an_end_is_not_waited_for() -> None:
    frame = make_frame(CHUNKED + b"1" * 2000)

    assert frame.take() is not None
    assert frame.is_last


def test_a_body_that_is_too_large_is_not_waited_for() -> None:
    head = POST + f"Content-Length: {BODY_MAX_BYTES + 1}\r\n\r\n".encode()
    frame = make_frame(head)

    assert frame.take() == head
    assert frame.is_last
    assert not make_frame(POST + f"Content-Length: {BODY_MAX_BYTES}\r\n\r\n".encode()).is_last


def test_a_body_of_too_many_chunks_is_not_waited_for() -> None:
    """Gunicorn's reader copies its rest for each: two megabytes of one-byte chunks held a process for minutes."""
    allowed = CHUNKED + b"1\r\nx\r\n" * CHUNKS_MAX + b"0\r\n\r\n"
    frame = make_frame()
    frame.received += allowed
    assert frame.take() == allowed
    assert not frame.is_last
    frame.received += CHUNKED + b"1\r\nx\r\n" * (CHUNKS_MAX + 1)
    assert frame.take() is not None
    assert frame.is_last


def test_a_chunked_body_that_is_too_large_is_not_waited_for() -> None:
    frame = make_frame(CHUNKED + b"FFFFFFF\r\n")
    assert frame.take() is None
    frame.received += b"x" * CHUNKED_BYTES_MAX

    assert frame.take() is not None
    assert frame.is_last


def test_a_head_without_an_end_is_refused() -> None:
    frame = make_frame(b"GET /a HTTP/1.1\r\nX: " + b"x" * (HEAD_BYTES_MAX // 2))
    assert frame.take() is None
    frame.received += b"x" * HEAD_BYTES_MAX

    with pytest.raises(HeadTooLarge):
        frame.take()


@pytest.mark.parametrize(("expect", "awaits"), [(b"Expect: 100-continue\r\n", True), (b"", False)])
def test_who_waits_to_be_told_to_go_on_is_known(expect: bytes, *, awaits: bool) -> None:
    frame = make_frame(POST + expect + b"Content-Length: 2\r\n\r\n")

    assert frame.take() is None
    assert frame.awaits_continue is awaits
