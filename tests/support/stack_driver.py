"""A stack of the test's choosing in a process of its own, so that it can be signalled and killed.

Used as ``python -m tests.support.stack_driver FOLDER JSON``; the JSON is ``{"servers": bool,
"postgres_identity": …, "children": [{"name", "code", …fields of ServiceSpec}]}``, the code being Python.
Prints ``UP`` when everything is ready.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from anex.errors import AnexError
from config.settings import load_settings
from config.stack.embedded import EmbeddedServers, choose_servers, start_servers
from config.stack.layout import DataFolder, FolderLock
from config.stack.spec import ServiceSpec
from config.stack.supervisor import Supervisor, install_stop_signals


def drive(root: Path, plan: dict[str, Any]) -> None:
    """Start the plan in ``root`` and run it until a signal comes."""
    folder = DataFolder(root)
    folder.create()
    with FolderLock(folder) as lock:
        supervisor = Supervisor(folder, lock_descriptor=lock.descriptor, say=_say)
        install_stop_signals(supervisor)
        servers = EmbeddedServers()
        try:
            if plan.get("servers"):
                servers = choose_servers(load_settings({**os.environ, "ANEX_DATA_DIR": str(root)}), folder)
            if servers.postgres and "postgres_identity" in plan:
                servers.postgres = replace(servers.postgres, identity=plan["postgres_identity"])
            start_servers(servers, supervisor)
            supervisor.start(*(_describe(child) for child in plan.get("children", [])))
            _say("UP")
            supervisor.run_until_stopped()
        finally:
            supervisor.stop()
            servers.tidy()


def _describe(child: dict[str, Any]) -> ServiceSpec:
    fields = dict(child)
    code = fields.pop("code")
    fields["stop_signal"] = signal.Signals(fields.get("stop_signal", signal.SIGTERM))
    return ServiceSpec(command=[sys.executable, "-S", "-u", "-c", code], environment={}, **fields)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        drive(Path(sys.argv[1]), json.loads(sys.argv[2]))
    except AnexError as fault:
        sys.exit(f"{type(fault).__name__}: {fault.message}")
