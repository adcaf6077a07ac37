"""How fast this installation serves a model: how long its engines take to start, and what they do of what the catalog promises.

The catalog's figures cut the chunks and stand in until there is something measured. A chunk's time is no measure of an engine's
pace, since a unit runs several side by side: what counts is the work of the chunks that ended against the time in which a unit had
any.
"""

from __future__ import annotations

from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anex.db import Reader, Transaction
    from anex.units.model import Unit

STARTS_KEPT = 20
"""Of a model, revision and region; their median is what the next start is expected to take."""

CHUNKS_MEASURED = 200
CHUNK_MIN_SECONDS = 20.0
"""Smaller chunks, by the catalog's figures, don't fill an engine and say nothing of its pace."""
PACE_MIN, PACE_MAX = 0.02, 50.0
"""A pace beyond this is a fault of the measurement, or of the catalog's figures."""

_INSERT_START = """
INSERT INTO engine_starts (region, model, model_revision, seconds, at)
VALUES (%(region)s, %(model)s, %(model_revision)s, %(seconds)s, anex_now())
"""

_FORGET_STARTS = """
DELETE FROM engine_starts WHERE id IN (
    SELECT id FROM engine_starts WHERE region = %(region)s AND model = %(model)s ORDER BY id DESC OFFSET %(kept)s)
"""

_IS_WARM = """
SELECT EXISTS (
    SELECT 1 FROM units
    WHERE region = %(region)s AND model = %(model)s AND model_revision = %(revision)s AND engine_state = 'ready'
      AND heartbeat_at > anex_now() - %(alive)s * interval '1 second') AS warm
"""

_STARTS = """
SELECT seconds FROM engine_starts WHERE region = %(region)s AND model = %(model)s AND model_revision = %(revision)s
ORDER BY id DESC LIMIT %(kept)s
"""

_CHUNKS = """
SELECT chunks.ran_by, chunks.expected_seconds,
       extract(epoch FROM chunks.claimed_at)::float8 AS began, extract(epoch FROM chunks.ended_at)::float8 AS ended
FROM chunks JOIN jobs ON jobs.id = chunks.job_id
WHERE chunks.state = 'done' AND chunks.claimed_at IS NOT NULL AND chunks.ran_by IS NOT NULL AND chunks.expected_seconds >= %(least)s
  AND jobs.region = %(region)s AND jobs.model = %(model)s AND jobs.model_revision = %(revision)s
ORDER BY chunks.ended_at DESC LIMIT %(most)s
"""


def note_start(transaction: Transaction, unit: Unit, seconds: float) -> None:
    """Record how long a unit's engine took from its start to being ready; the last ones are kept."""
    values = {"region": unit.region, "model": unit.model, "model_revision": unit.model_revision}
    transaction.execute(_INSERT_START, {**values, "seconds": seconds})
    transaction.execute(_FORGET_STARTS, {**values, "kept": STARTS_KEPT})


def find_start_seconds(
    reader: Reader, region: str, model: str, revision: str, alive_seconds: float
) -> float | None:
    """Return how long a job waits for an engine: 0 where one is ready, the median of past starts, None with none known."""
    named = {"region": region, "model": model, "revision": revision}
    warm = reader.fetch_dict(_IS_WARM, {**named, "alive": alive_seconds})
    if warm is not None and warm["warm"]:
        return 0.0
    starts: list[float] = [
        row["seconds"] for row in reader.fetch_dicts(_STARTS, {**named, "kept": STARTS_KEPT})
    ]
    return median(starts) if starts else None


def find_pace(reader: Reader, region: str, model: str, revision: str) -> float | None:
    """Return how many seconds of work, by the catalog's figures, a unit does in one second; None with nothing measured."""
    named = {"region": region, "model": model, "revision": revision}
    chunks = reader.fetch_dicts(_CHUNKS, {**named, "least": CHUNK_MIN_SECONDS, "most": CHUNKS_MEASURED})
    times = sorted((row["ran_by"], row["began"], row["ended"]) for row in chunks)
    busy_seconds = sum(
        _cover_seconds((began, ended) for _, began, ended in own)
        for _, own in groupby(times, key=lambda time: time[0])
    )
    if busy_seconds <= 0:
        return None
    pace: float = sum(row["expected_seconds"] for row in chunks) / busy_seconds
    return min(max(pace, PACE_MIN), PACE_MAX)


def _cover_seconds(spans: Iterable[tuple[float, float]]) -> float:
    """Return how much time spans cover, which come in the order of their beginnings and may overlap."""
    covered, reached = 0.0, float("-inf")
    for began, ended in spans:
        covered += max(0.0, ended - max(began, reached))
        reached = max(reached, ended)
    return covered
