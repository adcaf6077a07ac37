"""Bodies through the guarded client: whole and unchanged, or a failure."""

from __future__ import annotations

import gzip
import threading
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from anex.outbound import PIECE_BYTES, Outbound, OutboundFailed
from tests.support.outbound_calls import SHORT_SECONDS, WAIT_SECONDS, Serve, fetch, sends, serving
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.tls_server import Exchange

PATTERN = bytes(range(256)) * 16 * 1024  # 4 MiB
CHUNK_BYTES = 70_001


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with serving(tmp_path) as serve:
        yield serve


def send_chunked(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n")
    for at in range(0, len(PATTERN), CHUNK_BYTES):
        piece = PATTERN[at : at + CHUNK_BYTES]
        exchange.send(b"%x;note=1\r\n%b\r\n" % (len(piece), piece))
    exchange.send(b"0\r\nX-Trailer: x\r\n\r\n")


def send_until_closed(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\n\r\n" + PATTERN)
    exchange.say_goodbye()


@pytest.mark.parametrize(
    "answer", [lambda exchange: exchange.respond(200, PATTERN), send_chunked, send_until_closed]
)
@pytest.mark.parametrize("block_bytes", [1 << 20, 300_007])
def test_a_body_arrives_whole_in_even_blocks(
    answer: Callable[[Exchange], None], block_bytes: int, serve: Serve
) -> None:
    server = serve(answer)

    with Outbound(server.policy).request("GET", server.url(), deadline_seconds=WAIT_SECONDS) as got:
        blocks = list(got.iterate(block_bytes))

    assert b"".join(blocks) == PATTERN
    assert {len(block) for block in blocks[:-1]} == {block_bytes}


def test_memory_is_a_few_blocks_however_long_the_body(serve: Serve) -> None:
    def answer(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (8 * len(PATTERN)))
        for _ in range(8):
            exchange.send(PATTERN)

    server = serve(answer)
    outbound, block_bytes, total = Outbound(server.policy), 1 << 18, 0
    tracemalloc.start()
    try:
        with outbound.request("GET", server.url(), deadline_seconds=WAIT_SECONDS) as got:
            for block in got.iterate(block_bytes):
                total += len(block)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert total == 8 * len(PATTERN)
    assert peak_bytes < 4 * block_bytes


def test_a_coded_body_is_left_as_it_is(serve: Serve) -> None:
    coded = gzip.compress(b"text")
    server = serve(lambda exchange: exchange.respond(200, coded, {"Content-Encoding": "gzip"}))

    with Outbound(server.policy).request("GET", server.url(), deadline_seconds=WAIT_SECONDS) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.read(1_000) == coded


@pytest.mark.parametrize("says_goodbye", [True, False])
@pytest.mark.parametrize(
    "cut",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nX: y\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n123456789",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\n12345",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n-5\r\n12345\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n12345\r\n0\r\n\r\n",
    ],
)
def test_an_answer_that_is_cut_fails(cut: bytes, says_goodbye: bool, serve: Serve) -> None:
    def answer(exchange: Exchange) -> None:
        exchange.send(cut)
        if says_goodbye:
            exchange.say_goodbye()

    server = serve(answer)
    with pytest.raises(OutboundFailed, match="complete"):
        fetch(Outbound(server.policy), server.url())


def collect(outbound: Outbound, url: str, got: bytearray) -> None:
    with outbound.request("GET", url, deadline_seconds=WAIT_SECONDS, idle_seconds=SHORT_SECONDS) as answer:
        for block in answer.iterate(1 << 20):
            got += block


@pytest.mark.parametrize("came_bytes", [1 << 20, (1 << 20) + 100_000, 2_500_000])
@pytest.mark.parametrize("ends_by", ["cut", "silence"])
def test_what_came_before_a_failure_is_handed_over(came_bytes: int, ends_by: str, serve: Serve) -> None:
    def answer(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PATTERN))
        exchange.send(PATTERN[:came_bytes])
        if ends_by == "silence":
            exchange.stay_silent()

    server, got = serve(answer), bytearray()
    with pytest.raises(OutboundFailed):
        collect(Outbound(server.policy), server.url(), got)

    assert came_bytes - PIECE_BYTES <= len(got) <= came_bytes
    assert PATTERN.startswith(got)


def test_a_body_that_only_the_end_of_the_connection_ends_must_end_in_order(serve: Serve) -> None:
    server = serve(sends(b"HTTP/1.1 200 OK\r\n\r\nhalf of i"))

    with pytest.raises(OutboundFailed, match="complete"):
        fetch(Outbound(server.policy), server.url())


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: -5\r\n",
        b"Content-Length: 1_0\r\n",
        b"Content-Length: ten\r\n",
        b"Content-Length:\r\n",
        b"Content-Length: 5, 6\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: identity\r\n",
    ],
)
def test_an_answer_whose_end_is_unclear_fails(head: bytes, serve: Serve) -> None:
    def answer(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n12345")
        exchange.say_goodbye()

    server = serve(answer)
    with pytest.raises(OutboundFailed):
        fetch(Outbound(server.policy), server.url())


def test_a_line_that_is_no_header_fails_and_logs_no_url(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(sends(b"HTTP/1.1 200 OK\r\nX: y\r\nno header\r\nContent-Length: 5\r\n\r\n12345"))

    with pytest.raises(OutboundFailed, match="complete"):
        fetch(Outbound(server.policy), server.url("/?signature=x"))
    assert "signature" not in caplog.text


def test_something_else_than_http_fails(serve: Serve) -> None:
    server = serve(sends(b"220 mail.example ESMTP\r\n"))

    with pytest.raises(OutboundFailed, match="complete answer over HTTPS"):
        fetch(Outbound(server.policy), server.url())


def test_the_callers_own_errors_stay_what_they_are(serve: Serve) -> None:
    server = serve(lambda exchange: exchange.respond(200, b"body"))

    with (
        pytest.raises(TimeoutError, match="the disk"),
        Outbound(server.policy).request("GET", server.url(), deadline_seconds=WAIT_SECONDS),
    ):
        raise TimeoutError("the disk")


def test_leaving_early_ends_the_connection(serve: Serve) -> None:
    ended = threading.Event()

    def answer(exchange: Exchange) -> None:
        try:
            exchange.send(b"HTTP/1.1 200 OK\r\n\r\n")
            exchange.repeat(PATTERN)
        finally:
            ended.set()

    server = serve(answer)
    with Outbound(server.policy).request("GET", server.url(), deadline_seconds=WAIT_SECONDS) as got:
        next(got.iterate(10))

    wait_until(ended.is_set, what="the server sees that the client left")
