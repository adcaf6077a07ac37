"""Alembic's entry point: one transaction per migration, with limits on how long it may wait and run.

A migration that cannot get its lock soon gives up, instead of queueing every request of a live service behind it.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, text

LOCK_TIMEOUT = "5s"
STATEMENT_TIMEOUT = "300s"


def _migrate(connection: Connection) -> None:
    connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
    connection.execute(text(f"SET statement_timeout = '{STATEMENT_TIMEOUT}'"))
    connection.commit()
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


_migrate(context.config.attributes["connection"])
