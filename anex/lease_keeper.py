"""A lease that lives for as long as a block runs: a thread extends it in time, and says when it is lost."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from anex.errors import AnexError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = structlog.get_logger(__name__)


@contextmanager
def kept_alive(extend: Callable[[], bool], every_seconds: float) -> Iterator[threading.Event]:
    """Call ``extend`` every so often while the block runs; yields an event that is set once it answered False: the lease is lost.

    A fact that stops one extension (the database is away) is logged: the lease runs out by itself if that goes on, and the
    fence guards what counts.
    """
    ended, lost = threading.Event(), threading.Event()

    def keep() -> None:
        while not ended.wait(every_seconds) and not lost.is_set():
            try:
                if not extend():
                    lost.set()
            except AnexError as error:
                log.warning("lease_not_extended", error=error.message)

    keeper = threading.Thread(target=keep, name="lease-keeper", daemon=True)
    keeper.start()
    try:
        yield lost
    finally:
        ended.set()
        keeper.join()
