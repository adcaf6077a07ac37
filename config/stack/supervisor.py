"""The supervisor of the one-machine stack: ordered start, restart with back-off, reverse stop, nothing left.

Everything happens in one thread, the one that made the supervisor: the kernel ends a child when the thread
that started it ends. Signal handlers and other threads only call ``request_stop``.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from config.stack.errors import ServiceFailed, StopRequested
from config.stack.layout import PROJECT_FOLDER
from config.stack.proc import unit_mark
from config.stack.status import ServiceStatus, Status, write_status
from config.stack.unit import Unit, describe_exit, read_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from config.stack.layout import DataFolder
    from config.stack.spec import ServiceSpec, State

_TICK_SECONDS = 0.25
_START_PAUSE_SECONDS = 0.05
_BOUND_LOGS_SECONDS = 10.0
_AT_ONCE = 2
"""The second request to stop means: now."""


class Supervisor:
    """Runs the services of one data folder; ``say`` receives one line for each event worth reading."""

    def __init__(self, folder: DataFolder, *, lock_descriptor: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._units: dict[str, Unit] = {}
        self._others: tuple[ServiceStatus, ...] = ()
        self._stops = 0
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._lock_descriptor = lock_descriptor
        self._guardian = self._start_guardian()
        self._written: Status | None = None
        self._complaint = ""
        self._logs_bounded_at = 0.0

    # Called from anywhere

    def request_stop(self) -> None:
        """Ask for a stop; a second request kills at once. Safe in a signal handler."""
        self._stops += 1
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"!")

    # The ordered start

    def start(self, *specs: ServiceSpec) -> None:
        """Start services side by side and return when all of them are ready.

        Raises ``ServiceFailed`` with the end of its log when a critical one ends or is late, and
        ``StopRequested`` when a stop was asked for meanwhile.
        """
        units = [self.add(spec) for spec in specs]
        pending = list(units)
        while pending:
            self._raise_if_stopping()
            pending = [unit for unit in pending if not self._settle(unit)]
            self.write_status()
            if pending:
                self._wait(_START_PAUSE_SECONDS)

    def add(self, spec: ServiceSpec) -> Unit:
        """Start one more service without waiting for it."""
        unit = Unit(spec, data_folder=self._folder.root, log=self._folder.logs / f"{spec.name}.log")
        self._units[spec.name] = unit
        self._start_unit(unit)
        return unit

    def remove(self, name: str) -> None:
        """Stop one service and forget it."""
        unit = self._units[name]
        self._stop_units([unit])
        del self._units[name]

    # While it runs

    def run_until_stopped(self, tick: Callable[[], None] = lambda: None) -> None:
        """Watch over the services until a stop is requested; ``tick`` is called a few times a second."""
        while not self._stops:
            self.watch_once()
            tick()
            self.write_status()
            self._wait(_TICK_SECONDS)

    def watch_once(self) -> None:
        """Look at every service once: reap, restart, notice readiness, bound the logs, keep the guardian."""
        for unit in list(self._units.values()):
            self._watch_unit(unit)
        if time.monotonic() - self._logs_bounded_at > _BOUND_LOGS_SECONDS:
            self._logs_bounded_at = time.monotonic()
            for unit in self._units.values():
                unit.bound_log()
        if self._guardian.poll() is not None:
            self._say("guardian   ended, starting another")
            self._guardian = self._start_guardian()
            for unit in self._units.values():
                if unit.pid:
                    self._tell_guardian("+", unit.pid)

    def states(self) -> dict[str, State]:
        """Return the state of every service."""
        return {name: unit.state for name, unit in self._units.items()}

    def has(self, name: str) -> bool:
        """Whether a service of this name is under supervision."""
        return name in self._units

    def show_others(self, others: Sequence[ServiceStatus]) -> None:
        """Put services into the status that are not supervised: those outside, and those that wait."""
        self._others = tuple(others)

    # The end

    def stop(self) -> None:
        """Stop everything, last tier first, and release the guardian. Safe to call after a failed start."""
        for tier in sorted({unit.spec.tier for unit in self._units.values()}, reverse=True):
            self._stop_units([unit for unit in self._units.values() if unit.spec.tier == tier])
        self.write_status()
        if self._guardian.stdin is not None:
            self._guardian.stdin.close()
        self._guardian.wait()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def write_status(self) -> None:
        """Write the status file when something has changed."""
        services = tuple(
            ServiceStatus(
                name=unit.spec.name,
                state=unit.state,
                pid=unit.pid,
                url=unit.spec.url,
                detail=unit.detail,
                restarts=unit.restarts,
                since=unit.since,
            )
            for unit in self._units.values()
        )
        status = Status(
            running=True,
            data_folder=str(self._folder.root),
            supervisor_pid=os.getpid(),
            services=services + self._others,
        )
        if status != self._written:
            self._keep_status(status)

    # Inside

    def _keep_status(self, status: Status) -> None:
        """Write it; a disk that is full must not end what runs: it is said once, and tried again."""
        try:
            write_status(self._folder, status)
        except OSError as fault:
            told = f"{'status':10} can't be written ({fault.strerror}): free some space where {self._folder.root} lies"
            if told != self._complaint:
                self._say(told)
            self._complaint = told
        else:
            self._written, self._complaint = status, ""

    def _start_unit(self, unit: Unit) -> None:
        unit.start()
        if unit.pid:
            self._tell_guardian("+", unit.pid)

    def _settle(self, unit: Unit) -> bool:
        """Whether a starting unit needs no more waiting for. Raises ``ServiceFailed``."""
        pid, status = unit.pid, unit.reap()
        if status is not None:
            self._forget_session(pid)
            return self._fail_start(unit, f"ended with {describe_exit(status)} instead of becoming ready")
        if self._notice_ready(unit):
            return True
        if unit.age_seconds() > unit.spec.ready_timeout_seconds:
            return self._fail_start(unit, f"was not ready within {unit.spec.ready_timeout_seconds:.0f} s")
        return False

    def _fail_start(self, unit: Unit, why: str) -> bool:
        name = unit.spec.name
        if unit.spec.critical:
            raise ServiceFailed(f"{name} {why}. The end of {unit.log}:\n{read_tail(unit.log)}")
        self._say(f"{name:10} {why}; see {unit.log}")
        if unit.pid is None:
            unit.plan_restart(why)
        return True

    def _notice_ready(self, unit: Unit) -> bool:
        if unit.state == "starting" and (unit.spec.ready is None or unit.spec.ready()):
            unit.set_state("ready")
            self._say(f"{unit.spec.name:10} ready in {unit.age_seconds():.1f} s")
        return unit.state == "ready"

    def _watch_unit(self, unit: Unit) -> None:
        if unit.state == "restarting":
            if time.monotonic() >= unit.retry_at:
                self._start_unit(unit)
            return
        pid, status = unit.pid, unit.reap()
        if status is None:
            self._notice_ready(unit)
            return
        self._forget_session(pid)
        if status == 0 and unit.spec.until_success:
            self._say(f"{unit.spec.name:10} has nothing left to do")
            del self._units[unit.spec.name]
            return
        delay = unit.plan_restart(describe_exit(status))
        self._say(
            f"{unit.spec.name:10} ended with {describe_exit(status)}; again in {delay:.1f} s (see {unit.log})"
        )

    def _stop_units(self, units: list[Unit]) -> None:
        for unit in units:
            unit.ask_to_stop()
        waiting = [unit for unit in units if unit.pid]
        deadlines = {unit.spec.name: time.monotonic() + unit.spec.stop_timeout_seconds for unit in waiting}
        while waiting:
            for unit in waiting:
                late = time.monotonic() > deadlines[unit.spec.name]
                if late or self._stops >= _AT_ONCE:
                    unit.kill()
                self._note_stopped(unit)
            waiting = [unit for unit in waiting if unit.pid]
            if waiting:
                self.write_status()
                self._wait(_START_PAUSE_SECONDS)
        for unit in units:
            unit.set_state("stopped")

    def _note_stopped(self, unit: Unit) -> None:
        pid, status = unit.pid, unit.reap()
        if status is not None:
            self._forget_session(pid)
            self._say(f"{unit.spec.name:10} stopped ({describe_exit(status)})")

    def _raise_if_stopping(self) -> None:
        if self._stops:
            raise StopRequested("stopped while starting")

    def _wait(self, seconds: float) -> None:
        """Sleep until the time is over or a stop is requested."""
        select.select([self._wake_read], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 64)

    def _start_guardian(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-S", "-m", "config.stack.guardian", unit_mark(self._folder.root)],
            cwd=PROJECT_FOLDER,
            stdin=subprocess.PIPE,
            pass_fds=(self._lock_descriptor,),
            start_new_session=True,
        )

    def _tell_guardian(self, order: str, session: int) -> None:
        if self._guardian.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it was killed; watch_once starts another
                self._guardian.stdin.write(f"{order} {session}\n".encode())
                self._guardian.stdin.flush()

    def _forget_session(self, pid: int | None) -> None:
        if pid is not None:
            self._tell_guardian("-", pid)


def install_stop_signals(supervisor: Supervisor) -> None:
    """Make Ctrl-C, SIGTERM and a closed terminal stop the stack."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: supervisor.request_stop())
