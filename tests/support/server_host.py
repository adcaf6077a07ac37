"""The process that owns the tests' servers: it starts them, says where they are, ends them with the run.

Used as ``python -m tests.support.server_host RUN_FOLDER OWNER_PID``. The data is worthless, so the
end is a kill: at once. Returns when the servers answer; they live on in a process of their own.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
import time
from pathlib import Path

from config.settings import load_settings
from config.stack.embedded import EmbeddedServers, choose_servers, start_servers
from config.stack.files import write_private
from config.stack.layout import DataFolder, FolderLock
from config.stack.postgres import SUPERUSER
from config.stack.supervisor import Supervisor

ADDRESSES = "addresses.json"

_PAUSE_SECONDS = 0.02

# What a crash would lose is not missed here.
_POSTGRES_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "300",
    "max_wal_size": "2GB",
}


def host_servers(run: Path, owner: int) -> None:
    """Run the servers in ``run/data`` until the process ``owner`` ends, then remove ``run``."""
    root = run / "data"
    owner_ended = os.pidfd_open(owner)
    folder = DataFolder(root)
    folder.create()
    with FolderLock(folder) as lock:
        supervisor = Supervisor(folder, lock_descriptor=lock.descriptor, say=print)

        def stop_with_owner() -> None:
            if select.select([owner_ended], [], [], 0)[0]:
                supervisor.request_stop()

        try:
            settings = load_settings({"ANEX_DATA_DIR": str(root)})
            servers = choose_servers(settings, folder, postgres_settings=_POSTGRES_SETTINGS)
            start_servers(servers, supervisor)
            _publish(root, servers)
            supervisor.run_until_stopped(stop_with_owner)
        finally:
            supervisor.request_stop()
            supervisor.request_stop()
            supervisor.stop()
    servers.tidy()
    shutil.rmtree(run)


def _publish(root: Path, servers: EmbeddedServers) -> None:
    assert servers.postgres is not None
    addresses = {**servers.variables, "superuser_url": servers.postgres.url(SUPERUSER, "postgres")}
    write_private(root / ADDRESSES, json.dumps(addresses))


def _wait_until_published(run: Path, host: int) -> int:
    """Return the exit code for whoever asked for the servers: 0 once the host has said where they are."""
    while not (run / "data" / ADDRESSES).exists():
        ended, _ = os.waitpid(host, os.WNOHANG)
        if ended:
            return 1
        time.sleep(_PAUSE_SECONDS)
    return 0


if __name__ == "__main__":
    host_pid = os.fork()
    if host_pid:
        sys.exit(_wait_until_published(Path(sys.argv[1]), host_pid))
    host_servers(Path(sys.argv[1]), int(sys.argv[2]))
