"""The schema's history: alembic orders and records it, plain SQL files make it.

Only ``anex migrate`` and the one-machine stack call ``upgrade``. Everything else calls ``require_current`` at its start and
refuses to run on another schema than the one its code was written for.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool

from anex.errors import DatabaseUnavailable

if TYPE_CHECKING:
    import psycopg

# Any constant that no other advisory lock in the schema uses: two migrations at once take turns.
_MIGRATION_LOCK = 0x616E6578


def upgrade(owner_url: str) -> None:
    """Bring the database to the newest revision, as ``anex_owner``; does nothing when it is there already.

    Raises ``sqlalchemy.exc.OperationalError`` when Postgres is away or a lock is not to be had in time.
    """
    engine = create_engine(make_url(owner_url).set(drivername="postgresql+psycopg"), poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _MIGRATION_LOCK})
        connection.commit()
        config = _config()
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        finally:
            connection.rollback()
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _MIGRATION_LOCK})
            connection.commit()


def newest_revision() -> str:
    """Return the revision that this code was written for."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    if head is None:
        raise RuntimeError("the package holds no migrations")
    return head


def require_current(connection: psycopg.Connection) -> None:
    """Raise ``DatabaseUnavailable`` unless the schema is the one this code was written for."""
    wanted = newest_revision()
    found = connection.execute("SELECT to_regclass('alembic_version') IS NOT NULL AS made").fetchone()
    revision = None
    if found is not None and found[0]:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        revision = row[0] if row is not None else None
    if revision != wanted:
        raise DatabaseUnavailable(
            f"the database schema is at {revision or 'nothing'}, this version needs {wanted}; run: anex migrate"
        )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(files("anex.migrations")))
    config.set_main_option("path_separator", "os")
    return config
