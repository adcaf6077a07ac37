"""Starts ``tests.support.stack_driver`` and says what it printed and what it left."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.stack.layout import PROJECT_FOLDER, DataFolder
from config.stack.proc import find_members, kill_members, unit_mark
from config.stack.seaweedfs import remove_sockets
from config.stack.status import read_status
from tests.support.wait import wait_until

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator, Mapping, Sequence


class StackRun:
    """One run of the driver on one data folder."""

    def __init__(
        self,
        root: Path,
        plan: dict[str, Any],
        *,
        environment: Mapping[str, str] | None = None,
        launcher: Sequence[str] = (sys.executable,),
    ) -> None:
        self.folder = DataFolder(root)
        self._output = root.parent / f"{root.name}.{len(list(root.parent.iterdir()))}.out"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*launcher, "-m", "tests.support.stack_driver", str(root), json.dumps(plan)],
                cwd=PROJECT_FOLDER,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def output(self) -> str:
        """Everything it has said so far."""
        return self._output.read_text("utf-8", "replace")

    def wait_for(self, text: str) -> None:
        """Wait until it has said ``text``."""
        wait_until(
            lambda: text in self.output() or self.process.poll() is not None,
            timeout_seconds=60,
            what=f"the stack says {text!r}",
        )
        assert text in self.output(), self.output()

    def members(self) -> set[int]:
        """Return the processes of this stack that live now, the guardian and the driver aside."""
        return find_members(unit_mark(self.folder.root))

    def pid_of(self, name: str) -> int:
        """Return the process id of a service, from the status file."""
        for service in read_status(self.folder).services:
            if service.name == name and service.pid is not None:
                return service.pid
        raise AssertionError(f"{name} does not run: {read_status(self.folder)}")

    def guardian_pid(self) -> int:
        """Return the process id of the guardian."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text("ascii")
        for pid in map(int, children.split()):
            if b"config.stack.guardian" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        raise AssertionError("there is no guardian")

    def signal(self, number: signal.Signals) -> None:
        """Signal the supervisor."""
        self.process.send_signal(number)

    def wait_ended(self) -> int:
        """Wait for the supervisor's end; return its exit code."""
        return self.process.wait(timeout=60)

    def wait_nothing_left(self) -> None:
        """Wait until no process of the stack lives."""
        wait_until(lambda: not self.members(), timeout_seconds=20, what="no process of the stack is left")

    def clean_up(self) -> None:
        """End whatever a failed test left."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        while kill_members(unit_mark(self.folder.root)):
            pass
        if self.folder.ports.exists():
            remove_sockets(json.loads(self.folder.ports.read_text("utf-8")))


@contextmanager
def short_folder() -> Iterator[Path]:
    """Make a folder with a short path: the kernel takes socket paths of 107 bytes."""
    root = Path(tempfile.mkdtemp(prefix="anex-", dir="/tmp"))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
