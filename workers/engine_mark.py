"""The mark beside an engine's socket: which start of the engine serves there now, and as which process.

The parent owns the engine, but the workers beside it notice a stall first, and an engine that came back is
another one than the engine whose rows they wait for. The mark tells them apart (``generation`` grows with every
start) and lets a worker end exactly the engine that it saw stall.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson


@dataclass(frozen=True, slots=True)
class EngineMark:
    """One start of the engine; ``process_id`` leads its process group."""

    generation: int
    process_id: int


def write_mark(socket_path: Path, mark: EngineMark) -> None:
    """Put the mark there in one step."""
    path = _mark_path(socket_path)
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(orjson.dumps(asdict(mark)))
    fresh.replace(path)


def find_mark(socket_path: Path) -> EngineMark | None:
    """Return the running engine's mark, or None when no engine runs."""
    try:
        return EngineMark(**orjson.loads(_mark_path(socket_path).read_bytes()))
    except FileNotFoundError:
        return None


def remove_mark(socket_path: Path) -> None:
    """Say that no engine runs."""
    _mark_path(socket_path).unlink(missing_ok=True)


def kill_marked(socket_path: Path, generation: int) -> bool:
    """Kill the engine of this generation; False when it is gone or was replaced already."""
    mark = find_mark(socket_path)
    if mark is None or mark.generation != generation:
        return False
    kill_group(mark.process_id, signal.SIGKILL)
    return True


def end_leftover(socket_path: Path) -> None:
    """Kill the engine of a parent that was killed before it could do so, and remove its mark.

    The process id may belong to a stranger by now. A leader that still names the socket is ours. A group whose leader
    is gone, or is a zombie and so has no command line, is ours too: Linux gives no process an id that still names a
    group.
    """
    mark = find_mark(socket_path)
    if mark is None:
        return
    try:
        command_line = Path(f"/proc/{mark.process_id}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        command_line = b""
    if not command_line or os.fsencode(socket_path) in command_line:
        kill_group(mark.process_id, signal.SIGKILL)
    remove_mark(socket_path)


def kill_group(process_id: int, number: signal.Signals) -> None:
    """Send a signal to a whole process group; one that is gone already is no error."""
    with suppress(ProcessLookupError):
        os.killpg(process_id, number)


def _mark_path(socket_path: Path) -> Path:
    return socket_path.with_name(socket_path.name + ".engine")
