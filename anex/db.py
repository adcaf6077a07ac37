"""Postgres: a pool, and transactions that know their organization and what to do once they are committed.

The first statement of every transaction names the organization (for row-level security) and the acting key. A doorbell rung
inside a transaction could be heard before the commit, or for one that never comes: ``after_commit`` is the only way to ring.

A poll of a job is little but round trips to Postgres. So a transaction begins and names its organization in one message, and a
``Reader`` sends that and its statement as one: Postgres runs a message as one transaction. The same message tells whether an idle
connection still stands; one that doesn't is replaced, as nothing was done on it yet.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
import structlog
from psycopg.rows import class_row, dict_row
from psycopg.sql import SQL, Composed
from psycopg_pool import ConnectionPool, PoolTimeout

from anex.db_connection import BoundedConnection, bound_statements
from anex.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from psycopg.rows import RowFactory

T = TypeVar("T")
Parameters = Mapping[str, Any]
Query = str | SQL | Composed

log = structlog.get_logger(__name__)

_SCOPE = """
SELECT set_config('anex.org_id', %(scope_org_id)s, true), set_config('anex.key_sha256', %(scope_key_sha256)s, true)
"""
_BEGIN = f"BEGIN; {_SCOPE}"


class Reader:
    """Reads rows as the dataclass that is asked for, or as dicts."""

    def fetch_one(self, row_type: type[T], query: Query, parameters: Parameters | None = None) -> T | None:
        """Return the one row as ``row_type``, or None."""
        return next(iter(self._fetch(class_row(row_type), query, parameters)), None)

    def fetch_all(self, row_type: type[T], query: Query, parameters: Parameters | None = None) -> list[T]:
        """Return every row as ``row_type``; the query bounds how many there can be."""
        return self._fetch(class_row(row_type), query, parameters)

    def fetch_dict(self, query: Query, parameters: Parameters | None = None) -> dict[str, Any] | None:
        """Return the one row as a dict, or None."""
        return next(iter(self._fetch(dict_row, query, parameters)), None)

    def fetch_dicts(self, query: Query, parameters: Parameters | None = None) -> list[dict[str, Any]]:
        """Return every row as a dict."""
        return self._fetch(dict_row, query, parameters)

    def _fetch(self, rows: RowFactory[T], query: Query, parameters: Parameters | None) -> list[T]:
        raise NotImplementedError


class Transaction(Reader):
    """One open transaction: reads see its own writes, and what it wrote stands or falls as one."""

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

    def _fetch(self, rows: RowFactory[T], query: Query, parameters: Parameters | None) -> list[T]:
        with self.connection.cursor(row_factory=rows) as cursor:
            return cursor.execute(query, parameters).fetchall()


class _Reading(Reader):
    """Statements that each are a transaction of their own, sent together with their scope."""

    def __init__(self, database: Database, scope: Parameters) -> None:
        self._database = database
        self._scope = scope

    def _fetch(self, rows: RowFactory[T], query: Query, parameters: Parameters | None) -> list[T]:
        def send(connection: psycopg.Connection[Any]) -> list[T]:
            statement = query if isinstance(query, str) else query.as_string(connection)
            with psycopg.ClientCursor(connection, row_factory=rows) as cursor:
                cursor.execute(f"{_SCOPE}; {statement}", {**self._scope, **(parameters or {})})
                cursor.nextset()
                return cursor.fetchall()

        with self._database.take(send) as (_, found):
            return found


class Database:
    """A bounded pool of connections to one database as one role. Open it after a fork, close it at the end."""

    def __init__(
        self,
        url: str,
        *,
        max_connections: int = 8,
        connect_timeout_seconds: float = 5.0,
        statement_timeout_seconds: float | None = None,
    ) -> None:
        """With a ``statement_timeout_seconds`` a statement that takes longer fails, whatever keeps it."""
        self._connect_timeout_seconds = connect_timeout_seconds
        self._pool: ConnectionPool[BoundedConnection] = ConnectionPool(
            url,
            connection_class=BoundedConnection,
            min_size=0,
            max_size=max_connections,
            max_idle=60.0,
            timeout=connect_timeout_seconds,
            reconnect_timeout=connect_timeout_seconds,
            kwargs={
                "autocommit": True,  # psycopg would send each BEGIN in a message of its own
                "connect_timeout": int(connect_timeout_seconds),
                "application_name": "anex",
            },
            configure=bound_statements(statement_timeout_seconds),
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
        scope = _make_scope(org_id, key_sha256)
        with self.take(lambda connection: _begin(connection, scope)) as (connection, transaction), connection:
            yield transaction
        transaction.run_after_commit()

    def reader(self, org_id: str | None = None, *, key_sha256: str | None = None) -> Reader:
        """Return what reads ``org_id``'s rows without a transaction around: one round trip a statement.

        For a single look, or looks that need not agree. Each raises ``DatabaseUnavailable`` as ``transaction`` does. Parameters go
        in as literals: Postgres can't tell the type of an array's unless the statement does.
        """
        return _Reading(self, _make_scope(org_id, key_sha256))

    @contextmanager
    def take(self, send: Callable[[BoundedConnection], T]) -> Iterator[tuple[BoundedConnection, T]]:
        """Give a connection for the block, and what ``send`` returned: the first message on it, which may be sent again.

        Raises ``DatabaseUnavailable`` as ``transaction`` does.
        """
        try:
            connection, answer = self._send_first(send)
            try:
                yield connection, answer
            finally:
                self._pool.putconn(connection)
        except (psycopg.OperationalError, PoolTimeout) as error:
            log.warning("database_unavailable", error=str(error))
            raise DatabaseUnavailable("the database cannot be reached; try again in a few seconds") from error
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            # The schema is older than this code: the API is up before `anex migrate`, and waits for it.
            log.exception("schema_unfit")
            raise DatabaseUnavailable(
                "the database's schema is not the one that this version needs"
            ) from error

    def _send_first(self, send: Callable[[BoundedConnection], T]) -> tuple[BoundedConnection, T]:
        """Send the first message on an idle connection; where it turns out to be broken, on the next one."""
        deadline = time.monotonic() + self._connect_timeout_seconds
        while True:
            connection = self._pool.getconn(max(0.0, deadline - time.monotonic()))
            try:
                return connection, send(connection)
            except BaseException as error:
                broke = isinstance(error, psycopg.OperationalError) and connection.closed
                self._pool.putconn(connection)
                if not broke:
                    raise


def _make_scope(org_id: str | None, key_sha256: str | None) -> Parameters:
    return {"scope_org_id": org_id or "", "scope_key_sha256": key_sha256 or ""}


def _begin(connection: psycopg.Connection[Any], scope: Parameters) -> Transaction:
    psycopg.ClientCursor(connection).execute(_BEGIN, scope)
    return Transaction(connection)


def broken_rule(error: psycopg.IntegrityError) -> str | None:
    """Return the name of the constraint that was broken: constraints are named after the rule they keep."""
    return error.diag.constraint_name
