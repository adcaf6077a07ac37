"""Receivers of every bad kind, over real TLS: each attempt ends in time, within its bounds, and is recorded as what it was."""

from __future__ import annotations

import base64
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from standardwebhooks import Webhook

from tests.support.factories import make_job
from tests.support.hooks import PATH, run_hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.hooks import Hooks
    from tests.support.servers import DatabaseUrls
    from tests.support.spine import Spine
    from tests.support.tls_server import Exchange

    Answer = Callable[[Exchange], None]

ROOT = Path(__file__).parents[2]
SHORT_SECONDS = 0.5


@pytest.fixture
def hooks(spine: Spine, fresh_database_urls: DatabaseUrls, tmp_path: Path) -> Iterator[Hooks]:
    with run_hooks(spine, fresh_database_urls, tmp_path, delivery_seconds=SHORT_SECONDS) as running:
        yield running


def make_event(hooks: Hooks) -> None:
    with hooks.spine.services.database.transaction() as transaction:
        make_job(transaction, hooks.spine.caller)


def read_delivery(hooks: Hooks) -> dict[str, Any]:
    (row,) = hooks.read("SELECT * FROM deliveries")
    return row


def refuse(exchange: Exchange) -> None:
    exchange.respond(500, b"out of order")


def drip_headers(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    exchange.drip(b"x" * 10_000)


def flood(status: int) -> Answer:
    def answer(exchange: Exchange) -> None:
        exchange.send(f"HTTP/1.1 {status} Said\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        exchange.repeat(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")

    return answer


def drip_body(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
    exchange.drip(b"x" * 10_000)


def redirect(exchange: Exchange) -> None:
    exchange.respond(301, headers={"Location": "/elsewhere"})


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (refuse, 500),
        (redirect, 301),
        (lambda exchange: exchange.respond(410), 410),
        (lambda exchange: exchange.respond(199), 199),
        (lambda exchange: exchange.stay_silent(), None),
        (lambda exchange: exchange.send(b"HTTP/1.1 2"), None),
        (drip_headers, None),
        (flood(503), 503),
    ],
    ids=["500", "301", "410", "199", "silence", "cut", "slow drip", "endless 503"],
)
def test_all_but_2xx_is_tried_again_and_nothing_is_followed(
    hooks: Hooks, answer: Answer, status: int | None
) -> None:
    hooks.answer = answer
    make_event(hooks)
    assert hooks.deliver() == 1
    assert read_delivery(hooks)["state"] == "waiting"
    hooks.shift(6)
    assert hooks.deliver() == 1
    first, second = hooks.server.requests
    assert (first.path, second.path) == (PATH, PATH)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]
    for attempt in hooks.read("SELECT * FROM delivery_attempts"):
        assert attempt["status"] == status
        assert (attempt["error"] is None) == (status is not None)
        assert len(attempt["answer"]) <= 512


@pytest.mark.parametrize("answer", [flood(200), drip_body], ids=["endless body", "dripping body"])
def test_a_200_is_a_200_whatever_comes_behind_it(hooks: Hooks, answer: Answer) -> None:
    hooks.answer = answer
    make_event(hooks)
    assert hooks.deliver() == 1
    assert read_delivery(hooks)["state"] == "delivered"
    (attempt,) = hooks.read("SELECT * FROM delivery_attempts")
    assert len(attempt["answer"]) <= 512


def test_the_customers_guide_verifies_what_comes_and_nothing_else(hooks: Hooks) -> None:
    """Both ways of ``docs/webhooks.md``: its code by hand, and the library."""
    guide = (ROOT / "docs/webhooks.md").read_text("utf-8")
    code = guide[guide.index("    import base64") : guide.index("The secret of a webhook is")]
    told: dict[str, Any] = {}
    exec(textwrap.dedent(code), told)  # noqa: S102 - the document's own lines
    make_event(hooks)
    hooks.deliver()
    (request,) = hooks.server.requests
    other = "whsec_" + base64.b64encode(bytes(32)).decode()
    assert told["is_genuine"](hooks.secret, request.headers, request.body)
    assert not told["is_genuine"](other, request.headers, request.body)
    assert not told["is_genuine"](hooks.secret, request.headers, request.body + b" ")
    assert Webhook(hooks.secret).verify(request.body, request.headers) == hooks.received[0]


def test_what_a_receiver_says_is_kept_whatever_bytes_it_is(hooks: Hooks) -> None:
    hooks.answer = lambda exchange: exchange.respond(400, b"\0\xff" + b"x" * 4000)
    make_event(hooks)
    hooks.deliver()
    (attempt,) = hooks.read("SELECT * FROM delivery_attempts")
    assert attempt["answer"] == "\N{REPLACEMENT CHARACTER}" * 2 + "x" * 510
