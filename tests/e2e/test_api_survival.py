"""What the API survives while requests come in: Postgres or S3 dead or mute, and the death of its own workers.

It answers 503 in the contract's shape while something is away, and goes on by itself afterwards. A submit that answered 200
stands. One that answered 503 or broke may stand or not: the answer to its commit may be what was lost. The planner is held, so
that jobs stay submitted.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
import requests

from tests.support.live_stack import MODEL, LiveStack
from tests.support.spine import chat_rows
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

CATALOG = Path(__file__).parents[1] / "support" / "models.test.toml"
PATIENCE_SECONDS = 40.0
"""Whoever asks gets an answer sooner than this, whatever is away."""
WORKERS = 2
POSTMASTER, S3, PLANNER = "postgres -D", "weed", "--queues plan"
BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request."""

    kind: str
    status: int | str
    retry_after: str | None = None
    body: dict[str, Any] = field(default_factory=dict)


class Trickle:
    """Asks the same few things, one thread each, over and over until the block's end, and keeps every answer."""

    def __init__(self, stack: LiveStack, asked: dict[str, tuple[str, str, Any]]) -> None:
        """Take method, path and body by kind."""
        self.answers: list[Answer] = []
        self._stack = stack
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(kind, *request)) for kind, request in asked.items()
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE_SECONDS)
        assert not any(thread.is_alive() for thread in self._threads)

    def wait_for(self, status: int, *kinds: str) -> None:
        """Wait until each kind, asked from now on, is answered with ``status``."""
        begun = len(self.answers)

        def seen() -> bool:
            return {each.kind for each in self.answers[begun:] if each.status == status} >= set(kinds)

        wait_until(seen, timeout_seconds=2 * PATIENCE_SECONDS, what=f"{kinds} answer {status}")

    def statuses(self, kind: str) -> Counter[int | str]:
        """Return how often each status came."""
        return Counter(each.status for each in self.answers if each.kind == kind)

    def _ask(self, kind: str, method: str, path: str, body: Any) -> None:
        while not self._over.is_set():
            try:
                answer = requests.request(
                    method,
                    self._stack.base + path,
                    json=body,
                    headers=self._stack.headers,
                    timeout=PATIENCE_SECONDS,
                )
            except requests.ReadTimeout:
                self.answers.append(Answer(kind, "hung"))
            except requests.RequestException:  # an answer that is cut off within is no ConnectionError
                self.answers.append(Answer(kind, BROKEN))
            else:
                retry_after = answer.headers.get("Retry-After")
                self.answers.append(Answer(kind, answer.status_code, retry_after, answer.json()))


pytestmark = pytest.mark.outside


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    environment = {"ANEX_API_WORKERS": str(WORKERS), "ANEX_JOBS_AWAITING_APPROVAL_MAX": "1000000"}
    running = LiveStack(tmp_path_factory.mktemp("live"), CATALOG, environment)
    running.start()
    running.become_customer()
    running.signal(PLANNER, signal.SIGSTOP)
    yield running
    running.flush_broker()
    running.signal(PLANNER, signal.SIGCONT)
    running.end()


@pytest.fixture(scope="module")
def asked(stack: LiveStack) -> dict[str, tuple[str, str, Any]]:
    """Return a poll, a submit, and a look at an input that awaits its upload."""
    job_id = stack.submit(chat_rows(5))
    with stack.database() as database:
        job = database.reader().fetch_dict("SELECT input_id FROM jobs WHERE id = %(id)s", {"id": job_id})
    assert job is not None
    awaited = stack.call("POST", "/inputs", {"format": "jsonl"})
    return {
        "poll": ("GET", f"/jobs/{job_id}", None),
        "submit": ("POST", "/jobs", {"input_id": job["input_id"], "model": MODEL}),
        "look": ("GET", f"/inputs/{awaited['id']}", None),
    }


@pytest.fixture
def trickle(stack: LiveStack, asked: dict[str, tuple[str, str, Any]]) -> Iterator[Trickle]:
    """Ask all the time, and judge at the end what holds whatever happened."""
    before = count_jobs(stack)
    with Trickle(stack, asked) as running:
        running.wait_for(200, *asked)
        yield running
        running.wait_for(200, *asked)
    check_refusals(running)
    check_submits(stack, running, count_jobs(stack) - before)


def count_jobs(stack: LiveStack) -> int:
    with stack.database() as database:
        row = database.reader().fetch_dict("SELECT count(*) AS jobs FROM jobs")
    assert row is not None
    return int(row["jobs"])


def check_refusals(trickle: Trickle) -> None:
    """Nothing hung, and whatever was refused was refused as the contract says."""
    refused = [each for each in trickle.answers if each.status not in (200, BROKEN)]
    for each in refused:
        assert each.status == 503, each
        assert each.retry_after is not None, each
        assert int(each.retry_after) > 0, each
        assert each.body["error"] == {"code": "service_unavailable", "message": each.body["detail"]}, each


def check_submits(stack: LiveStack, trickle: Trickle, jobs_made: int) -> None:
    """Each submit that was answered 200 is one job, and there are no more jobs than submits."""
    accepted = [each.body["id"] for each in trickle.answers if (each.kind, each.status) == ("submit", 200)]
    assert len(set(accepted)) == len(accepted)
    with stack.database() as database:
        kept = database.reader().fetch_dict(
            "SELECT count(*) AS jobs FROM jobs WHERE id = ANY(%(ids)s) AND status = 'submitted'",
            {"ids": accepted},
        )
    assert kept == {"jobs": len(accepted)}
    assert len(accepted) <= jobs_made <= trickle.statuses("submit").total()


def read_api(stack: LiveStack) -> dict[int, int]:
    """Return the parent of each process of the API."""
    parents = {}
    for pid in [pid for pid, line in stack.processes().items() if "api.gunicorn_conf" in line]:
        with suppress(FileNotFoundError, ProcessLookupError):  # one that was killed goes while we look
            parents[pid] = int(Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[1])
    return parents


def find_postgres(stack: LiveStack) -> list[int]:
    """Return the postmaster and, after it, the server process of each connection."""
    postmaster = next(pid for pid, line in stack.processes().items() if POSTMASTER in line)
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text("ascii")
    return [postmaster, *map(int, children.split())]


def api_workers(stack: LiveStack) -> set[int]:
    processes = read_api(stack)
    return {pid for pid, parent in processes.items() if parent in processes}


def test_a_postgres_that_is_restarted_at_once_is_waited_for(stack: LiveStack, trickle: Trickle) -> None:
    """Connections that broke while they were idle are replaced; a request in the middle of a transaction is refused."""
    api = read_api(stack)
    stack.kill(POSTMASTER)
    wait_until(lambda: any(POSTMASTER in line for line in stack.processes().values()), what="it is restarted")
    trickle.wait_for(200, "poll", "submit", "look")
    assert read_api(stack) == api
    assert not trickle.statuses("poll")[BROKEN] + trickle.statuses("submit")[BROKEN]


def test_a_dead_postgres_is_503_until_it_is_back(stack: LiveStack, trickle: Trickle) -> None:
    api = read_api(stack)
    assert stack.process is not None
    stack.process.send_signal(signal.SIGSTOP)  # nobody restarts it
    try:
        stack.kill(POSTMASTER)
        trickle.wait_for(503, "poll", "submit", "look")
    finally:
        stack.process.send_signal(signal.SIGCONT)
    trickle.wait_for(200, "poll", "submit", "look")
    assert read_api(stack) == api
    assert not trickle.statuses("poll")[BROKEN] + trickle.statuses("submit")[BROKEN]


def test_a_mute_postgres_is_503_until_it_speaks(stack: LiveStack, trickle: Trickle) -> None:
    """It stands still: its connections stand, it accepts more, and nothing is answered."""
    api = read_api(stack)
    servers = find_postgres(stack)
    for pid in servers:
        os.kill(pid, signal.SIGSTOP)
    try:
        trickle.wait_for(503, "poll", "submit", "look")
    finally:
        for pid in servers:
            os.kill(pid, signal.SIGCONT)
    trickle.wait_for(200, "poll", "submit", "look")
    assert read_api(stack) == api
    assert not trickle.statuses("poll")[BROKEN] + trickle.statuses("submit")[BROKEN]


def test_without_s3_jobs_are_polled_and_what_needs_it_is_503(stack: LiveStack, trickle: Trickle) -> None:
    """S3 stands still, then dies, and comes back."""
    stack.signal(S3, signal.SIGSTOP)
    trickle.wait_for(503, "submit", "look")
    stack.kill(S3)
    trickle.wait_for(200, "poll", "submit", "look")
    assert set(trickle.statuses("poll")) == {200}
    assert set(trickle.statuses("submit")) == {200, 503}


def test_a_dead_worker_takes_only_its_own_requests_along(stack: LiveStack, trickle: Trickle) -> None:
    """One that dies of its own accord, after so many requests, may be replaced at the same time."""
    for _ in range(WORKERS):
        workers = api_workers(stack)
        os.kill(min(workers), signal.SIGKILL)
        wait_until(
            lambda before=workers: api_workers(stack) - before,  # type: ignore[misc]
            what="another worker is there",
        )
        trickle.wait_for(200, "poll", "submit", "look")
    for kind in ("poll", "submit", "look"):
        assert set(trickle.statuses(kind)) <= {200, BROKEN}
        assert trickle.statuses(kind)[BROKEN] <= WORKERS
