"""Webhooks and ingest callbacks: endpoints, deliveries and their attempts."""

from anex.migrations.sql_file import run_sql_file

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the SQL file."""
    run_sql_file("0005_webhooks.sql")
