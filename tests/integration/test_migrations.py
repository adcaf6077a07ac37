"""The schema: made as its owner, refused when older, and walled between tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from anex import migrations
from anex.errors import DatabaseUnavailable
from anex.jobs.transitions import MOVES

if TYPE_CHECKING:
    from tests.support.servers import DatabaseUrls


def test_upgrading_twice_changes_nothing(fresh_database_urls: DatabaseUrls) -> None:
    migrations.upgrade(fresh_database_urls.owner)
    with psycopg.connect(fresh_database_urls.work) as connection:
        migrations.require_current(connection)


def test_an_older_schema_is_refused(fresh_database_urls: DatabaseUrls) -> None:
    with psycopg.connect(fresh_database_urls.owner) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0000'")
    with (
        psycopg.connect(fresh_database_urls.work) as connection,
        pytest.raises(DatabaseUnavailable, match="anex migrate"),
    ):
        migrations.require_current(connection)


def test_the_moves_in_the_database_are_the_moves_in_the_code(database_urls: DatabaseUrls) -> None:
    with psycopg.connect(database_urls.work) as connection:
        rows = connection.execute("SELECT from_status, to_status FROM job_moves").fetchall()
    assert set(rows) == {
        (source.value, target.value) for source, targets in MOVES.items() for target in targets
    }
