"""How estimates fared against what became of their jobs: ``anex estimates report``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anex.db import Reader

# A cap that the customer set is no estimate: only jobs without one say whether the cap covers. A job that failed after its sample
# and before its price was refused one.
_REPORT = """
SELECT jobs.model, count(*) FILTER (WHERE status = 'done') AS done,
       count(*) FILTER (WHERE status = 'done' AND asked_max_tokens IS NULL) AS caps,
       count(*) FILTER (WHERE status = 'done' AND asked_max_tokens IS NULL AND 20 * truncated_rows <= total_rows) AS caps_covering,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY est_cost_cents::float8 / nullif(cost_cents, 0))
           FILTER (WHERE status = 'done') AS median_hold_over_charge,
       count(*) FILTER (WHERE status = 'failed' AND cost_ready_at IS NULL AND samples.lengths IS NOT NULL) AS refused
FROM jobs LEFT JOIN samples ON samples.job_id = jobs.id
WHERE samples_rows AND finished_at > anex_now() - %(days)s * interval '1 day'
GROUP BY jobs.model ORDER BY jobs.model
"""


@dataclass(frozen=True, slots=True)
class ModelReport:
    """The sampled jobs of one model that ended lately."""

    model: str
    done: int
    caps: int
    """Of those that are done: whose cap was estimated."""
    caps_covering: int
    """Of these: in which at most one row in twenty was truncated."""
    median_hold_over_charge: float | None
    refused: int
    """Jobs that got no estimate for what their sample showed."""


def report_estimates(reader: Reader, days: int) -> list[ModelReport]:
    """Return a report on each model whose sampled jobs ended within ``days``."""
    return reader.fetch_all(ModelReport, _REPORT, {"days": days})
