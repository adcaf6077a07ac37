"""What a running job survives: the death of any part, and an emptied broker. It ends done, each row once, billed once."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anex.ledger.check import check_ledger
from config.stack.layout import DataFolder
from tests.support.live_stack import LiveStack
from tests.support.spine import chat_rows
from tests.support.tls_server import Exchange, TlsServer, run_tls_server
from tests.support.wait import wait_until
from workers.unix_http import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

CATALOG = Path(__file__).parents[1] / "support" / "models.slow.toml"
ROWS = 240


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    """Serve a file of five rows; under ``/slow-once`` its first whole reading never gets to the end."""
    slow: list[str] = []

    def answer(exchange: Exchange) -> None:
        data = b"".join(chat_rows(5))
        if exchange.request.path == "/slow-once" and "range" not in exchange.request.headers and not slow:
            slow.append("once")
            exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data))
            exchange.stay_silent()
        exchange.respond(200, data)

    with run_tls_server(tmp_path_factory.mktemp("source"), answer) as server:
        yield server


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, source: TlsServer) -> Iterator[LiveStack]:
    reach = {"ANEX_OUTBOUND_ALLOWED_NETWORKS": "127.0.0.0/8", "ANEX_OUTBOUND_CA_FILE": str(source.ca_file)}
    running = LiveStack(tmp_path_factory.mktemp("live"), CATALOG, reach)
    running.start()
    running.become_customer()
    yield running
    running.end()


def start_job(stack: LiveStack, rows: int = ROWS) -> str:
    job_id = stack.submit(chat_rows(rows), max_output_tokens=32)
    stack.approve(job_id)
    stack.wait_until_rows_run(job_id)
    return job_id


def check_done(stack: LiveStack, job_id: str, rows: int = ROWS) -> None:
    job = stack.wait_for(job_id, "done")
    lines = stack.lines(job_id)
    assert [line["custom_id"] for line in lines] == [f"row-{number}" for number in range(1, rows + 1)]
    assert (job["error_rows"], job["pending_rows"]) == (0, 0)
    assert 1 <= job["cost_cents"] <= job["est_cost_cents"]
    with stack.database() as database, database.transaction() as transaction:
        assert check_ledger(transaction) == []
        charges = transaction.fetch_dicts(
            "SELECT amount_nanos FROM transfers WHERE job_id = %(id)s AND kind = 'charge'", {"id": job_id}
        )
    assert [charge["amount_nanos"] for charge in charges] == [job["cost_cents"] * 10_000_000]


def test_a_job_runs_through_the_whole_stack(stack: LiveStack) -> None:
    job_id = start_job(stack)
    check_done(stack, job_id)


@pytest.mark.parametrize("victim", ["workers.run", "workers.engines.fake", "workers.main", "valkey-server"])
def test_a_job_survives_the_death_of(stack: LiveStack, victim: str) -> None:
    job_id = start_job(stack)
    stack.kill(victim)
    check_done(stack, job_id)


def test_a_job_survives_an_emptied_broker(stack: LiveStack) -> None:
    job_id = start_job(stack)
    stack.flush_broker()
    waiting = stack.submit(chat_rows(5), max_output_tokens=16)
    stack.flush_broker()
    check_done(stack, job_id)
    stack.approve(waiting)
    stack.flush_broker()
    check_done(stack, waiting, rows=5)


def test_a_job_survives_an_engine_that_hangs_under_its_sample(stack: LiveStack) -> None:
    check_done(stack, start_job(stack, rows=20), rows=20)  # an engine is there
    (socket_path,) = DataFolder(stack.folder).run.glob("fake-*.sock")
    status, content = ask(socket_path, "/fake/switches", b'{"hang": true}', 5.0)
    assert status == 200, content
    job_id = stack.submit(chat_rows(5))
    stack.approve(job_id)
    check_done(stack, job_id, rows=5)


def test_a_mute_broker_delays_nothing_and_loses_nothing(stack: LiveStack) -> None:
    """Valkey stands still: it accepts connections and never answers. Polls and submits don't wait for it."""
    finished = start_job(stack, rows=5)
    check_done(stack, finished, rows=5)
    stack.signal("valkey-server", signal.SIGSTOP)
    try:
        for _ in range(3):
            assert stack.call("GET", f"/jobs/{finished}", patience_seconds=1.0)["status"] == "done"
        job_id = stack.submit(chat_rows(5), max_output_tokens=16)
        assert stack.call("GET", f"/jobs/{job_id}", patience_seconds=1.0)["status"] == "submitted"
    finally:
        stack.signal("valkey-server", signal.SIGCONT)
    stack.approve(job_id)
    check_done(stack, job_id, rows=5)


def test_a_copy_survives_its_workers_death(stack: LiveStack, source: TlsServer) -> None:
    """The worker dies while the source hands out the file byte by byte; another one copies it."""
    created = stack.call("POST", "/inputs", {"source_url": source.url("/slow-once")})
    wait_until(
        lambda: any(each.path == "/slow-once" for each in source.requests[1:]), what="it is being copied"
    )
    stack.kill("--queues ingest")

    def look() -> bool:
        found = stack.call("GET", f"/inputs/{created['id']}")
        assert found["status"] in ("pending", "copying", "ready"), found
        return bool(found["status"] == "ready")

    wait_until(look, timeout_seconds=60, what="the copy is ready")
    job = stack.call("POST", "/jobs", {"input_id": created["id"], "model": "fake-chat"})
    stack.approve(job["id"])
    check_done(stack, job["id"], rows=5)


def test_no_secret_stands_in_a_command_line(stack: LiveStack) -> None:
    settings = stack.settings
    urls = (
        settings.database_owner_url,
        settings.database_api_url,
        settings.database_work_url,
        settings.redis_url,
    )
    secrets = [url.partition("://")[2].rpartition("@")[0].rpartition(":")[2] for url in urls if url]
    secrets += [settings.s3.access_key or "", settings.s3.secret_key or "", *settings.secret_keys]
    assert all(len(secret) >= 16 for secret in secrets)
    lines = stack.processes().values()
    assert not [line for line in lines if any(secret in line for secret in secrets)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stack_started_again_goes_on_with_the_unfinished_job(
    stack: LiveStack, number: signal.Signals
) -> None:
    job_id = start_job(stack)
    stack.stop(number)
    stack.start()
    check_done(stack, job_id)
