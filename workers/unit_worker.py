"""A Celery worker as the unit's parent sees it: a process that is told things over its standard input."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from config.stack.layout import PROJECT_FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FIRST_DELAY_SECONDS = 0.5
LAST_DELAY_SECONDS = 30.0
STEADY_SECONDS = 60.0
"""A worker that lived this long was well: the next restart begins with the first delay again."""


class UnitWorker:
    """One of ``workers.run`` and ``workers.quick``, started, told to stop, reaped and started again.

    It has a session of its own, so a Ctrl-C in the parent's terminal does not reach it: the parent decides.
    """

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.module = module
        self.started_at = float("-inf")
        self._command = [sys.executable, "-m", module, *arguments]
        self._environment = dict(environment)
        self._process: subprocess.Popen[str] | None = None
        self._start_at = float("-inf")
        self._delay_seconds = FIRST_DELAY_SECONDS

    def start(self) -> None:
        """Start the process; its output goes where the parent's goes."""
        self._process = subprocess.Popen(
            self._command,
            cwd=PROJECT_FOLDER,
            env=self._environment,
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started_at = time.monotonic()

    def is_due(self) -> bool:
        """Whether it is to be started now: there is none, and the pause after the last one's end is over."""
        return self._process is None and time.monotonic() >= self._start_at

    def has_died(self) -> bool:
        """Whether it was started and is gone."""
        return self._process is not None and self._process.poll() is not None

    def is_running(self) -> bool:
        """Whether it was started and is there."""
        return self._process is not None and self._process.poll() is None

    def tell(self, word: str) -> None:
        """Say ``drain`` or ``now``; a process that is gone hears nothing."""
        if self._process is None or self._process.stdin is None:
            return
        with suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()

    def end(self) -> None:
        """Kill what is left of it, reap it, and plan the next start: after a pause that doubles while it lives but shortly."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process = None
        now = time.monotonic()
        if now - self.started_at >= STEADY_SECONDS:
            self._delay_seconds = FIRST_DELAY_SECONDS
        self._start_at = now + self._delay_seconds
        self._delay_seconds = min(2 * self._delay_seconds, LAST_DELAY_SECONDS)
