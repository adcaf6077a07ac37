"""A Celery worker as the unit's parent sees it: a process that is told things over its standard input."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from config.stack.layout import PROJECT_FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class UnitWorker:
    """One of ``workers.run`` and ``workers.quick``, started, told to stop, and reaped.

    It has a session of its own, so a Ctrl-C in the parent's terminal does not reach it: the parent decides.
    """

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.module = module
        self._command = [sys.executable, "-m", module, *arguments]
        self._environment = dict(environment)
        self._process: subprocess.Popen[str] | None = None

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
        """Kill what is left of it, and reap it."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process = None
