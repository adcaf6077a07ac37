"""A unit's place on its machine: the names of its engine's socket and log, kept from all other units by the kernel's own lock.

Two units of one model may serve side by side on GPUs of their own. Each takes the first free place of its model; the kernel frees
it when the unit's parent ends, however it ends. So a unit that is started again stands where the killed one stood, and finds and
ends an engine that was left there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from config.stack.errors import StackError

if TYPE_CHECKING:
    from pathlib import Path

    from config.stack.layout import DataFolder

PLACES_MAX = 64
"""Units of one model in one data folder; no machine has more GPUs."""

_READABLE_CHARACTERS = 8
_DIGEST_CHARACTERS = 6


class PlacesTaken(StackError):
    """All places of a model are taken."""

    code = "places_taken"


@dataclass(frozen=True, slots=True)
class Place:
    """What belongs to one unit for as long as its parent lives."""

    number: int
    """Of the model's units on this machine: 0, 1, …"""
    socket_path: Path
    log_path: Path
    lock_descriptor: int
    """Open on purpose: the lock goes with it. Children don't inherit it."""


def take_place(folder: DataFolder, queue: str) -> Place:
    """Take the first free place of a model, by its queue's name. Raises ``PlacesTaken``."""
    for number in range(PLACES_MAX):
        socket_path = folder.run / f"{_shorten(queue)}-{number}.sock"
        descriptor = _try_lock(socket_path.with_suffix(".lock"))
        if descriptor is not None:
            return Place(number, socket_path, folder.logs / f"engine-{queue}-{number}.log", descriptor)
    raise PlacesTaken(
        f"{PLACES_MAX} units of {queue} run in {folder.root} already: stop one, or set ANEX_DATA_DIR to another folder."
    )


def _shorten(queue: str) -> str:
    """Return a name that people recognise and no other queue has: a socket's path is short of room (unix(7))."""
    digest = hashlib.sha256(queue.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{queue[:_READABLE_CHARACTERS]}-{digest}"


def _try_lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
