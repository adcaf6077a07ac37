"""Room for threads that wait for strangers: for their name servers, their files' hosts, and the compiling of their schemas.

One budget for all of it, since they share the threads of the API: it is less than half of them (``api.gunicorn_conf``), so that
others are answered however long strangers take. Who finds no room does without, or asks to be tried again.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACES = 3
"""Of a process."""

_places = threading.BoundedSemaphore(PLACES)


@contextmanager
def waiting_place() -> Iterator[bool]:
    """Take a place for the block, if there is one at once; yield whether there was."""
    has_place = _places.acquire(blocking=False)
    try:
        yield has_place
    finally:
        if has_place:
            _places.release()
