"""Postgres: a pool, and transactions that know their organization and what to do once they are committed.

The first statement of every transaction names the organization (for row-level security) and the acting key. A doorbell rung
inside a transaction could be heard before the commit, or for one that never comes: ``after_commit`` is the only way to ring.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
import structlog
from psycopg.rows import class_row, dict_row
from psycopg.sql import SQL, Composed
from psycopg_pool import ConnectionPool, PoolTimeout

from anex.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")
Parameters = Mapping[str, Any]
Query = str | SQL | Composed

log = structlog.get_logger(__name__)

_SCOPE = """
SELECT set_config('anex.org_id', %(org_id)s, true), set_config('anex.key_sha256', %(key_sha256)s, true)
"""


class Transaction:
    """One open transaction. Rows come back as the dataclass that is asked for, or as dicts."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self._after_commit: list[Callable[[], None]] = []

    def execute(self, query: Query, parameters: Parameters | None = None) -> int:
        """Run a statement; return the number of rows it touched."""
        return self.connection.execute(query, parameters).rowcount

    def execute_many(self, query: Query, rows: Sequence[Parameters]) -> None:
        """Run one statement for many parameter sets, pipelined."""
        with self.connection.cursor() as cursor:
            cursor.executemany(query, rows)

    def fetch_one(self, row_type: type[T], query: Query, parameters: Parameters | None = None) -> T | None:
        """Return the one row as ``row_type``, or None."""
        with self.connection.cursor(row_factory=class_row(row_type)) as cursor:
            return cursor.execute(query, parameters).fetchone()

    def fetch_all(self, row_type: type[T], query: Query, parameters: Parameters | None = None) -> list[T]:
        """Return every row as ``row_type``; the query bounds how many there can be."""
        with self.connection.cursor(row_factory=class_row(row_type)) as cursor:
            return cursor.execute(query, parameters).fetchall()

    def fetch_dict(self, query: Query, parameters: Parameters | None = None) -> dict[str, Any] | None:
        """Return the one row as a dict, or None."""
        with self.connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query, parameters).fetchone()

    def fetch_dicts(self, query: Query, parameters: Parameters | None = None) -> list[dict[str, Any]]:
        """Return every row as a dict."""
        with self.connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query, parameters).fetchall()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what the block did, and only that, when it raises; the transaction goes on for who catches it."""
        kept = len(self._after_commit)
        try:
            with self.connection.transaction():
                yield
        except BaseException:
            del self._after_commit[kept:]
            raise

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run ``action`` once the transaction is committed, never otherwise."""
        self._after_commit.append(action)

    def run_after_commit(self) -> None:
        """Run what was put off. What is committed stands: an action that fails is logged, not raised."""
        for action in self._after_commit:
            try:
                action()
            except Exception:
                log.exception("after_commit_failed")


class Database:
    """A bounded pool of connections to one database as one role. Open it after a fork, close it at the end."""

    def __init__(self, url: str, *, max_connections: int = 8, connect_timeout_seconds: float = 5.0) -> None:
        self._connect_timeout_seconds = connect_timeout_seconds
        self._pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
            url,
            min_size=0,
            max_size=max_connections,
            max_idle=60.0,
            timeout=connect_timeout_seconds,
            reconnect_timeout=connect_timeout_seconds,
            kwargs={"connect_timeout": int(connect_timeout_seconds), "application_name": "anex"},
            check=ConnectionPool.check_connection,
            open=False,
        )

    def open(self) -> Database:
        """Start the pool's threads; connections are made when they are needed."""
        self._pool.open()
        return self

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()

    @contextmanager
    def transaction(
        self, org_id: str | None = None, *, key_sha256: str | None = None
    ) -> Iterator[Transaction]:
        """Open a transaction that sees ``org_id``'s rows (as ``anex_api``), commit at the end, then run what was put off.

        Raises ``DatabaseUnavailable`` when no connection is to be had in time or it breaks, and on an older schema.
        """
        try:
            with self._pool.connection() as connection:
                transaction = Transaction(connection)
                with connection.transaction():
                    connection.execute(_SCOPE, {"org_id": org_id or "", "key_sha256": key_sha256 or ""})
                    yield transaction
        except (psycopg.OperationalError, PoolTimeout) as error:
            log.warning("database_unavailable", error=str(error))
            raise DatabaseUnavailable("the database cannot be reached; try again in a few seconds") from error
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            # The schema is older than this code: the API is up before `anex migrate`, and waits for it.
            log.exception("schema_unfit")
            raise DatabaseUnavailable(
                "the database's schema is not the one that this version needs"
            ) from error
        transaction.run_after_commit()


def broken_rule(error: psycopg.IntegrityError) -> str | None:
    """Return the name of the constraint that was broken: constraints are named after the rule they keep."""
    return error.diag.constraint_name
