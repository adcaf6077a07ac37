"""Real Postgres, Valkey and SeaweedFS for the tests: one of each a test run, shared by all its xdist workers.

Whoever asks first starts the host process (``tests.support.server_host``); it ends with the pytest process
that the user started, in whatever way that ends. Each worker has databases, a Valkey database number and a
bucket of its own. ``FLUSHALL`` would empty the other workers' too: use ``FLUSHDB``.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from anex.migrations import upgrade
from anex.s3 import S3Location, make_client
from config.stack.layout import PROJECT_FOLDER
from config.stack.postgres import ensure_database, give_schema_to_owner
from tests.support.server_host import ADDRESSES

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEMPLATE = "anex_template"
_START_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class DatabaseUrls:
    """One migrated, empty database, as each role reaches it."""

    name: str
    owner: str
    api: str
    work: str
    superuser: str


@dataclass(frozen=True, slots=True)
class Servers:
    """The running servers of this test run."""

    folder: Path
    addresses: dict[str, str] = field(repr=False)

    @property
    def superuser_url(self) -> str:
        """Postgres as its superuser, who bypasses row-level security: for making databases only."""
        return self.addresses["superuser_url"]

    def make_database(self) -> DatabaseUrls:
        """Return a fresh database with the current schema; costs a copy of the template."""
        name = f"test_{uuid4().hex[:12]}"
        with _locked(self.folder), self._connect("postgres") as connection:
            self._ensure_template(connection)
            ensure_database(connection, name, _TEMPLATE)
        return self._urls(name)

    def drop_database(self, urls: DatabaseUrls) -> None:
        """Drop a database, cutting its connections."""
        with self._connect("postgres") as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{urls.name}" WITH (FORCE)'.encode())

    def _ensure_template(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        """Make and migrate the template once a run; it gets its name when it is complete."""
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (_TEMPLATE,)).fetchone()
        if known is not None:
            return
        unfinished = f"{_TEMPLATE}_{uuid4().hex[:8]}"
        ensure_database(connection, unfinished)
        with self._connect(unfinished) as inside:
            give_schema_to_owner(inside)
        upgrade(self._urls(unfinished).owner)
        connection.execute(f'ALTER DATABASE "{unfinished}" RENAME TO "{_TEMPLATE}"'.encode())

    def _connect(self, database: str) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(_with_database(self.superuser_url, database), autocommit=True)

    def _urls(self, name: str) -> DatabaseUrls:
        roles = {
            role: _with_database(self.addresses[f"ANEX_DATABASE_{role.upper()}_URL"], name)
            for role in ("owner", "api", "work")
        }
        return DatabaseUrls(name=name, superuser=_with_database(self.superuser_url, name), **roles)


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest) -> Servers:
    """Return the servers of this run, started by whoever asks first."""
    folder, owner = _identify_run(request.config)
    folder.mkdir(mode=0o700, exist_ok=True)
    with _locked(folder):
        if not (folder / "data" / ADDRESSES).exists():
            _start_host(folder, owner)
    addresses = json.loads((folder / "data" / ADDRESSES).read_text("utf-8"))
    return Servers(folder, addresses)


@pytest.fixture(scope="session")
def database_urls(servers: Servers) -> DatabaseUrls:
    """One database for all tests of this worker."""
    return servers.make_database()


@pytest.fixture
def fresh_database_urls(servers: Servers) -> Iterator[DatabaseUrls]:
    """Make a database for one test alone."""
    urls = servers.make_database()
    yield urls
    servers.drop_database(urls)


@pytest.fixture(scope="session")
def valkey_url(servers: Servers, request: pytest.FixtureRequest) -> str:
    """Valkey with a database number of this worker's own."""
    base = servers.addresses["ANEX_REDIS_URL"].rpartition("/")[0]
    return f"{base}/{_worker_number(request.config)}"


@pytest.fixture(scope="session")
def s3_location(servers: Servers, request: pytest.FixtureRequest) -> S3Location:
    """SeaweedFS with a bucket of this worker's own."""
    endpoint = servers.addresses["ANEX_S3_ENDPOINT"]
    location = S3Location(
        endpoint=endpoint,
        public_endpoint=endpoint,
        region="us-east-1",
        bucket=f"test-{_worker_number(request.config)}",
        access_key=servers.addresses["ANEX_S3_ACCESS_KEY"],
        secret_key=servers.addresses["ANEX_S3_SECRET_KEY"],
    )
    make_client(location, endpoint).create_bucket(Bucket=location.bucket)
    return location


def _identify_run(config: pytest.Config) -> tuple[Path, int]:
    """Return the run's folder, common to its workers, and the process whose end is the run's."""
    worker = getattr(config, "workerinput", None)
    run = worker["testrunuid"] if worker else f"{os.getpid()}-{config.stash.setdefault(_RUN, uuid4().hex)}"
    owner = os.getppid() if worker else os.getpid()
    return Path(tempfile.gettempdir()) / f"anex-tests-{run[:24]}", owner


_RUN = pytest.StashKey[str]()


def _worker_number(config: pytest.Config) -> int:
    worker = getattr(config, "workerinput", None)
    return int(worker["workerid"].removeprefix("gw")) + 1 if worker else 0


def _start_host(folder: Path, owner: int) -> None:
    log_path = folder / "host.log"
    with log_path.open("wb") as log:
        result = subprocess.run(
            [sys.executable, "-m", "tests.support.server_host", str(folder), str(owner)],
            cwd=PROJECT_FOLDER,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            timeout=_START_TIMEOUT_SECONDS,
            check=False,
        )
    if result.returncode != 0:
        pytest.exit(f"the tests' servers did not start:\n{log_path.read_text('utf-8')}", returncode=3)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One worker at a time."""
    with (folder / "turn").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _with_database(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()
