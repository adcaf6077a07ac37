"""The embedded Postgres: made once, run in the foreground, with the three roles of the schema."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from config.stack.child import SAME, USER_PREFIX
from config.stack.errors import ServiceFailed
from config.stack.files import write_private
from config.stack.identity import wrap_command
from config.stack.layout import PROJECT_FOLDER
from config.stack.spec import SERVERS, ServiceSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from config.stack.secrets import StackSecrets

DATABASE = "anex"
SUPERUSER = "anex"
OWNER, API, WORK = "anex_owner", "anex_api", "anex_work"

_INIT_TIMEOUT_SECONDS = 120
_CONNECT_TIMEOUT_SECONDS = 2
_SHOWN_LINES = 12


@dataclass(frozen=True, slots=True)
class EmbeddedPostgres:
    """One database cluster in ``folder``, on 127.0.0.1 only and without a Unix socket."""

    binaries: Path
    folder: Path
    port: int
    secrets: StackSecrets
    identity: str = SAME
    settings: Mapping[str, str] = field(default_factory=dict)
    """Server settings beyond the defaults; tests trade durability for speed."""

    def prepare(self) -> None:
        """Initialise the cluster unless it stands. It appears under its name only when it is complete."""
        if (self.folder / "PG_VERSION").exists():
            self._forget_dead_postmaster()
            return
        staging = self.folder.with_name(f"{self.folder.name}.new")
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(mode=0o700)
        write_private(staging / "password", self.secrets.postgres_superuser + "\n")
        self._give_away(staging, staging / "password")
        self._initialise(staging)
        (staging / "data").rename(self.folder)
        shutil.rmtree(staging)

    def spec(self) -> ServiceSpec:
        """Return how it is run. SIGINT is its fast stop: clients are cut off, data is flushed."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            **self.settings,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return ServiceSpec(
            name="postgres",
            command=[str(self.binaries / "postgres"), "-D", str(self.folder), *options],
            environment=_environment(),
            stop_signal=signal.SIGINT,
            stop_timeout_seconds=30.0,
            ready=self.is_ready,
            ready_timeout_seconds=120.0,  # a crashed server first replays its log
            tier=SERVERS,
            identity=self.identity,
            url=f"postgresql://127.0.0.1:{self.port}/{DATABASE}",
        )

    def is_ready(self) -> bool:
        """Whether it answers a query."""
        try:
            with self._connect("postgres") as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except psycopg.OperationalError:
            return False

    def ensure_roles(self) -> None:
        """Make the three roles and the database, or set their passwords, rights and owner right."""
        with self._connect("postgres") as connection:
            for role, password in self._passwords().items():
                _ensure_role(connection, role, password)
            ensure_database(connection, DATABASE)
        with self._connect(DATABASE) as connection:
            give_schema_to_owner(connection)

    def url(self, role: str, database: str = DATABASE) -> str:
        """Return the connection URL of a role, password included."""
        password = {SUPERUSER: self.secrets.postgres_superuser, **self._passwords()}[role]
        return f"postgresql://{role}:{password}@127.0.0.1:{self.port}/{database}"

    def _passwords(self) -> dict[str, str]:
        secrets = self.secrets
        return {OWNER: secrets.postgres_owner, API: secrets.postgres_api, WORK: secrets.postgres_work}

    def _connect(self, database: str) -> psycopg.Connection[tuple[object, ...]]:
        url = self.url(SUPERUSER, database)
        return psycopg.connect(url, autocommit=True, connect_timeout=_CONNECT_TIMEOUT_SECONDS)

    def _forget_dead_postmaster(self) -> None:
        """Remove a pid file whose process is another program by now.

        Postgres refuses to start while any process has the number in it; after a restart of a container that
        is the rule and not the exception.
        """
        pid_file = self.folder / "postmaster.pid"
        if not pid_file.exists():
            return
        pid = pid_file.read_text("ascii").split("\n", 1)[0]
        program = Path(f"/proc/{pid}/exe")
        if not program.exists() or program.resolve().name != "postgres":
            pid_file.unlink()

    def _give_away(self, *paths: Path) -> None:
        if self.identity.startswith(USER_PREFIX):
            user = int(self.identity.removeprefix(USER_PREFIX))
            for path in paths:
                os.chown(path, user, user)

    def _initialise(self, staging: Path) -> None:
        command = [
            str(self.binaries / "initdb"),
            f"--pgdata={staging / 'data'}",
            f"--username={SUPERUSER}",
            "--auth=scram-sha-256",
            f"--pwfile={staging / 'password'}",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
        ]
        result = subprocess.run(
            wrap_command(command, self.identity, signal.SIGKILL),
            cwd=PROJECT_FOLDER,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_INIT_TIMEOUT_SECONDS,
            check=False,
            text=True,
        )
        if result.returncode != 0:
            shown = "\n".join(result.stdout.splitlines()[-_SHOWN_LINES:])
            raise ServiceFailed(f"initdb could not make {self.folder}:\n{shown}")


def ensure_database(
    connection: psycopg.Connection[tuple[object, ...]], database: str, template: str = "template1"
) -> None:
    """Make a database that belongs to the owner role and that only the three roles may enter. Idempotent."""
    name = sql.Identifier(database)
    known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,)).fetchone()
    if known is None:
        connection.execute(
            sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {}").format(
                name, sql.Identifier(OWNER), sql.Identifier(template)
            )
        )
    connection.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(name))
    connection.execute(
        sql.SQL("GRANT CONNECT ON DATABASE {} TO {}, {}").format(
            name, sql.Identifier(API), sql.Identifier(WORK)
        )
    )


def give_schema_to_owner(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Let the owner role, and no other, make tables in the connected database."""
    connection.execute(sql.SQL("ALTER SCHEMA public OWNER TO {}").format(sql.Identifier(OWNER)))


def _ensure_role(connection: psycopg.Connection[tuple[object, ...]], role: str, password: str) -> None:
    known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone()
    verb = sql.SQL("CREATE" if known is None else "ALTER")
    connection.execute(
        sql.SQL(
            "{} ROLE {} LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD {}"
        ).format(verb, sql.Identifier(role), sql.Literal(password))
    )


def _environment() -> dict[str, str]:
    """Return what a server needs: nothing of ours, and none of the caller's PG* variables."""
    return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
