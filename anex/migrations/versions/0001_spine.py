"""The spine: organizations, keys, inputs, jobs, spans, chunks, ledger, and the walls between tenants."""

from anex.migrations.sql_file import run_sql_file

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the SQL file."""
    run_sql_file("0001_spine.sql")
