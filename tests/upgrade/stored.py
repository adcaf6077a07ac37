"""A stored installation: a database as ``pg_dump`` gave it, the objects that belong to it, and what is to come of its jobs.

``make_dump`` writes one into a folder named after the schema's revision; ``test_upgrade`` reads every one that is there.
"""

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - msgspec reads the annotation
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from config.stack.binaries import find_postgres

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anex.objects import ObjectStore

HERE = Path(__file__).parent
_DATABASE, _OBJECTS, _ABOUT = "database.sql.gz", "objects.tar.gz", "about.json"
_PROGRAM_TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job at the moment of the dump, and its end if nothing is lost or done twice."""

    id: str
    org_id: str
    status: str
    step: str | None
    rows: int
    end_status: str
    end_rows: int | None
    """Lines of its result in the end; None where there is none to read."""
    charge_cents: int | None
    """None where rows that were not run yet decide."""
    is_to_be_approved: bool
    is_purged_in_the_end: bool
    kept_rows: list[int]
    """Rows that were finished, in parts and checkpoints: they are delivered as they are, never run again."""
    kept_sha256: str
    """Of their lines."""


@dataclass(frozen=True, slots=True)
class About:
    """What is known of a stored installation."""

    revision: str
    time: datetime
    """``anex_now()`` of the dump."""
    jobs: dict[str, StoredJob]
    inputs: dict[str, str]
    """Ids by the state they are in."""
    keys: dict[str, str | None]
    """Key ids by secret; None for a revoked one."""
    table_rows: dict[str, dict[str, int]]
    """By organization and table."""
    balances: dict[str, list[int]]
    """Available and held nanos by organization."""
    etags: dict[str, str]
    """By object key."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The files of one folder."""

    folder: Path

    def read_about(self) -> About:
        """Return what is known of it."""
        return msgspec.json.decode((self.folder / _ABOUT).read_bytes(), type=About)

    def restore_database(self, superuser_url: str) -> None:
        """Restore the dump into an empty database, as an administrator would after a loss."""
        command = [str(find_postgres() / "psql"), "--no-psqlrc", "--quiet", "--single-transaction"]
        restored = subprocess.run(
            [*command, "--set", "ON_ERROR_STOP=1", "--output", "/dev/null"],
            env=_environment(superuser_url),
            input=gzip.decompress((self.folder / _DATABASE).read_bytes()),
            capture_output=True,
            check=False,
            timeout=_PROGRAM_TIMEOUT_SECONDS,
        )
        assert restored.returncode == 0, restored.stderr.decode()

    def restore_objects(self, objects: ObjectStore, etags: Mapping[str, str]) -> None:
        """Put every object under its key; the ETags, which rows of the database name, must come out as they were."""
        put = {key: objects.put(key, data) for key, data in self.read_objects().items()}
        assert put == etags

    def read_objects(self) -> dict[str, bytes]:
        """Return the objects by key."""
        with tarfile.open(self.folder / _OBJECTS) as archive:
            files = [(member.name, archive.extractfile(member)) for member in archive.getmembers()]
            return {key: file.read() for key, file in files if file is not None}

    def write(self, superuser_url: str, objects: Mapping[str, bytes], about: About) -> None:
        """Dump the database, and write the objects and ``about`` beside it."""
        self.folder.mkdir(exist_ok=True)
        dumped = subprocess.run(
            [str(find_postgres() / "pg_dump")],
            env=_environment(superuser_url),
            capture_output=True,
            check=True,
            timeout=_PROGRAM_TIMEOUT_SECONDS,
        )
        (self.folder / _DATABASE).write_bytes(gzip.compress(dumped.stdout, mtime=0))
        (self.folder / _OBJECTS).write_bytes(gzip.compress(_pack(objects), mtime=0))
        text = msgspec.json.format(msgspec.json.encode(about), indent=2)
        (self.folder / _ABOUT).write_bytes(text + b"\n")


def list_stored() -> list[Stored]:
    """Return what is stored, oldest first."""
    return [Stored(path.parent) for path in sorted(HERE.glob(f"*/{_ABOUT}"))]


def _pack(objects: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for key, data in sorted(objects.items()):
            member = tarfile.TarInfo(key)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def _environment(url: str) -> dict[str, str]:
    """Return the address for a program of Postgres: a password does not belong on a command line."""
    parts = urlsplit(url)
    return {
        "LC_ALL": "C.UTF-8",
        "PGHOST": str(parts.hostname),
        "PGPORT": str(parts.port),
        "PGUSER": str(parts.username),
        "PGPASSWORD": str(parts.password),
        "PGDATABASE": parts.path.removeprefix("/"),
    }
