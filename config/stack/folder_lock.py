"""One process at a time in a folder, by the kernel's own lock."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Wait for the folder's lock and hold it; the kernel gives it back when the process dies.

    The lock is on the folder itself, so it leaves no file behind. Raises ``FileNotFoundError``.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
