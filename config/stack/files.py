"""Writing small files: a crash leaves the old or the new content, and nobody else reads a private one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE_MODE = 0o600


def write_private(path: Path, content: str) -> None:
    """Replace ``path`` with ``content``, mode 0600 from the first byte on (temporary file, then rename)."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_status(path: Path, content: str) -> None:
    """Replace ``path`` atomically without forcing it to disk: a status is worthless after a crash anyway."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(content, encoding="utf-8")
    temporary.replace(path)
