"""The stack under the demo: the one that runs in the data folder, or one that is started for the demo alone."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from config.stack.child import SAME
from config.stack.errors import StackError
from config.stack.identity import wrap_command
from config.stack.layout import PROJECT_FOLDER
from config.stack.status import read_status
from config.stack.unit import describe_exit, read_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from config.stack.layout import DataFolder
    from config.stack.status import ServiceStatus

START_TIMEOUT_SECONDS = 180.0
_STOP_TIMEOUT_SECONDS = 120.0
"""A GPU unit drains for up to a minute, then the servers stop one after another."""

_POLL_SECONDS = 0.2


class StackNotReady(StackError):
    """The stack ended or did not become ready; the message holds the end of what it said."""

    code = "stack_not_ready"


class DemoStack:
    """A stack in ``folder``, whose output goes to ``log``; ``process`` is None for one that somebody else runs."""

    def __init__(self, folder: DataFolder, log: Path, process: subprocess.Popen[bytes] | None) -> None:
        self.folder = folder
        self.log = log
        self._process = process
        self._begun = log.stat().st_size if log.exists() else 0

    @property
    def is_own(self) -> bool:
        """Whether it was started here and is stopped at the end."""
        return self._process is not None

    def wait_ready(self, say: Callable[[str], None]) -> str:
        """Return the API's address once it answers; pass on what the stack says meanwhile.

        Raises ``StackNotReady``.
        """
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while True:
            self._pass_on_lines(say)
            api = self._find("api")
            if api is not None and api.state == "ready" and api.url:
                return api.url
            self.check()
            if time.monotonic() > deadline:
                raise StackNotReady(f"the API was not ready within {START_TIMEOUT_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raise ``StackNotReady`` when the stack has ended."""
        status = self._process.poll() if self._process is not None else None
        if status is not None:
            raise StackNotReady(f"`anex up` ended with {describe_exit(status)}:\n{read_tail(self.log)}")
        if self._process is None and not read_status(self.folder).running:
            raise StackNotReady(f"the `anex up` that ran in {self.folder.root} has ended")

    def describe_unit(self, model: str) -> str:
        """Say where the model's GPU unit stands, in a few words."""
        unit = self._find(f"gpu-{model}")
        if unit is None:
            return "no GPU unit runs yet"
        return unit.detail or "the GPU unit is starting: it prepares the model's files, then its engine"

    def stop(self) -> None:
        """Stop the stack if it was started here; a Ctrl-C meanwhile makes it stop at once."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_SECONDS)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            self._process.terminate()
            self._process.wait(_STOP_TIMEOUT_SECONDS)

    def _find(self, name: str) -> ServiceStatus | None:
        status = read_status(self.folder)
        # The file of an earlier run stands until the new supervisor writes its own.
        if not status.running or (self._process and status.supervisor_pid != self._process.pid):
            return None
        return next((service for service in status.services if service.name == name), None)

    def _pass_on_lines(self, say: Callable[[str], None]) -> None:
        if self._process is None:
            return
        with self.log.open("rb") as file:
            file.seek(self._begun)
            said, newline, _ = file.read().rpartition(b"\n")
        self._begun += len(said + newline)
        for line in said.decode("utf-8", "replace").splitlines():
            say(line)


@contextmanager
def open_stack(folder: DataFolder, environ: Mapping[str, str], log: Path) -> Iterator[DemoStack]:
    """Give the stack that runs in ``folder``, or start one and stop it at the end.

    What a started one says goes to ``log``: nothing has to empty it while the demo is busy elsewhere.
    """
    if read_status(folder).running:
        yield DemoStack(folder, log, None)
        return
    log.write_bytes(b"")
    stack = DemoStack(folder, log, _start(environ, log))
    try:
        yield stack
    finally:
        stack.stop()


def _start(environ: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start ``anex up`` outside the terminal's group, so that a Ctrl-C reaches it through us alone.

    The kernel stops it when this process is killed.
    """
    command = [sys.executable, "-m", "config.cli", "up"]
    with log.open("ab") as output:
        return subprocess.Popen(
            wrap_command(command, SAME, signal.SIGTERM),
            cwd=PROJECT_FOLDER,
            env={**environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
