"""An engine child's log file: bounded in size, and readable by its last line.

The child writes to the file itself, not into a pipe: a pipe that nobody empties for a moment would stop the engine.
So the bound is kept from outside, by moving the end of a file that grew too large aside and emptying it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LOG_MAX_BYTES = 16 << 20
"""Size at which a log is cut."""

LOG_KEPT_BYTES = 1 << 20
"""End of a cut log that is kept, in ``<name>.1``."""

TAIL_BYTES = 4 << 10
LINE_MAX_CHARACTERS = 200


def open_log(path: Path) -> int:
    """Open a log for a child to write to and return the descriptor, which the caller closes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # O_APPEND: each write goes to the current end, so emptying the file below the writer leaves no hole.
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def bound_log(path: Path, max_bytes: int = LOG_MAX_BYTES) -> None:
    """Cut a log over ``max_bytes``. Lines written between the copy and the cut are lost, which is accepted."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return
    if size <= max_bytes:
        return
    path.with_name(path.name + ".1").write_bytes(_read_end(path, LOG_KEPT_BYTES))
    os.truncate(path, 0)


def last_line(path: Path) -> str:
    """Return the last line that says something, printable and short; empty when there is none."""
    try:
        text = _read_end(path, TAIL_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    # A progress bar rewrites its line with carriage returns: its last state is what counts.
    lines = [line.strip() for line in text.replace("\r", "\n").split("\n")]
    line = next((line for line in reversed(lines) if line), "")
    return "".join(character for character in line if character.isprintable())[:LINE_MAX_CHARACTERS]


def _read_end(path: Path, size_bytes: int) -> bytes:
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - size_bytes))
        return file.read(size_bytes)
