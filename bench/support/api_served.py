"""gunicorn beside a running stack, on its settings, and what is read of gunicorn's workers."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.support.rounds import read_rss_mb
from tests.support.live_stack import ROOT, LiveStack
from tests.support.served_api import free_port
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

import requests

_STOP_SECONDS = 30


@contextmanager
def serve_beside(
    stack: LiveStack, log: Path, arguments: Sequence[str], extra: Mapping[str, str]
) -> Iterator[str]:
    """Run gunicorn with the stack's settings until the block's end; yield its address once it answers anything."""
    port = free_port()
    variables = {
        **os.environ,
        "ANEX_DATA_DIR": str(stack.folder),
        "ANEX_CATALOG": str(stack.catalog),
        "ANEX_ALLOW_FAKE_ENGINE": "1",
        "PYTHONPATH": str(ROOT),
        "ANEX_API_PORT": str(port),
        **stack.environment,
        **extra,
    }
    command = [sys.executable, "-m", "gunicorn", *arguments, "--bind", f"127.0.0.1:{port}"]
    address = f"http://127.0.0.1:{port}"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, cwd=ROOT, env=variables, stdout=output, stderr=output) as process,
    ):
        try:
            wait_until(lambda: _answers(address), what=f"gunicorn answers ({log})")
            yield address
        finally:
            process.terminate()
            process.wait(_STOP_SECONDS)


def _answers(address: str) -> bool:
    try:
        requests.get(address, timeout=_STOP_SECONDS)
    except requests.ConnectionError:
        return False
    return True


def read_workers_mb(stack: LiveStack) -> dict[int, float]:
    """Return the memory of each worker of the stack's API now, by its process id."""
    pids = {pid for pid, line in stack.processes().items() if "api.gunicorn_conf" in line}
    return {pid: round(read_rss_mb(pid), 1) for pid in sorted(pids) if read_parent(pid) in pids}


def read_parent(pid: int) -> int:
    """Return the process that made this one."""
    return int(Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[1])
