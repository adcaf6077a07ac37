"""What runs where, as a file: the supervisor writes it, ``anex status`` reads it. It never holds a secret."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from config.stack.files import write_status as replace_file
from config.stack.layout import is_locked

if TYPE_CHECKING:
    from config.stack.layout import DataFolder
    from config.stack.spec import State


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """One service as the supervisor sees it."""

    name: str
    state: State
    pid: int | None = None
    url: str | None = None
    detail: str = ""
    """Why it is in this state, where that is not plain: the last exit, or what a model waits for."""
    restarts: int = 0
    since: float = 0.0
    """Unix time at which the state was entered."""


@dataclass(frozen=True, slots=True)
class Status:
    """The stack of one data folder."""

    running: bool
    data_folder: str
    supervisor_pid: int | None = None
    services: tuple[ServiceStatus, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data for ``anex status --json``."""
        return asdict(self)


def write_status(folder: DataFolder, status: Status) -> None:
    """Replace the status file; a reader sees the old or the new one, never half."""
    replace_file(folder.status, json.dumps(status.to_json(), indent=1) + "\n")


def read_status(folder: DataFolder) -> Status:
    """Return what runs: nothing when nobody holds the folder's lock, whatever a killed one wrote."""
    if not is_locked(folder) or not folder.status.exists():
        return Status(running=False, data_folder=str(folder.root))
    found = json.loads(folder.status.read_text("utf-8"))
    services = tuple(ServiceStatus(**service) for service in found.pop("services"))
    return Status(**found, services=services)
