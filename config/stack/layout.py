"""The data folder: everything one machine keeps, and the lock that gives it to one supervisor at a time."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from config.stack.errors import DataFolderTaken, FolderUnusable
from config.stack.proc import is_alive

if TYPE_CHECKING:
    from types import TracebackType

PROJECT_FOLDER = Path(__file__).resolve().parents[2]
"""Where the packages lie: the working folder of every process of the stack."""

# A socket's path has 107 bytes at most (unix(7)); names in the folder take up to 36, with a slash before them.
_SOCKET_FOLDER_MAX_BYTES = 70

# A killed supervisor's guardian holds the lock until the last process is gone; that takes it less than this.
_TIDYING_SECONDS = 20.0
_LOCK_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The paths inside ``ANEX_DATA_DIR``."""

    root: Path

    @property
    def postgres(self) -> Path:
        """The database cluster."""
        return self.root / "postgres"

    @property
    def valkey(self) -> Path:
        """The append-only file of the broker."""
        return self.root / "valkey"

    @property
    def seaweedfs(self) -> Path:
        """The objects."""
        return self.root / "seaweedfs"

    @property
    def secrets(self) -> Path:
        """Passwords and keys, and the configuration files that hold them; mode 0700."""
        return self.root / "secrets"

    @property
    def run(self) -> Path:
        """Unix sockets; mode 0700. Elsewhere when the data folder's path is too long for a socket's."""
        inside = self.root / "run"
        if len(os.fsencode(inside)) <= _SOCKET_FOLDER_MAX_BYTES:
            return inside
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"anex-{os.geteuid()}-{digest}"

    @property
    def logs(self) -> Path:
        """One log a service; mode 0700."""
        return self.root / "logs"

    @property
    def ports(self) -> Path:
        """The ports, chosen once."""
        return self.root / "ports.json"

    @property
    def environment(self) -> Path:
        """Every variable of the running stack, as ``NAME=value`` lines; mode 0600."""
        return self.root / "stack.env"

    @property
    def status(self) -> Path:
        """What runs where, kept up to date by the supervisor."""
        return self.root / "status.json"

    @property
    def lock(self) -> Path:
        """Held by the supervisor, and by its guardian until nothing is left."""
        return self.root / "lock"

    def create(self) -> None:
        """Make the folders that are missing and set the modes of the private ones."""
        self.root.mkdir(parents=True, exist_ok=True)
        for folder in (self.valkey, self.seaweedfs, self.secrets, self.run, self.logs):
            folder.mkdir(exist_ok=True, mode=0o700)
            folder.chmod(0o700)  # fails when a stranger made it first

    def remove_sockets(self) -> None:
        """Remove the sockets that killed processes left. Only the folder's one holder may, before it starts any."""
        for path in self.run.iterdir():
            if path.is_socket():
                path.unlink()


def make_folder(folder: DataFolder) -> None:
    """Make the data folder. Raises ``FolderUnusable``."""
    try:
        folder.create()
    except OSError as fault:
        raise FolderUnusable(
            f"the data folder {folder.root} can't be used ({fault.strerror}): name another one with ANEX_DATA_DIR"
        ) from fault


class FolderLock:
    """The exclusive lock of a data folder.

    ``flock`` belongs to the open file, not to the process: the guardian inherits the descriptor, so a killed
    supervisor's folder becomes free only when its last process has ended.
    """

    def __init__(self, folder: DataFolder) -> None:
        self._path = folder.lock
        self._descriptor = -1

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def descriptor(self) -> int:
        """The open file that carries the lock."""
        return self._descriptor

    def acquire(self) -> None:
        """Take the lock, waiting while a dead holder is tidied up. Raises ``DataFolderTaken``."""
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + _TIDYING_SECONDS
        while not _try_lock(self._descriptor):
            holder = _read_holder(self._path)
            if is_alive(holder) or time.monotonic() > deadline:
                os.close(self._descriptor)
                raise DataFolderTaken(
                    f"{self._path.parent} is in use: `anex up` runs there as process {holder}. Stop it with "
                    f"Ctrl-C or `kill {holder}`, or choose another folder with ANEX_DATA_DIR."
                )
            time.sleep(_LOCK_PAUSE_SECONDS)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give the lock back."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = -1


def is_locked(folder: DataFolder) -> bool:
    """Whether a supervisor (or the guardian of a killed one) holds the folder."""
    if not folder.lock.exists():
        return False
    descriptor = os.open(folder.lock, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(path: Path) -> int:
    text = path.read_text(encoding="ascii").strip()
    return int(text) if text.isdigit() else 0
