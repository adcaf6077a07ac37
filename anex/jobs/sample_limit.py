"""The daily limit of sampled rows: a sample is run on the model for nothing, and must not become free inference.

Days are UTC's. A job counts its rows when they are drawn; until then it is taken to need as many as a sample ever has, so that no
burst of submits gets past the limit together. A job that is refused or fails before its sample is drawn counts nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anex.errors import SampleLimitReached
from anex.estimating.sample import SAMPLE_ROWS

if TYPE_CHECKING:
    from anex.db import Transaction
    from anex.jobs.model import Job

RETRY_AFTER_MAX_SECONDS = 3600

_COUNT = """
SELECT (SELECT coalesce(sum(rows), 0) FROM sample_days WHERE org_id = %(org_id)s AND day = today.day)
     + %(sample_rows)s * (SELECT count(*) FROM jobs
                          WHERE org_id = %(org_id)s AND samples_rows AND status IN ('submitted', 'estimating')
                            AND NOT EXISTS (SELECT 1 FROM samples WHERE samples.job_id = jobs.id)) AS rows,
       ceil(extract(epoch FROM (today.day + 1)::timestamp - today.now))::bigint AS seconds_left
FROM (SELECT now, now::date AS day FROM (SELECT anex_now() AT TIME ZONE 'UTC' AS now) AS utc) AS today
"""

_NOTE = """
INSERT INTO sample_days (org_id, day, rows) VALUES (%(org_id)s, (anex_now() AT TIME ZONE 'UTC')::date, %(rows)s)
ON CONFLICT (org_id) DO UPDATE
SET rows = excluded.rows + CASE WHEN sample_days.day = excluded.day THEN sample_days.rows ELSE 0 END, day = excluded.day
"""


def require_sample(transaction: Transaction, org_id: str, rows_per_day: int) -> None:
    """Raise ``SampleLimitReached`` when the day's rows are used up. The caller holds the organization's row."""
    counted = transaction.fetch_dict(_COUNT, {"org_id": org_id, "sample_rows": SAMPLE_ROWS}) or {}
    if counted["rows"] < rows_per_day:
        return
    raise SampleLimitReached(
        f"your organization's estimates have sampled {rows_per_day:,} rows today, which is the most for a day (UTC);"
        " set max_output_tokens on a model without reasoning, which needs no sample, or submit again tomorrow",
        min(RETRY_AFTER_MAX_SECONDS, counted["seconds_left"]),
    )


def note_sample(transaction: Transaction, job: Job, rows: int) -> None:
    """Count the rows that were drawn for a job's sample."""
    transaction.execute(_NOTE, {"org_id": job.org_id, "rows": rows})
