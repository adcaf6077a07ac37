"""The guarded HTTPS client against real TLS servers: where it connects, what it sends, and whom it trusts."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from anex.outbound import Outbound, OutboundFailed, OutboundPolicy, OutboundRefused, OutboundTimeout
from tests.support.outbound_calls import PUBLIC, WAIT_SECONDS, Serve, fetch, sends, serving
from tests.support.tls_server import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOOPBACK_BY_NUMBER = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "0",
    "0.0.0.0",  # noqa: S104 - a URL's host
    "0x0",
    "2130706433",
    "0x7f000001",
    "0X7F000001",
    "0x7f.1",
    "0x7f.0.0.1",
    "017700000001",
    "0177.1",
    "0177.0.0.01",
    "127.0.0.0x1",
    "%31%32%37.0.0.1",
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
]

OTHER_BY_NUMBER = [
    "169.254.169.254",
    "0xA9FEA9FE",
    "0xa9.0xfe.0xa9.0xfe",
    "0251.0376.0251.0376",
    "2852039166",
    "169.254.43518",
    "169.16689662",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::a9fe:a9fe]",
    "[2002:a9fe:a9fe::]",
    "[2001:0:a9fe:a9fe::]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[fe80::1%25lo]",
    "[fec0::1]",
    "[fc00::1]",
    "[ff02::1]",
    "10.0.0.1",
    "10.1",
    "012.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "192.168.257",
    "0xc0a80001",
    "100.64.0.1",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "198.18.0.1",
    "224.0.0.1",
    "255.255.255.255",
]

MALFORMED = [
    "１２７.0.0.1",  # noqa: RUF001 - full-width digits
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "good@169.254.169.254",
    "good:word@127.0.0.1",
    "[::1%25lo]",
    "127.0.0.1%00.example",
    "127.0.0.1%2f.example",
    "[127.0.0.1]",
]

NAMES_OF_THIS_MACHINE = [
    "localhost",
    "LOCALHOST",
    "localhost.",
    "ｌocalhost",  # noqa: RUF001 - a full-width letter
    "127.0.0.1.",
    "localhost.localdomain",
]


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record each address that a socket is asked to connect to, and connect nowhere."""
    asked: list[Any] = []

    def connect(_: socket.socket, address: Any) -> None:
        asked.append(address)
        raise ConnectionRefusedError("no connections here")

    monkeypatch.setattr(socket.socket, "connect", connect)
    return asked


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with serving(tmp_path) as serve:
        yield serve


# Where it connects


@pytest.mark.parametrize("host", [*LOOPBACK_BY_NUMBER, *OTHER_BY_NUMBER, *MALFORMED])
def test_no_spelling_of_a_private_address_is_connected_to(host: str, connected: list[Any]) -> None:
    outbound = Outbound(OutboundPolicy())
    url = f"https://{host}:8443/"

    with pytest.raises(OutboundRefused):
        outbound.check(url)
    with pytest.raises(OutboundRefused):
        fetch(outbound, url)
    assert connected == []


@pytest.mark.parametrize("host", NAMES_OF_THIS_MACHINE)
def test_no_name_of_this_machine_is_connected_to(host: str, connected: list[Any]) -> None:
    # Whether a system knows such a name differs: some fail as names that don't resolve. None is connected to.
    with pytest.raises((OutboundRefused, OutboundFailed)):
        fetch(Outbound(OutboundPolicy()), f"https://{host}:8443/", deadline_seconds=5)
    assert connected == []


def test_a_name_with_one_public_and_one_private_answer_is_not_connected_to(connected: list[Any]) -> None:
    outbound = Outbound(OutboundPolicy(), resolve=lambda _: [PUBLIC, "10.0.0.1"])

    with pytest.raises(OutboundRefused):
        fetch(outbound, "https://files.example/")
    assert connected == []


def test_a_name_that_turns_private_after_the_check_is_not_connected_to(connected: list[Any]) -> None:
    answers = iter([[PUBLIC], ["127.0.0.1"]])
    outbound = Outbound(OutboundPolicy(), resolve=lambda _: next(answers))

    outbound.check("https://files.example/")
    with pytest.raises(OutboundRefused):
        fetch(outbound, "https://files.example/")
    assert connected == []


def test_the_addresses_that_were_judged_are_connected_to_and_no_later_answer(connected: list[Any]) -> None:
    answers = iter([["2606:4700::1111", PUBLIC], ["127.0.0.1"]])
    outbound = Outbound(OutboundPolicy(), resolve=lambda _: next(answers))

    with pytest.raises(OutboundFailed, match="takes no connection on port 8443"):
        fetch(outbound, "https://files.example:8443/")
    assert [address[:2] for address in connected] == [("2606:4700::1111", 8443), (PUBLIC, 8443)]
    assert next(answers) == ["127.0.0.1"]


def test_the_next_address_is_tried_where_one_takes_no_connection(serve: Serve) -> None:
    server = serve(lambda exchange: exchange.respond(200, b"here"), "files.example")
    outbound = Outbound(server.policy, resolve=lambda _: ["127.0.0.2", LOOPBACK])

    assert fetch(outbound, server.url(host="files.example")) == b"here"


def test_a_name_that_does_not_resolve_fails(connected: list[Any]) -> None:
    def resolve(_: str) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(OutboundFailed, match="does not resolve"):
        fetch(Outbound(OutboundPolicy(), resolve=resolve), "https://files.example/")
    assert connected == []


def test_proxies_of_the_environment_are_not_used(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server = serve(lambda exchange: exchange.respond(200, b"direct"))

    assert fetch(Outbound(server.policy), server.url()) == b"direct"


def test_a_deadline_in_the_past_connects_nowhere(connected: list[Any]) -> None:
    with pytest.raises(OutboundTimeout):
        fetch(
            Outbound(OutboundPolicy(), resolve=lambda _: [PUBLIC]),
            "https://files.example/",
            deadline_seconds=0,
        )
    assert connected == []


# What is sent


def test_host_sni_and_headers_are_those_of_the_name(serve: Serve) -> None:
    server = serve(lambda exchange: exchange.respond(200), "files.example")
    outbound = Outbound(server.policy, resolve=server.resolve)

    fetch(
        outbound, server.url("/a?b=1#c", "Files.Example."), headers={"accept-encoding": "gzip", "X-One": "1"}
    )

    (request,) = server.requests
    assert (request.method, request.path) == ("GET", "/a?b=1")
    assert server.server_names == ["files.example"]
    assert request.headers["host"] == f"files.example:{server.port}"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["user-agent"].startswith("anex/")
    assert request.headers["x-one"] == "1"


def test_an_internationalized_name_is_sent_in_ascii(serve: Serve) -> None:
    server = serve(lambda exchange: exchange.respond(200), "xn--bcher-kva.example")

    fetch(Outbound(server.policy, resolve=server.resolve), server.url(host="bücher.example"))

    assert server.server_names == ["xn--bcher-kva.example"]


def test_a_body_is_posted_with_its_length(serve: Serve) -> None:
    server = serve(lambda exchange: exchange.respond(202, b"thanks", {"X-Seen": exchange.request.method}))

    with Outbound(server.policy).request(
        "POST",
        server.url("/hook"),
        headers={"User-Agent": "hooks"},
        body=b"{}",
        deadline_seconds=WAIT_SECONDS,
    ) as answer:
        assert (answer.status, answer.headers["x-SEEN"]) == (202, "POST")
        assert answer.read(6) == b"thanks"

    (request,) = server.requests
    assert request.body == b"{}"
    assert request.headers["content-length"] == "2"
    assert request.headers["user-agent"] == "hooks"


def test_a_head_has_no_body(serve: Serve) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    server = serve(sends(head))

    with Outbound(server.policy).request("HEAD", server.url(), deadline_seconds=WAIT_SECONDS) as answer:
        assert answer.headers["Content-Length"] == "1000"
        assert answer.read(0) == b""


# Certificates


def test_a_certificate_for_another_name_is_refused(serve: Serve) -> None:
    server = serve(lambda exchange: exchange.respond(200))

    with pytest.raises(OutboundFailed, match=r"certificate of other\.example"):
        fetch(Outbound(server.policy, resolve=server.resolve), server.url(host="other.example"))
    assert server.requests == []


def test_a_certificate_of_an_unknown_authority_is_refused(serve: Serve) -> None:
    server = serve(lambda exchange: exchange.respond(200))

    with pytest.raises(OutboundFailed, match="certificate of localhost is not accepted"):
        fetch(Outbound(OutboundPolicy(server.policy.allowed_networks)), server.url())
    assert server.requests == []


def test_an_address_needs_a_certificate_too(serve: Serve) -> None:
    server = serve(lambda exchange: exchange.respond(200, b"here"), LOOPBACK)

    assert fetch(Outbound(server.policy), server.url(host=LOOPBACK)) == b"here"
    with pytest.raises(OutboundFailed, match=r"certificate of 127\.1"):
        fetch(Outbound(server.policy), server.url(host="127.1"))
