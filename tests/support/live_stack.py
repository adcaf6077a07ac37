"""A whole running stack in processes of its own, for tests that kill parts of it: embedded servers, API, workers, fake engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis
import requests

from anex.clock import SystemClock
from anex.db import Database
from anex.ledger.grants import grant_credits
from anex.money import cents_to_nanos
from anex.orgs.keys import create_key
from anex.orgs.organizations import create_organization, set_organization
from config.settings import load_settings
from config.stack.proc import find_members, unit_mark
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from config.settings import Settings

ROOT = Path(__file__).parents[2]
MODEL = "fake-chat"
TERMINAL = ("done", "failed", "cancelled")
START_SECONDS = 90.0
JOB_SECONDS = 180.0

_RUN = """
import os, sys
from config.stack.up import run_stack
sys.exit(run_stack(dict(os.environ), out=sys.stdout, regions=sys.argv[1]))
"""

_SHORT = {
    "ANEX_LEASE_SECONDS": "4",
    "ANEX_HEARTBEAT_SECONDS": "1",
    "ANEX_SWEEP_SECONDS": "1",
    "ANEX_RING_BACKOFF_SECONDS": "1",
    "ANEX_RING_BACKOFF_MAX_SECONDS": "2",
    "ANEX_DRAIN_SECONDS": "2",
    "ANEX_ENGINE_IDLE_SECONDS": "0",
    "ANEX_ALLOW_FAKE_ENGINE": "1",
    "ANEX_API_WORKERS": "1",
    "ANEX_RATE_LIMIT": "off",  # tests poll as fast as they can
}


@dataclass(slots=True)
class LiveStack:
    """A stack that can be started, stopped, killed and started again on the same data."""

    folder: Path
    catalog: Path
    environment: dict[str, str] = field(default_factory=dict)
    """Settings beside the short times that every live stack has."""
    regions: str = ""
    process: subprocess.Popen[bytes] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    origin: str | None = None

    def speak_to(self, region: str) -> None:
        """Send what follows to this region's API."""
        self.origin = self.settings.origins[region]

    @property
    def settings(self) -> Settings:
        """The running stack's settings, from its own file."""
        return load_settings({"ANEX_DATA_DIR": str(self.folder)})

    @property
    def base(self) -> str:
        """The API's address; of several regions' the one that is spoken to, or the first."""
        return f"{self.origin or f'http://127.0.0.1:{self.settings.api_port}'}/batch/v1"

    def start(self) -> None:
        """Start and wait until the API answers."""
        engine_python = os.environ.get("ANEX_ENGINE_PYTHON")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ANEX_")},
            **_SHORT,
            **self.environment,
            "ANEX_DATA_DIR": str(self.folder),
            "ANEX_CATALOG": str(self.catalog),
            **({"ANEX_ENGINE_PYTHON": engine_python} if engine_python else {}),
            "PYTHONPATH": str(ROOT),
        }
        with (self.folder / "up.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _RUN, self.regions], cwd=ROOT, env=environment, stdout=log, stderr=log
            )
        wait_until(self._is_up, timeout_seconds=START_SECONDS, what=f"the stack is up ({self.folder}/up.log)")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start for the block; nothing is left afterwards."""
        self.start()
        try:
            yield
        finally:
            self.end()

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal to the supervisor, wait for its end and for that of every process; return its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(60)
        wait_until(lambda: not self.processes(), what="no process of the stack is left")
        return code

    def end(self) -> None:
        """Kill it when its tests are over: an orderly stop, which a test of its own looks at, takes many seconds."""
        self.stop(signal.SIGKILL)

    def processes(self) -> dict[int, str]:
        """Return the stack's processes beside the supervisor: command line by process id."""
        found: dict[int, str] = {}
        for pid in find_members(unit_mark(self.folder)):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if line:
                found[pid] = line.replace(b"\0", b" ").decode()
        return found

    def kill(self, word: str) -> None:
        """SIGKILL every process whose command line holds ``word``; there must be one."""
        self.signal(word, signal.SIGKILL)

    def signal(self, word: str, number: int) -> None:
        """Send a signal to every process whose command line holds ``word``; there must be one."""
        victims = [pid for pid, line in self.processes().items() if word in line]
        assert victims, f"no process of the stack is a {word}"
        for pid in victims:
            os.kill(pid, number)

    def flush_broker(self) -> None:
        """Empty Valkey."""
        with redis.Redis.from_url(self.settings.require("redis_url")) as client:
            client.flushall()

    @contextmanager
    def database(self) -> Iterator[Database]:
        """Connect to the database as planners and workers do."""
        database = Database(self.settings.require("database_work_url"), max_connections=2).open()
        try:
            yield database
        finally:
            database.close()

    def become_customer(self, *, eu_routing: bool = False) -> None:
        """Make a funded organization and use its key."""
        now = SystemClock().now()
        with self.database() as database, database.transaction() as transaction:
            org = create_organization(transaction, "live", now)
            set_organization(transaction, org.id, {"eu_routing": eu_routing})
            grant_credits(
                transaction, org_id=org.id, amount_nanos=cents_to_nanos(10_000), reason="test", now=now
            )
            _, secret = create_key(transaction, org.id, "live", now)
        self.headers = {"Authorization": f"Bearer {secret}"}

    def call(
        self, method: str, path: str, body: Any = None, *, patience_seconds: float = 20.0
    ) -> dict[str, Any]:
        """Call the API; fail unless it answers 2xx within ``patience_seconds``."""
        answer = requests.request(
            method, self.base + path, json=body, headers=self.headers, timeout=patience_seconds
        )
        assert answer.ok, answer.text
        result: dict[str, Any] = answer.json()
        return result

    def submit(self, rows: Sequence[bytes], **settings: Any) -> str:
        """Upload, submit; return the job's id."""
        upload = self.call("POST", "/inputs", {"format": "jsonl"})
        sent = requests.post(
            upload["upload_url"], data=upload["fields"], files={"file": b"".join(rows)}, timeout=60
        )
        assert sent.ok, sent.text
        job = self.call("POST", "/jobs", {"input_id": upload["id"], "model": MODEL, **settings})
        return str(job["id"])

    def wait_for(self, job_id: str, *statuses: str) -> dict[str, Any]:
        """Poll until the job is in one of ``statuses``; fail if it ended otherwise."""

        def look() -> dict[str, Any] | None:
            job = self.call("GET", f"/jobs/{job_id}")
            assert job["status"] in statuses or job["status"] not in TERMINAL, job
            return job if job["status"] in statuses else None

        found = wait_until(look, timeout_seconds=JOB_SECONDS, what=f"{job_id} is {' or '.join(statuses)}")
        assert found is not None
        return found

    def approve(self, job_id: str) -> None:
        """Wait for the estimate and approve it."""
        self.wait_for(job_id, "cost_ready")
        self.call("POST", f"/jobs/{job_id}/approve")

    def wait_until_rows_run(self, job_id: str) -> None:
        """Wait until a chunk of the job is leased, with a ready engine behind it."""
        with self.database() as database:

            def leased() -> bool:
                with database.transaction() as transaction:
                    row = transaction.fetch_dict(
                        "SELECT count(*) AS chunks FROM chunks WHERE job_id = %(id)s AND state = 'leased'",
                        {"id": job_id},
                    )
                return bool(row and row["chunks"])

            wait_until(leased, timeout_seconds=JOB_SECONDS, what="a chunk is leased")

    def lines(self, job_id: str) -> list[dict[str, Any]]:
        """Download the result."""
        link = self.call("GET", f"/jobs/{job_id}/result")
        answer = requests.get(link["result_url"], timeout=60)
        answer.raise_for_status()
        return [json.loads(line) for line in answer.content.split(b"\n")[:-1]]

    def _is_up(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "up.log").read_text()
        try:
            regions = self.regions.split(",") if self.regions else [self.settings.region]
            origins = [self.settings.origins[region] for region in regions]
            return all(requests.get(f"{origin}/readyz", timeout=2).ok for origin in origins)
        except (requests.RequestException, OSError):
            return False
