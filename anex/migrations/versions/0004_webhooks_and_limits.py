"""Webhooks and ingest callbacks; rows sampled in a day, and rows that kill their engine."""

from anex.migrations.sql_file import run_sql_file

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the SQL file."""
    run_sql_file("0004_webhooks_and_limits.sql")
