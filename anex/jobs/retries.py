"""Answers of an engine that say nothing of the row: it is asked again, after a pause that doubles."""

from __future__ import annotations

import random

RETRIES_MAX = 3
JITTER = 0.5
"""Share of a pause that is left to chance, so that rows that failed together don't come back together."""

_TRANSIENT = frozenset({429, 500, 503, 504})


def is_transient(status: int) -> bool:
    """Whether an answer's status is of the engine's own reasons."""
    return status in _TRANSIENT


def pause_seconds(first_seconds: float, tries: int) -> float:
    """Return how long to wait after the ``tries``-th try (from 1)."""
    return float(first_seconds * 2 ** (tries - 1) * (1 + JITTER * random.random()))  # noqa: S311 - jitter is no secret
