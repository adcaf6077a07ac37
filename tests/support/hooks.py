"""A webhook receiver on loopback, verified by hand: nothing here uses the library that signs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import psycopg

from anex.outbound import Outbound
from anex.webhooks.deliver import deliver_next
from anex.webhooks.endpoints import set_endpoint
from tests.support.tls_server import run_tls_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from tests.support.servers import DatabaseUrls
    from tests.support.spine import Spine
    from tests.support.tls_server import Exchange, TlsRequest, TlsServer

PATH = "/hooks"


def accept(exchange: Exchange) -> None:
    """Take the event."""
    exchange.respond(200, b"thanks")


def check_signature(request: TlsRequest, *secrets: str) -> None:
    """Fail unless the request carries a signature by each of ``secrets`` in turn, over the very bytes that came."""
    signed = (
        f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    )
    expected = []
    for secret in secrets:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        assert len(key) == 32
        expected.append("v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode())
    assert request.headers["webhook-signature"].split(" ") == expected


@dataclass
class Hooks:
    """An organization's endpoint at a receiver whose answer may be changed, and hands that deliver and move time."""

    spine: Spine
    urls: DatabaseUrls
    server: TlsServer
    answer: Callable[[Exchange], None] = accept
    secret: str = ""
    ahead_seconds: float = field(default=0.0)

    def deliver(self) -> int:
        """Deliver what is due, first attempts first, until nothing is; return how many attempts that took."""
        attempts = 0
        for again in (False, True):
            while deliver_next(self.spine.services, again=again):
                attempts += 1
        return attempts

    def shift(self, seconds: float) -> None:
        """Move the database's time on."""
        self.ahead_seconds += seconds
        with psycopg.connect(self.urls.owner, autocommit=True) as connection:
            connection.execute("DELETE FROM clock_shift")
            connection.execute(
                "INSERT INTO clock_shift (shift) VALUES (%s * interval '1 second')", (self.ahead_seconds,)
            )

    def read(self, statement: str, **values: object) -> list[dict[str, Any]]:
        """Return rows as planners and workers see them."""
        with self.spine.services.database.transaction() as transaction:
            return transaction.fetch_dicts(statement, values)

    def now(self) -> datetime:
        """Return the database's time."""
        found: datetime = self.read("SELECT anex_now() AS now")[0]["now"]
        return found

    @property
    def received(self) -> list[dict[str, Any]]:
        """The envelopes that came, in order."""
        return self.received_at(PATH)

    def received_at(self, path: str) -> list[dict[str, Any]]:
        """Return the envelopes that came at a path, in order."""
        return [json.loads(request.body) for request in self.server.requests if request.path == path]


@contextmanager
def run_hooks(spine: Spine, urls: DatabaseUrls, folder: Path, **timings: Any) -> Iterator[Hooks]:
    """Run a receiver, and make it the endpoint of the spine's organization."""
    with run_tls_server(folder, lambda exchange: hooks.answer(exchange)) as server:  # noqa: PLW0108 - it may be changed
        hooks = Hooks(spine, urls, server)
        changed: dict[str, Any] = {
            "outbound": Outbound(server.policy),
            "timings": replace(spine.services.timings, **timings),
        }
        spine.services = replace(spine.services, **changed)
        spine.api = replace(spine.api, **changed)
        with spine.services.database.transaction() as transaction:
            _, secret = set_endpoint(
                transaction, spine.services.sealer, spine.caller.org_id, server.url(PATH)
            )
        assert secret is not None
        hooks.secret = secret
        yield hooks
