"""One supervised child: its process, its log, its back-off, and the processes it may leave."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

from config.stack.identity import wrap_command
from config.stack.layout import PROJECT_FOLDER
from config.stack.proc import UNIT_VARIABLE, kill_members, send_signal, unit_mark

if TYPE_CHECKING:
    from pathlib import Path

    from config.stack.spec import ServiceSpec, State

FIRST_DELAY_SECONDS = 0.5
LAST_DELAY_SECONDS = 30.0
HEALTHY_SECONDS = 60.0
"""A child that lived this long was healthy: the next restart begins with the first delay again."""

LOG_MAX_BYTES = 32 << 20
"""A log that grew past this is moved to ``<name>.log.1``: at most twice this for each service."""

_KILL_PAUSE_SECONDS = 0.02


class Unit:
    """The running side of a ``ServiceSpec``.

    Used from the supervisor's thread only: the kernel's death signal follows the thread that started a child.
    """

    def __init__(self, spec: ServiceSpec, *, data_folder: Path, log: Path) -> None:
        self.spec = spec
        self.log = log
        self.state: State = "stopped"
        self.detail = ""
        self.restarts = 0
        self.since = time.time()
        self.process: subprocess.Popen[bytes] | None = None
        self.retry_at = 0.0
        self._mark = unit_mark(data_folder, spec.name)
        self._started_at = 0.0
        self._delay_seconds = FIRST_DELAY_SECONDS

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs. It leads a session of its own, which has the same number."""
        return self.process.pid if self.process else None

    def set_state(self, state: State, detail: str = "") -> None:
        """Note what it is doing now, and since when."""
        self.state, self.detail, self.since = state, detail, time.time()

    def start(self) -> None:
        """Start the child in a session of its own, its output appended to its log."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                wrap_command(self.spec.command, self.spec.identity, self.spec.stop_signal),
                cwd=PROJECT_FOLDER,
                env={**self.spec.environment, UNIT_VARIABLE: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started_at = time.monotonic()
        self.set_state("starting")

    def reap(self) -> int | None:
        """Return the exit status when the child has ended, after killing what it left; None while it runs."""
        if self.process is None:
            return None
        status = self.process.poll()
        if status is not None:
            self._kill_leftovers(self.process.pid)
            self.process = None
        return status

    def age_seconds(self) -> float:
        """Time since the child was last started."""
        return time.monotonic() - self._started_at

    def plan_restart(self, why: str) -> float:
        """Set the time of the next start and return the delay: 0.5 s doubling to 30 s."""
        if self.age_seconds() >= HEALTHY_SECONDS:
            self._delay_seconds = FIRST_DELAY_SECONDS
        delay, self._delay_seconds = self._delay_seconds, min(self._delay_seconds * 2, LAST_DELAY_SECONDS)
        self.retry_at = time.monotonic() + delay
        self.restarts += 1
        self.set_state("restarting", why)
        return delay

    def ask_to_stop(self) -> None:
        """Send the child its own stop signal."""
        if self.process is not None:
            self.set_state("stopping")
            send_signal(self.process.pid, self.spec.stop_signal)

    def kill(self) -> None:
        """SIGKILL everything that belongs to the unit."""
        if self.process is not None:
            self._kill_leftovers(self.process.pid)

    def bound_log(self) -> None:
        """Move a log that grew too large aside.

        The child appends, so the file may be cut under it; what it writes between copy and cut is lost. Where there is no room for
        the copy, the cut makes some.
        """
        if self.log.stat().st_size > LOG_MAX_BYTES:
            with contextlib.suppress(OSError):
                shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
            os.truncate(self.log, 0)

    def _kill_leftovers(self, session: int) -> None:
        while kill_members(self._mark, frozenset({session}), exact=True):
            time.sleep(_KILL_PAUSE_SECONDS)


def describe_exit(status: int) -> str:
    """Say how a process ended, as ``Popen.returncode`` tells it."""
    return f"exit code {status}" if status >= 0 else f"signal {-status}"


def read_tail(log: Path, lines: int = 12) -> str:
    """Return the last lines of a log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - (lines << 9)))
        return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])
