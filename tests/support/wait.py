"""Wait for a condition with a limit: the tests' only way to wait."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_PAUSE_SECONDS = 0.02


def wait_until(condition: Callable[[], T], *, timeout_seconds: float = 30.0, what: str) -> T:
    """Return the first truthy value of ``condition``; fail with ``what`` when the limit passes."""
    deadline = time.monotonic() + timeout_seconds
    pause = threading.Event()
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_seconds} s: {what} (last seen: {value!r})")
        pause.wait(_PAUSE_SECONDS)
