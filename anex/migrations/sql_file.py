"""Run a migration that is a plain SQL file: what a reviewer reads is what Postgres runs."""

from __future__ import annotations

from importlib.resources import files

from alembic import op


def run_sql_file(name: str) -> None:
    """Run the statements of ``anex/migrations/sql/<name>`` in the migration's transaction.

    They go to the driver as they stand: SQLAlchemy would take each ``%`` for a parameter.
    """
    text = files("anex.migrations").joinpath("sql", name).read_text(encoding="utf-8")
    driver_connection = op.get_bind().connection.driver_connection
    if driver_connection is None:
        raise RuntimeError("a migration runs on an open connection")
    driver_connection.execute(text)
