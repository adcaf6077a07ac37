"""Fetches pieces a little ahead of their use: the network works while the caller does, in bounded memory."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LOOK_AHEAD = 2
"""Pieces that are being fetched while one is used: memory is LOOK_AHEAD + 1 pieces."""


def fetch_ahead(fetch: Callable[[int, int], bytes], spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Yield ``fetch(start, end)`` for each span, in order. A fetch's error is raised in its place.

    A caller that stops early cancels what has not begun and does not wait for what has.
    """
    executor = ThreadPoolExecutor(LOOK_AHEAD, thread_name_prefix="fetch-ahead")
    waiting = iter(spans)
    try:
        ahead: deque[Future[bytes]] = deque(
            executor.submit(fetch, *span) for span in islice(waiting, LOOK_AHEAD)
        )
        while ahead:
            piece = ahead.popleft().result()
            ahead.extend(executor.submit(fetch, *span) for span in islice(waiting, 1))
            yield piece
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
