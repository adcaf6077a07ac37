"""The engine child: started, watched and restarted by the GPU unit's parent, so its crash is nobody else's.

Plain methods that the parent's loop calls, no thread of its own: ``poll`` looks once and acts. All calls come from
one thread, and that thread must outlive the child: the kernel ties a child's parent-death signal to the thread
that started it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from config.stack.child import SAME
from config.stack.identity import wrap_command
from config.stack.layout import PROJECT_FOLDER
from workers.engine_log import bound_log, last_line, open_log
from workers.engine_mark import EngineMark, end_leftover, kill_group, remove_mark, write_mark
from workers.unix_http import probe_health

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SOCKET_PATH_MAX_BYTES = 107
"""Longest path of a Unix socket: ``sun_path`` holds 108 bytes with its closing zero (unix(7))."""

DEATH_SIGNAL = signal.SIGTERM
"""What the kernel sends the engine when its parent is killed: one that it can still pass on to its own children."""

SICK_DEATHS = 5
SICK_WINDOW_SECONDS = 600.0
DEATHS_KEPT = 64
POLL_SECONDS = 0.2
SAY_SECONDS = 5.0


class SocketPathTooLong(ValueError):
    """The engine's socket path does not fit what the kernel allows."""


class ChildState(StrEnum):
    """Where the child stands; the parent acts in ``starting``, ``ready`` and ``backing_off``."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    BACKING_OFF = "backing_off"


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """What to start. Raises ``SocketPathTooLong``.

    ``argv`` begins with an absolute path; ``environment`` is the child's whole environment.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    socket_path: Path
    log_path: Path

    def __post_init__(self) -> None:
        """Check the path here: an engine would only die of it, again and again."""
        if len(os.fsencode(self.socket_path)) > SOCKET_PATH_MAX_BYTES:
            raise SocketPathTooLong(
                f"the socket path {self.socket_path} is longer than {SOCKET_PATH_MAX_BYTES} bytes; "
                "use a data folder with a shorter path"
            )


@dataclass(frozen=True, slots=True)
class ChildTimings:
    """The watch's durations, in seconds."""

    health_seconds: float = 5.0
    """Between two health checks."""
    health_timeout_seconds: float = 5.0
    health_failures_max: int = 6
    """Failed checks in a row after which a ready engine counts as dead."""
    start_seconds: float = 3600.0
    """From start to ready; loading large weights from a cold disk takes many minutes."""
    backoff_seconds: float = 1.0
    backoff_max_seconds: float = 60.0
    steady_seconds: float = 60.0
    """Ready for so long, a death counts as the first again."""


@dataclass(frozen=True, slots=True)
class Death:
    """One end of the engine that nobody asked for."""

    at_seconds: float
    """On the child's monotonic clock."""
    generation: int
    reason: str
    was_ready: bool


class EngineChild:
    """One engine process at a time, with its whole process group."""

    def __init__(
        self,
        command: EngineCommand,
        timings: ChildTimings | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = ChildState.STOPPED
        self.generation = 0
        self.start_seconds = 0.0
        """What the last start took, to being ready."""
        self.deaths: deque[Death] = deque(maxlen=DEATHS_KEPT)
        self._command = command
        self._timings = timings or ChildTimings()
        self._monotonic = monotonic
        self._process: subprocess.Popen[bytes] | None = None
        self._changed_at = monotonic()
        self._health_due_at = 0.0
        self._health_failures = 0
        self._deaths_in_row = 0
        self._restart_at = 0.0

    def start(self) -> None:
        """Start the engine unless it runs; a pending restart happens at once."""
        if self.state in (ChildState.STOPPED, ChildState.BACKING_OFF):
            self._spawn()

    def poll(self) -> ChildState:
        """Look once: notice a death, check health when due, restart when due. Takes up to one health check."""
        if self.state is ChildState.BACKING_OFF and self._monotonic() >= self._restart_at:
            self._spawn()
        elif self._process is not None:
            self._watch(self._process)
        return self.state

    def wait_until_ready(self, timeout_seconds: float, say: Callable[[str], None]) -> bool:
        """Poll until the engine is ready or the time is up; ``say`` gets a line about what it waits for."""
        deadline = self._monotonic() + timeout_seconds
        say_at = self._monotonic()
        while self.poll() is not ChildState.READY:
            now = self._monotonic()
            if now >= deadline:
                return False
            if now >= say_at:
                say(self.describe())
                say_at = now + SAY_SECONDS
            time.sleep(POLL_SECONDS)
        say(self.describe())
        return True

    def kill(self) -> None:
        """End the engine with its whole group at once; ``poll`` records the death and restarts it."""
        if self._process is not None:
            kill_group(self._process.pid, signal.SIGKILL)

    def stop(self, grace_seconds: float = 10.0) -> None:
        """End the engine for good: SIGTERM, then SIGKILL for what is left after ``grace_seconds``."""
        if self._process is not None:
            kill_group(self._process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_seconds)
            self._bury()
        self._enter(ChildState.STOPPED)

    def is_sick(self) -> bool:
        """Whether it died more than ``SICK_DEATHS`` times within ``SICK_WINDOW_SECONDS``."""
        since = self._monotonic() - SICK_WINDOW_SECONDS
        return sum(death.at_seconds >= since for death in self.deaths) > SICK_DEATHS

    def describe(self) -> str:
        """Return one line for people: what the engine does, for how long, and what it said last."""
        seconds = self._monotonic() - self._changed_at
        said = last_line(self._command.log_path) or "nothing yet"
        if self.state is ChildState.STARTING:
            return f"the engine has been starting for {seconds:.0f} s; its log says: {said}"
        if self.state is ChildState.BACKING_OFF:
            left = max(0.0, self._restart_at - self._monotonic())
            # What an engine says last when it dies at work may quote a prompt: that stays in its log.
            told = (
                f"see {self._command.log_path.name}"
                if self.deaths[-1].was_ready
                else f"its log ended: {said}"
            )
            return f"the engine {self.deaths[-1].reason}; next start in {left:.0f} s; {told}"
        return f"the engine is {self.state} since {seconds:.0f} s"

    def _spawn(self) -> None:
        end_leftover(self._command.socket_path)
        self._command.socket_path.unlink(missing_ok=True)  # a dead engine's socket would refuse the bind
        log = open_log(self._command.log_path)
        try:
            self._process = subprocess.Popen(
                wrap_command(list(self._command.argv), SAME, DEATH_SIGNAL),
                cwd=PROJECT_FOLDER,
                env=dict(self._command.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        finally:
            os.close(log)
        self.generation += 1
        write_mark(self._command.socket_path, EngineMark(self.generation, self._process.pid))
        self._health_failures = 0
        self._health_due_at = 0.0
        self._enter(ChildState.STARTING)

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        bound_log(self._command.log_path)
        code = process.poll()
        if code is not None:
            self._die(_exit_reason(code))
        elif self._monotonic() >= self._health_due_at:
            self._check_health()

    def _check_health(self) -> None:
        healthy = probe_health(self._command.socket_path, self._timings.health_timeout_seconds)
        now = self._monotonic()
        if healthy:
            self._health_failures = 0
            self._health_due_at = now + self._timings.health_seconds
            if self.state is ChildState.STARTING:
                self.start_seconds = now - self._changed_at
                self._enter(ChildState.READY)
        elif self.state is ChildState.STARTING:
            if now - self._changed_at > self._timings.start_seconds:
                self._die(f"was not ready after {self._timings.start_seconds:.0f} s")
        else:
            self._health_failures += 1
            self._health_due_at = now + self._timings.health_seconds
            if self._health_failures >= self._timings.health_failures_max:
                self._die(f"failed {self._health_failures} health checks in a row")

    def _die(self, reason: str) -> None:
        """Record a death, clear what is left of the group and set the time of the next start."""
        self._bury()
        now = self._monotonic()
        was_ready = self.state is ChildState.READY
        steady = was_ready and now - self._changed_at >= self._timings.steady_seconds
        self._deaths_in_row = 1 if steady else self._deaths_in_row + 1
        self.deaths.append(Death(now, self.generation, reason, was_ready))
        backoff = self._timings.backoff_seconds * 2 ** (self._deaths_in_row - 1)
        self._restart_at = now + min(backoff, self._timings.backoff_max_seconds)
        self._enter(ChildState.BACKING_OFF)

    def _bury(self) -> None:
        """Leave nothing of the engine: its group is killed whole, since an engine has processes of its own."""
        if self._process is None:
            return
        kill_group(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        remove_mark(self._command.socket_path)
        self._command.socket_path.unlink(missing_ok=True)

    def _enter(self, state: ChildState) -> None:
        self.state = state
        self._changed_at = self._monotonic()


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    return f"was ended by {signal.Signals(-code).name}"
