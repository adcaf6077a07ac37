"""A GPU unit in processes of its own, beside a ``Spine`` whose database, bucket and broker it shares."""

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

from anex.jobs.approve import approve_job
from anex.jobs.finalize import finalize_job
from anex.units.store import list_units
from config.stack.layout import PROJECT_FOLDER
from config.stack.proc import UNIT_VARIABLE, find_members, send_signal, unit_mark
from tests.support.audit import audit
from tests.support.engines import short_folder
from tests.support.spine import MODEL, chat_rows
from tests.support.wait import wait_until
from workers.engine_mark import find_mark
from workers.unix_http import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anex.s3 import S3Location
    from anex.units.model import UnitRow
    from tests.support.servers import DatabaseUrls
    from tests.support.spine import Spine

CATALOG = Path(__file__).with_name("models.slow.toml")
START_SECONDS = 60.0
NEVER = "600"
"""Longer than any test waits: what happens within a test did not happen because this time was up."""

# A job ends in time if chunks come back because somebody gave them back, never because a lease ran out.
_TIMINGS = {
    "ANEX_LEASE_SECONDS": NEVER,
    "ANEX_HEARTBEAT_SECONDS": "1",
    "ANEX_DRAIN_SECONDS": NEVER,
    "ANEX_WORKER_ALIVE_SECONDS": NEVER,
}


@dataclass(slots=True)
class Outside:
    """The servers that a unit of these tests uses, and the spine that it works for."""

    spine: Spine
    redis_url: str
    variables: dict[str, str] = field(repr=False)

    def ring(self) -> None:
        """Ring once for the model."""
        from tasks.dispatch import CeleryDispatcher  # noqa: PLC0415 - Celery, for the tests that need it

        dispatcher = CeleryDispatcher(self.redis_url)
        dispatcher.ring_model(MODEL)
        dispatcher.close()

    def flush_broker(self) -> None:
        """Empty this worker's database of Valkey."""
        with redis.Redis.from_url(self.redis_url) as client:
            client.flushdb()

    def start_job(self, rows: int) -> str:
        """Make a job of ``rows`` rows that is approved, its chunks ready; ring for it; return its id."""
        job = self.spine.submit(chat_rows(rows), max_output_tokens=32)
        self.spine.answer_rings()
        approve_job(self.spine.api, self.spine.caller, job.id)
        self.spine.dispatcher.rings.clear()
        self.ring()
        return job.id

    def chunks(self, job_id: str) -> list[dict[str, Any]]:
        """Return a job's chunks."""
        with self.spine.services.database.transaction() as transaction:
            return transaction.fetch_dicts(
                "SELECT * FROM chunks WHERE job_id = %(id)s ORDER BY chunk_index", {"id": job_id}
            )

    def wait_for_state(self, job_id: str, state: str) -> dict[str, Any]:
        """Wait until the job's one chunk is in a state, and return it."""

        def look() -> dict[str, Any] | None:
            (chunk,) = self.chunks(job_id)
            return chunk if chunk["state"] == state else None

        found = wait_until(look, timeout_seconds=START_SECONDS, what=f"the chunk is {state}")
        assert found is not None
        return found

    def check_done(self, job_id: str, rows: int) -> None:
        """Wait until every row has run, end the job, and look at its result and books."""
        self.wait_for_state(job_id, "done")
        finalize_job(self.spine.services, job_id)
        assert self.spine.job(job_id).status == "done"
        lines = self.spine.result_lines(job_id)
        assert [line["custom_id"] for line in lines] == [f"row-{number}" for number in range(1, rows + 1)]
        audit(self.spine.services)


@dataclass(slots=True)
class RunningUnit:
    """A unit's parent, and all that belongs to it."""

    outside: Outside
    folder: Path
    name: str
    process: subprocess.Popen[bytes]

    @property
    def socket_path(self) -> Path:
        """The engine's socket, of the first unit in the folder."""
        (path,) = (self.folder / "run").glob("*-0.sock")
        return path

    def others(self) -> dict[int, str]:
        """Return its processes beside the parent: command line by process id."""
        members = find_members(unit_mark(self.folder, self.name), exact=True) - {self.process.pid}
        return {pid: _read_command(pid) for pid in members}

    def find(self, word: str) -> int:
        """Return the process whose command line holds ``word``; there must be one."""
        (pid,) = [pid for pid, line in self.others().items() if word in line]
        return pid

    def row(self) -> UnitRow | None:
        """Return what the unit says of itself."""
        with self.outside.spine.services.database.transaction() as transaction:
            rows = list_units(transaction, alive_seconds=3600)
        return next((row for row in rows if row.id.startswith(f"{MODEL}-")), None)

    def wait_for_state(self, state: str) -> UnitRow:
        """Wait until the unit says that its engine is in a state."""

        def look() -> UnitRow | None:
            assert state == "gone" or self.process.poll() is None, self.read_log()
            row = self.row()
            return row if row is not None and row.engine_state == state else None

        row = wait_until(look, timeout_seconds=START_SECONDS, what=f"the engine is {state}")
        assert row is not None
        return row

    def wait_for_generation(self, generation: int) -> None:
        """Wait until the engine has been started so many times."""

        def look() -> bool:
            mark = find_mark(self.socket_path) if list((self.folder / "run").glob("*-0.sock")) else None
            return mark is not None and mark.generation == generation

        wait_until(look, timeout_seconds=START_SECONDS, what=f"the engine's start number {generation}")

    def wait_for_end(self) -> int:
        """Wait until neither the parent nor anything that it started is there; return the parent's exit code."""
        code = self.process.wait(START_SECONDS)
        wait_until(lambda: not self.others(), what="no process of the unit is left")
        return code

    def set_switches(self, **changes: Any) -> None:
        """Switch faults of the engine on or off."""
        status, content = ask(self.socket_path, "/fake/switches", json.dumps(changes).encode(), 10)
        assert status == 200, content

    def has_rows_in_engine(self) -> bool:
        """Whether its engine holds requests."""
        page = ask(self.socket_path, "/metrics", None, 10)[1].decode()
        return any(
            line.startswith(("vllm:num_requests_running{", "vllm:num_requests_waiting{"))
            and float(line.rsplit(" ", 1)[1]) > 0
            for line in page.splitlines()
        )

    def read_log(self) -> str:
        """Return what parent and workers said."""
        return (self.folder / f"{self.name}.log").read_text("utf-8")


@contextmanager
def run_unit(
    outside: Outside, folder: Path, name: str = "unit", catalog: Path = CATALOG, **variables: str
) -> Iterator[RunningUnit]:
    """Run a unit on a data folder; nothing of it is left at the end, whatever the test did."""
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("ANEX_")},
        **_TIMINGS,
        **outside.variables,
        "ANEX_CATALOG": str(catalog),
        "ANEX_DATA_DIR": str(folder),
        "PYTHONPATH": str(PROJECT_FOLDER),
        UNIT_VARIABLE: unit_mark(folder, name),
        **variables,
    }
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "workers.main", "--model", MODEL],
            cwd=PROJECT_FOLDER,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    unit = RunningUnit(outside, folder, name, process)
    try:
        yield unit
    finally:
        process.kill()
        process.wait()
        for pid in unit.others():
            send_signal(pid, signal.SIGKILL)
        wait_until(lambda: not unit.others(), what="no process of the unit is left")


@contextmanager
def serve_outside(
    spine: Spine, urls: DatabaseUrls, redis_url: str, s3_location: S3Location
) -> Iterator[tuple[Outside, Path]]:
    """Give a spine's servers to units, with an empty broker and a data folder."""
    variables = {
        "ANEX_DATABASE_WORK_URL": urls.work,
        "ANEX_REDIS_URL": redis_url,
        "ANEX_S3_ENDPOINT": s3_location.endpoint,
        "ANEX_S3_BUCKET": s3_location.bucket,
        "ANEX_S3_ACCESS_KEY": s3_location.access_key,
        "ANEX_S3_SECRET_KEY": s3_location.secret_key,
        "ANEX_ALLOW_FAKE_ENGINE": "1",
    }
    outside = Outside(spine, redis_url, variables)
    outside.flush_broker()
    with short_folder() as folder:
        yield outside, folder


def _read_command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
