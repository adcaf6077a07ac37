"""Which processes belong to a unit of the stack, read from ``/proc``.

A unit is a child of the supervisor with everything below it. Two marks find its processes even when their
parent is gone: the session they were born into, and a variable in their environment, which survives a
``setsid`` of their own. Standard library only: the guardian, which imports this, must stay small.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

UNIT_VARIABLE = "_ANEX_UNIT"
"""Environment variable of every process of the stack: ``<data folder>:<service>``. Its name begins with an
underscore because every ``ANEX_`` name is a setting and is checked as one."""

_PROC = Path("/proc")
_STATE_FIELD = 0
_SESSION_FIELD = 3


def unit_mark(data_folder: Path, service: str = "") -> str:
    """Return the mark of a service; without one, the prefix that the whole stack shares."""
    return f"{data_folder}:{service}"


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    fields = _read_stat(pid) if pid > 0 else None
    return fields is not None and fields[_STATE_FIELD] != "Z"


def find_members(mark: str, sessions: frozenset[int] = frozenset(), *, exact: bool = False) -> set[int]:
    """Return the living processes of a unit.

    They are in one of ``sessions`` or carry a mark that begins with ``mark`` (with ``exact``: equals it). The
    calling process is never among them.
    """
    wanted = f"{UNIT_VARIABLE}={mark}".encode()
    return {
        pid
        for pid in _list_pids()
        if pid != os.getpid() and _belongs(pid, sessions=sessions, wanted=wanted, exact=exact)
    }


def send_signal(pid: int, number: int) -> None:
    """Signal a process that may have gone in the meantime."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_members(mark: str, sessions: frozenset[int] = frozenset(), *, exact: bool = False) -> int:
    """SIGKILL the processes of a unit and return their number. They may breed: call until it is 0."""
    members = find_members(mark, sessions, exact=exact)
    for pid in members:
        send_signal(pid, signal.SIGKILL)
    return len(members)


def _belongs(pid: int, *, sessions: frozenset[int], wanted: bytes, exact: bool) -> bool:
    fields = _read_stat(pid)
    if fields is None or fields[_STATE_FIELD] == "Z":
        return False
    if int(fields[_SESSION_FIELD]) in sessions:
        return True
    return any(
        variable == wanted if exact else variable.startswith(wanted) for variable in _read_environment(pid)
    )


def _list_pids() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 - one Path a process


def _read_stat(pid: int) -> list[str] | None:
    """Return the fields after the command name (which may hold spaces and brackets), or None when gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


def _read_environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
