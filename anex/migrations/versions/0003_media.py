"""Media in rows: what they come to in spans and chunks, and what is known of hosted clips."""

from anex.migrations.sql_file import run_sql_file

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the SQL file."""
    run_sql_file("0003_media.sql")
