"""Redirects of the guarded client: each is judged like the first URL."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from anex.outbound import Outbound, OutboundFailed, OutboundPolicy, OutboundRefused
from tests.support.outbound_calls import WAIT_SECONDS, Serve, fetch, serving
from tests.support.tls_server import LOOPBACK, Exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with serving(tmp_path) as serve:
        yield serve


def redirects_to(location: str, status: int = 302) -> Callable[[Exchange], None]:
    def answer(exchange: Exchange) -> None:
        if exchange.request.path == "/end":
            exchange.respond(200, b"end")
        else:
            exchange.respond(status, b"elsewhere", {"Location": location})

    return answer


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed_and_the_final_url_told(status: int, serve: Serve) -> None:
    server = serve(redirects_to("end", status))

    with Outbound(server.policy).request(
        "GET", server.url("/begin"), deadline_seconds=WAIT_SECONDS, redirects_max=1
    ) as answer:
        assert answer.url == server.url("/end")
        assert answer.read(100) == b"end"


def test_without_redirects_a_redirect_is_the_answer(serve: Serve) -> None:
    server = serve(redirects_to("/end"))

    with Outbound(server.policy).request("GET", server.url(), deadline_seconds=WAIT_SECONDS) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, "/end")
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [300, 304, 404])
def test_only_redirects_are_followed(status: int, serve: Serve) -> None:
    server = serve(redirects_to("/end", status))

    with Outbound(server.policy).request(
        "GET", server.url(), deadline_seconds=WAIT_SECONDS, redirects_max=3
    ) as answer:
        assert answer.status == status
    assert len(server.requests) == 1


def test_a_redirect_without_a_location_is_the_answer(serve: Serve) -> None:
    server = serve(lambda exchange: exchange.respond(302, b"where?"))

    assert fetch(Outbound(server.policy), server.url(), redirects_max=3) == b"where?"


def test_redirects_are_counted(serve: Serve) -> None:
    server = serve(redirects_to("/again"))

    with pytest.raises(OutboundFailed, match="redirects more than 3 times"):
        fetch(Outbound(server.policy), server.url(), redirects_max=3)
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    "location",
    [
        "http://localhost/",
        "//good@localhost/",
        "https://localhost:25/",
        "ftp://localhost/",
        "https://[::1",
        "https://[::1]x/",
        "https://127。0。0。1/",
    ],
)
def test_a_redirect_to_a_url_that_is_not_called_is_refused(location: str, serve: Serve) -> None:
    server = serve(redirects_to(location))

    with pytest.raises(OutboundRefused, match="redirects to one that is not allowed"):
        fetch(Outbound(server.policy), server.url(), redirects_max=3)
    assert len(server.requests) == 1


@pytest.mark.parametrize("host", ["10.0.0.1", "0xA9FEA9FE", "[::ffff:169.254.169.254]", "intern.example"])
def test_a_redirect_to_a_private_address_is_not_connected_to(
    host: str, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(redirects_to(f"https://{host}/"), "files.example")
    addresses = {"files.example": LOOPBACK, "intern.example": "10.0.0.1"}
    asked = []

    def resolve(name: str) -> list[str]:
        return [addresses[name]] if name in addresses else [str(socket.getaddrinfo(name, None)[0][4][0])]

    connect = socket.socket.connect

    def note(connection: socket.socket, address: Any) -> None:
        asked.append(address[0])
        connect(connection, address)

    monkeypatch.setattr(socket.socket, "connect", note)
    with pytest.raises(OutboundRefused, match="not on the public internet"):
        fetch(Outbound(server.policy, resolve=resolve), server.url(host="files.example"), redirects_max=3)
    assert asked == [LOOPBACK]


SECRETS = {
    "Authorization": "Bearer x",
    "Cookie": "a=b",
    "X-Api-Key": "x",
    "Range": "bytes=0-",
    "accept": "*/*",
}


def test_another_origin_sees_no_secret_of_the_caller(serve: Serve) -> None:
    second = serve(lambda exchange: exchange.respond(200))
    first = serve(redirects_to(second.url("/end")))
    ca_file = first.ca_file.with_name("both.pem")
    ca_file.write_bytes(first.ca_file.read_bytes() + second.ca_file.read_bytes())
    policy = OutboundPolicy(first.policy.allowed_networks, ca_file)

    fetch(Outbound(policy), first.url(), headers=SECRETS, redirects_max=1)

    assert {name.lower() for name in SECRETS} <= set(first.requests[0].headers)
    kept = {name.lower() for name in SECRETS} & set(second.requests[0].headers)
    assert kept == {"range", "accept"}


def test_the_same_origin_keeps_the_callers_headers(serve: Serve) -> None:
    server = serve(redirects_to("/end"))

    fetch(Outbound(server.policy), server.url(), headers=SECRETS, redirects_max=1)

    assert server.requests[1].headers["authorization"] == "Bearer x"


@pytest.mark.parametrize(("method", "body"), [("POST", None), ("GET", b"x")])
def test_a_request_with_an_effect_is_never_redirected(method: str, body: bytes | None, serve: Serve) -> None:
    server = serve(redirects_to("/end"))

    with (
        pytest.raises(ValueError, match="never followed"),
        Outbound(server.policy).request(
            method, server.url(), body=body, deadline_seconds=WAIT_SECONDS, redirects_max=1
        ),
    ):
        pass
    assert server.requests == []
