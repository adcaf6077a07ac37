"""The process that outlives a killed supervisor by seconds and sees to it that nothing else does.

Used as ``python -S -m config.stack.guardian MARK``; the supervisor holds the other end of its standard input
and tells it which sessions to watch (``+ 123``, ``- 123``). When the pipe closes, the supervisor is gone. Its
direct children have had their stop signal from the kernel by then (``config.stack.child``); what is left of
the stack after a grace is killed. It inherits the data folder's lock, so that no new supervisor starts in
between.
"""

from __future__ import annotations

import signal
import sys
import time

from config.stack.proc import find_members, kill_members

GRACE_SECONDS = 5.0
"""Enough for Postgres' fast stop and SeaweedFS' slow one."""

_PAUSE_SECONDS = 0.05


def watch(mark: str) -> None:
    """Follow the supervisor's orders until it is gone, then end what it left."""
    sessions: set[int] = set()
    for line in sys.stdin:
        order, session = line.split()
        if order == "+":
            sessions.add(int(session))
        else:
            sessions.discard(int(session))
    _end_all(mark, frozenset(sessions))


def _end_all(mark: str, sessions: frozenset[int]) -> None:
    deadline = time.monotonic() + GRACE_SECONDS
    while find_members(mark, sessions) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    while kill_members(mark, sessions):
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    # The supervisor says when it is over: a Ctrl-C or a terminal's hang-up is its business, not ours.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watch(sys.argv[1])
