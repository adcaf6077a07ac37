"""Deliver webhooks to a TLS receiver, against POSTs of the same body over the same number of connections at once.

The deliveries are the service's own, in its worker process, from rows that are due to rows that say how they went; the reference
signs and sends through the same guarded client and keeps nothing. The receiver is a process of its own, on loopback, and its thread
a connection is what both sides wait for. All events go to one host, so the bound on a host's deliveries is put at the number of the
worker's threads. ``EVENTS`` turns the size down.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from anex.clock import SystemClock
from anex.ids import new_id
from anex.orgs.organizations import create_organization
from anex.outbound import Outbound
from anex.sealing import Sealer, new_signing_secret
from anex.webhooks.endpoints import send_test, set_endpoint
from anex.webhooks.send import send
from anex.webhooks.sign import sign
from bench.support.rounds import print_figures, say, take_turns, time_seconds
from tasks.dispatch import CeleryDispatcher
from tests.support.live_stack import ROOT, LiveStack
from tests.support.tls_server import Exchange, TlsServer, run_tls_server

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from anex.db import Database

FULL_EVENTS = 2000
EVENTS = int(os.environ.get("EVENTS", str(FULL_EVENTS)))
THREADS = 16
DEADLINE_SECONDS = 15.0
POLL_SECONDS = 0.05
BODY = '{"type":"test","timestamp":"2026-12-01T12:00:00.000+00:00","id":"%s","data":{"job_id":null}}'
CATALOG = ROOT / "tests" / "support" / "models.test.toml"
CLOCK = SystemClock()


def main() -> None:
    """Run the benchmark."""
    with tempfile.TemporaryDirectory(prefix="anex-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        receiver = context.Process(target=receive, args=(folder, theirs))
        receiver.start()
        try:
            measure(folder, TlsServer(*ours.recv()))
        finally:
            ours.send(None)
            receiver.join()


def receive(folder: Path, control: Connection) -> None:
    """Take every event, in a process of its own, until told to stop."""

    def accept(exchange: Exchange) -> None:
        exchange.respond(200)

    with run_tls_server(folder, accept) as server:
        control.send((server.port, server.ca_file))
        control.recv()


def measure(folder: Path, server: TlsServer) -> None:
    """Take turns on a stack of its own."""
    extra = {
        "ANEX_OUTBOUND_ALLOWED_NETWORKS": "127.0.0.0/8",
        "ANEX_OUTBOUND_CA_FILE": str(server.ca_file),
        "ANEX_HOST_DELIVERIES_MAX": str(THREADS),
    }
    (folder / "data").mkdir()
    stack = LiveStack(folder / "data", CATALOG, environment=extra)
    with stack.running(), stack.database() as database:
        dispatcher = CeleryDispatcher(stack.settings.require("redis_url"))
        org_id = make_endpoint(database, Sealer(stack.settings.secret_keys), server.url("/hooks"))
        delivering, sending = take_turns(
            lambda: deliver(database, dispatcher, org_id),
            lambda: time_seconds(lambda: send_bare(server)),
        )
        tries = count(database, "delivery_attempts")
        events = count(database, "deliveries")
        dispatcher.close()
    ours, bare = EVENTS / delivering, EVENTS / sending
    say(
        f"{ours:.0f} deliveries a second, {bare:.0f} bare POSTs; {tries} attempts for {events} events, all delivered."
    )
    print_figures(
        per_s=round(ours, 1),
        x_bare=round(ours / bare, 3),
        attempts_per_event=round(tries / events, 3),
        input=hashlib.sha256(f"{EVENTS} {BODY}".encode()).hexdigest()[:16],
        settings={"events": EVENTS, "threads": THREADS},
        quick=EVENTS < FULL_EVENTS,
    )


def make_endpoint(database: Database, sealer: Sealer, url: str) -> str:
    """Make an organization with an endpoint; return its id."""
    with database.transaction() as transaction:
        org_id = create_organization(transaction, "bench", CLOCK.now()).id
        set_endpoint(transaction, sealer, org_id, url)
    return org_id


def deliver(database: Database, dispatcher: CeleryDispatcher, org_id: str) -> float:
    """Make events, then take the time from their commit until the worker has recorded the last."""
    with database.transaction() as transaction:
        for _ in range(EVENTS):
            send_test(transaction, org_id, "world", CLOCK.now())

    def run() -> None:
        for _ in range(THREADS):
            dispatcher.ring_deliveries(again=False)
        while count(database, "deliveries WHERE state = 'waiting'"):
            time.sleep(POLL_SECONDS)

    return time_seconds(run)


def send_bare(server: TlsServer) -> None:
    """Sign and send as many bodies, over as many threads, and look at the answers' statuses only."""
    outbound, secret = Outbound(server.policy), new_signing_secret()

    def post(_: int) -> bool:
        event_id = new_id("evt", CLOCK.now())
        body = BODY % event_id
        headers = sign([secret], event_id, CLOCK.now(), body)
        return send(outbound, server.url("/hooks"), headers, body.encode(), DEADLINE_SECONDS).delivered

    with ThreadPoolExecutor(THREADS) as threads:
        if not all(threads.map(post, range(EVENTS))):
            raise RuntimeError("the receiver did not take every event")


def count(database: Database, rows: str) -> int:
    """Return how many rows there are."""
    with database.transaction() as transaction:
        row = transaction.fetch_dict(f"SELECT count(*) AS rows FROM {rows}")  # noqa: S608 - constants of this file
    return 0 if row is None else int(row["rows"])


if __name__ == "__main__":
    main()
