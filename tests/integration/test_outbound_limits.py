"""The guarded client against servers that are slow, silent or endless."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from anex.outbound import AnswerTooLarge, Outbound, OutboundFailed, OutboundPolicy, OutboundTimeout
from anex.outbound_connection import HEADER_BYTES_MAX
from tests.support.outbound_calls import PUBLIC, SHORT_SECONDS, WAIT_SECONDS, Serve, fetch, sends, serving
from tests.support.tls_server import Exchange, run_mute_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with serving(tmp_path) as serve:
        yield serve


@pytest.mark.parametrize(
    ("deadline_seconds", "idle_seconds"), [(SHORT_SECONDS, WAIT_SECONDS), (WAIT_SECONDS, SHORT_SECONDS)]
)
class TestSilence:
    def test_before_the_handshake(self, deadline_seconds: float, idle_seconds: float, serve: Serve) -> None:
        server = serve(lambda exchange: exchange.respond(200))
        with run_mute_server() as port, pytest.raises(OutboundTimeout):
            fetch(
                Outbound(server.policy),
                f"https://localhost:{port}/",
                deadline_seconds=deadline_seconds,
                idle_seconds=idle_seconds,
            )

    @pytest.mark.parametrize(
        "begun",
        [
            b"",
            b"HTTP/1.1 200",
            b"HTTP/1.1 200 OK\r\nX: ",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1234",
        ],
    )
    def test_after_it(self, begun: bytes, deadline_seconds: float, idle_seconds: float, serve: Serve) -> None:
        def answer(exchange: Exchange) -> None:
            exchange.send(begun)
            exchange.stay_silent()

        server = serve(answer)
        with pytest.raises(OutboundTimeout):
            fetch(
                Outbound(server.policy),
                server.url(),
                deadline_seconds=deadline_seconds,
                idle_seconds=idle_seconds,
            )


@pytest.mark.parametrize(
    ("at_once", "drop"),
    [
        (b"", b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 10_000),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n", b"x" * 10_000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 2_000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Trailer: x\r\n" * 2_000),
    ],
    ids=["headers", "body", "chunks", "trailers"],
)
def test_a_server_that_drips_is_cut_at_the_deadline(at_once: bytes, drop: bytes, serve: Serve) -> None:
    def answer(exchange: Exchange) -> None:
        exchange.send(at_once)
        exchange.drip(drop)

    server = serve(answer)
    with pytest.raises(OutboundTimeout, match="did not finish"):
        fetch(Outbound(server.policy), server.url(), deadline_seconds=SHORT_SECONDS)


def test_a_server_that_reads_nothing_is_cut_at_the_deadline(serve: Serve) -> None:
    server = serve(Exchange.stay_silent, reads_bodies=False)

    with (
        pytest.raises(OutboundTimeout),
        Outbound(server.policy).request(
            "POST", server.url(), body=bytes(64 << 20), deadline_seconds=SHORT_SECONDS
        ),
    ):
        pass


def test_addresses_that_swallow_the_connection_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(_: socket.socket, __: Any) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(OutboundTimeout):
        fetch(Outbound(OutboundPolicy(), resolve=lambda _: [PUBLIC]), "https://files.example/")


# Size


@pytest.mark.parametrize(
    "forever",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 1_000 + b"\r\n",
        b"x" * 1_000,
    ],
    ids=["interim answers", "header lines", "one line"],
)
def test_headers_without_an_end_are_cut(forever: bytes, serve: Serve) -> None:
    server = serve(lambda exchange: exchange.repeat(forever))

    with pytest.raises(AnswerTooLarge):
        fetch(Outbound(server.policy), server.url())


def test_a_header_block_within_the_bound_is_read(serve: Serve) -> None:
    value = "y" * (HEADER_BYTES_MAX // 2 - 100)
    server = serve(lambda exchange: exchange.respond(200, b"body", {"X-One": value, "X-Two": value}))

    assert fetch(Outbound(server.policy), server.url()) == b"body"


@pytest.mark.parametrize("lines", [101, 5_000])
def test_header_lines_are_counted(lines: int, serve: Serve) -> None:
    server = serve(sends(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * lines + b"\r\n"))

    with pytest.raises(AnswerTooLarge, match="more headers than we take"):
        fetch(Outbound(server.policy), server.url())


@pytest.mark.parametrize(
    "head",
    [b"", b"Content-Length: 1000000000000\r\n", b"Transfer-Encoding: chunked\r\n"],
    ids=["until closed", "with a length", "chunked"],
)
def test_a_body_without_an_end_is_cut_at_the_callers_bound(head: bytes, serve: Serve) -> None:
    piece = b"a" * 1_000
    data = b"3e8\r\n" + piece + b"\r\n" if b"chunked" in head else piece

    def answer(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
        exchange.repeat(data)

    server = serve(answer)
    with pytest.raises(AnswerTooLarge, match="more than the 5000 bytes"):
        fetch(Outbound(server.policy), server.url(), bytes_max=5_000)


@pytest.mark.parametrize(
    "forever",
    [
        b"1;" + b"e" * 1_000,
        b"1\r\na\r\n" * 1_000,
        b"-1\r\n" + b"a" * 1_000,
        b"1\r\na\r\n0\r\n" + b"X: y\r\n" * 1_000,
    ],
    ids=["extension", "tiny chunks", "negative chunk", "trailers"],
)
def test_framing_without_an_end_is_cut(forever: bytes, serve: Serve) -> None:
    def answer(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        exchange.repeat(forever)

    server = serve(answer)
    with pytest.raises(OutboundFailed):
        fetch(Outbound(server.policy), server.url())


def test_a_body_of_the_callers_bound_is_read(serve: Serve) -> None:
    server = serve(lambda exchange: exchange.respond(200, b"12345"))

    assert fetch(Outbound(server.policy), server.url(), bytes_max=5) == b"12345"
    with pytest.raises(AnswerTooLarge):
        fetch(Outbound(server.policy), server.url(), bytes_max=4)
