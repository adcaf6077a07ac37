"""Connections and transactions on a real Postgres: whose rows a message sees, and connections that break or stand still."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import psycopg
import pytest

from anex.db import Database
from anex.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import DatabaseUrls

SCOPE = "SELECT current_setting('anex.org_id', true) AS org, current_setting('anex.key_sha256', true) AS key"
STATEMENT_SECONDS = 0.5


@pytest.fixture
def database(fresh_database_urls: DatabaseUrls) -> Iterator[Database]:
    """One connection, so that each use meets what the one before left behind."""
    opened = Database(
        fresh_database_urls.api, max_connections=1, statement_timeout_seconds=STATEMENT_SECONDS
    ).open()
    yield opened
    opened.close()


def backend(database: Database) -> int:
    row = database.reader().fetch_dict("SELECT pg_backend_pid() AS pid")
    assert row is not None
    return int(row["pid"])


def test_a_reader_says_whose_rows_it_reads_and_leaves_nothing_behind(database: Database) -> None:
    reader = database.reader("org_a", key_sha256="ab")
    assert reader.fetch_dict(SCOPE) == {"org": "org_a", "key": "ab"}
    assert database.reader().fetch_dict(SCOPE) == {"org": "", "key": ""}
    with database.transaction("org_b") as transaction:
        assert transaction.fetch_dict(SCOPE) == {"org": "org_b", "key": ""}
    with database.transaction() as transaction:
        assert transaction.fetch_dict(SCOPE) == {"org": "", "key": ""}


def test_a_readers_values_are_values(database: Database) -> None:
    texts = ["it's", 'a "b" \\ %s', "'; DROP TABLE jobs; --", "é\n"]
    rows = database.reader("'; --").fetch_dicts(
        "SELECT each AS text, %(none)s::int AS none, %(whole)s + 1 AS whole, 7 %% 4 AS rest FROM unnest(%(texts)s::text[]) AS each",
        {"texts": texts, "none": None, "whole": -5},
    )
    assert rows == [{"text": text, "none": None, "whole": -4, "rest": 3} for text in texts]


def test_a_statement_that_fails_takes_nothing_along(database: Database) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        database.reader().fetch_dict("SELECT 1 / 0 AS never")
    with pytest.raises(psycopg.errors.DivisionByZero), database.transaction() as transaction:
        transaction.execute("SELECT 1 / 0")
    pid = backend(database)
    assert backend(database) == pid


def test_an_idle_connection_that_broke_is_replaced(
    database: Database, fresh_database_urls: DatabaseUrls
) -> None:
    for use in (backend, open_transaction):
        pid = backend(database)
        with psycopg.connect(fresh_database_urls.superuser) as connection:
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        assert use(database) != pid


def open_transaction(database: Database) -> int:
    with database.transaction() as transaction:
        row = transaction.fetch_dict("SELECT pg_backend_pid() AS pid")
    assert row is not None
    return int(row["pid"])


def test_a_connection_that_breaks_inside_a_transaction_is_told(
    database: Database, fresh_database_urls: DatabaseUrls
) -> None:
    committed: list[str] = []

    def lose_connection() -> None:
        with database.transaction() as transaction:
            transaction.after_commit(lambda: committed.append("rung"))
            with psycopg.connect(fresh_database_urls.superuser) as connection:
                pid = transaction.connection.info.backend_pid
                connection.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
            transaction.execute("SELECT 1")

    with pytest.raises(DatabaseUnavailable):
        lose_connection()
    assert not committed
    open_transaction(database)


def test_a_statement_that_takes_too_long_fails_and_its_connection_stays(database: Database) -> None:
    pid = backend(database)
    with pytest.raises(DatabaseUnavailable):
        database.reader().fetch_dict("SELECT pg_sleep(60)")
    assert backend(database) == pid


def test_a_server_that_stands_still_is_not_waited_for(database: Database) -> None:
    """It can't keep its own time-out: the client gives up on it. Where nothing was done yet, another connection serves."""
    stopped: list[int] = []

    def stop_server(pid: int) -> None:
        stopped.append(pid)
        os.kill(pid, signal.SIGSTOP)

    def ask_inside() -> None:
        with database.transaction() as transaction:
            stop_server(transaction.connection.info.backend_pid)
            transaction.execute("SELECT 1")

    try:
        stop_server(backend(database))
        assert backend(database) not in stopped
        with pytest.raises(DatabaseUnavailable):
            ask_inside()
        assert backend(database) not in stopped
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
