"""Prepare rows ahead of the engine: what has to be fetched is fetched side by side, and comes out in the rows' order."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

AHEAD_MAX = 8
"""Rows that are prepared at once: each may hold an item of up to 192 MiB."""
POLL_SECONDS = 0.5
"""How often whoever waits may look at something else."""

R = TypeVar("R")
P = TypeVar("P")


def prepare_ahead(
    rows: Iterable[R], prepare: Callable[[R], P], is_slow: Callable[[R], bool]
) -> Iterator[P | None]:
    """Yield ``prepare(row)`` of each row, in order; up to ``AHEAD_MAX`` slow ones are prepared side by side.

    Yields None now and then while the next one is awaited. What is under way when a caller stops early ends by itself.
    """
    waiting: deque[Future[P]] = deque()
    threads = ThreadPoolExecutor(AHEAD_MAX, thread_name_prefix="ahead")
    try:
        for row in rows:
            waiting.append(threads.submit(prepare, row) if is_slow(row) else _done(prepare(row)))
            while waiting and (len(waiting) >= AHEAD_MAX or waiting[0].done()):
                yield from _take(waiting)
        while waiting:
            yield from _take(waiting)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _take(waiting: deque[Future[P]]) -> Iterator[P | None]:
    """Yield the first one's outcome, None while it isn't there."""
    while not wait([waiting[0]], POLL_SECONDS).done:
        yield None
    yield waiting.popleft().result()


def _done(value: P) -> Future[P]:
    future: Future[P] = Future()
    future.set_result(value)
    return future
