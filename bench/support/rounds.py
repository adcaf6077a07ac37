"""What every benchmark does: turns of the thing and its reference in the same run, medians, words, and one line of JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 3
"""Turns of each at least: the median of three shrugs off one bad turn."""


def take_turns(*sides: Callable[[], float], rounds: int = ROUNDS) -> list[float]:
    """Call the sides in turn, A B A B, and return each one's median of what it returned."""
    taken = [[side() for side in sides] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def time_seconds(action: Callable[[], object]) -> float:
    """Return how long ``action`` takes, wall clock."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def say(text: str) -> None:
    """Tell people how it goes."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_figures(**figures: Any) -> None:
    """Write the line of JSON that ends every benchmark."""
    say(json.dumps(figures))


def read_peak_mb(pid: int) -> float:
    """Return the most memory that a process ever held (``VmHWM``), in MB of 1,048,576 bytes."""
    return _read_status_mb(pid, "VmHWM:")


def read_rss_mb(pid: int) -> float:
    """Return the memory that a process holds now (``VmRSS``), in MB of 1,048,576 bytes."""
    return _read_status_mb(pid, "VmRSS:")


def _read_status_mb(pid: int, name: str) -> float:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:  # noqa: PTH123 - proc is no tree to walk
        line = next(line for line in status if line.startswith(name))
    return int(line.split()[1]) / 1024
