"""The API fuzzed from its own document: Schemathesis' command in a process of its own, against a server of this one.

What the jobs of the fuzz wait for is done between its requests, one doorbell at each: so they come through every state while it
runs, and a run is the same each time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from werkzeug.serving import WSGIRequestHandler, make_server

from tests.support.fuzz_hooks import ANSWERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flask import Flask

    from tests.support.contract_bench import Bench
    from tests.support.tenant import Tenant

ROOT = Path(__file__).parents[2]
SETTINGS = Path(__file__).with_name("schemathesis.toml")
RUN_TIMEOUT_SECONDS = 600


class _Handler(WSGIRequestHandler):
    """Keeps connections, as a real server does, and logs nothing: the application does."""

    protocol_version = "HTTP/1.1"

    def log(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serve_app(app: Flask) -> Iterator[str]:
    """Serve an application of this process on a port of its own; give its address."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(slots=True)
class Hands:
    """Answers one doorbell of a bench before each request; what goes wrong is kept for the test, not told to the client."""

    bench: Bench
    faults: list[Exception] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def help(self, app: Flask) -> None:
        """Work whenever ``app`` is asked something; a source leads nowhere, so a copy is tried again at once."""
        spine = self.bench.spine
        spine.services = replace(
            spine.services, timings=replace(spine.services.timings, copy_retry_seconds=0.0)
        )
        app.before_request(self._answer_one)

    def _answer_one(self) -> None:
        with self._lock:
            if self.bench.spine.dispatcher.rings:
                try:
                    self.bench.spine.answer_one()
                except Exception as fault:  # noqa: BLE001 - the test judges it
                    self.faults.append(fault)


@dataclass(frozen=True, slots=True)
class Fuzz:
    """A run: in which folder, as whom, and which ids it knows."""

    folder: Path
    owner: Tenant
    neighbour: Tenant
    jobs: Sequence[str]
    inputs: Sequence[str]

    def run(self, address: str, *, examples: int, seed: int, options: Sequence[str] = ()) -> Answers:
        """Fuzz the API at ``address``; fail with the command's report unless everything held."""
        self._write_folder()
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json", "--no-color"]
        size = [f"--max-examples={examples}", f"--seed={seed}"]
        done = subprocess.run(
            [*command, *size, *options],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return Answers(Counter((self.folder / ANSWERS).read_text("utf-8").splitlines()))

    def _write_folder(self) -> None:
        shutil.copy(SETTINGS, self.folder)
        for name, ids in (("jobs", self.jobs), ("inputs", self.inputs)):
            lines = "".join(f'"{each}"\n' for each in ids)
            (self.folder / f"{name}.dict").write_text(lines, "utf-8")
        users = [_describe_user("owner", self.owner), _describe_user("neighbour", self.neighbour)]
        (self.folder / "users.json").write_text(json.dumps({"auth": users}), "utf-8")


@dataclass(frozen=True, slots=True)
class Answers:
    """What a run was answered, counted by operation and status."""

    counts: Counter[str]

    def statuses(self, operation: str | None = None) -> set[int]:
        """Return the statuses that an operation gave, or all operations together."""
        told = (each.split() for each in self.counts)
        return {int(status) for name, status in told if operation in (None, name)}


def _describe_user(name: str, tenant: Tenant) -> dict[str, Any]:
    header = {"name": "Authorization", "value": f"Bearer {tenant.key}"}
    return {"name": name, "fixedHeaders": [header]}
