"""The batch API to the letter: inputs copied from a URL, a region for units, and the freeze."""

from anex.migrations.sql_file import run_sql_file

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the SQL file."""
    run_sql_file("0002_batch_api.sql")
