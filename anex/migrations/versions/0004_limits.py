"""Limits of what an organization's estimates and a single row may take: sampled rows a day, and rows that kill their engine."""

from anex.migrations.sql_file import run_sql_file

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the SQL file."""
    run_sql_file("0004_limits.sql")
