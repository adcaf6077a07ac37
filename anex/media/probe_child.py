"""The process that becomes ffprobe: it limits itself first, so that a stranger's clip costs no more than that.

Used as ``python -I -S probe_child.py PARENT PROGRAM argument…``, by its path: nothing but the standard library is in its
reach. A program of its own, because code between fork and exec in a process with threads may deadlock. The kernel
kills it when the thread that started it ends: that thread waits for it, so it ends earlier only by dying.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

MEMORY_MAX_BYTES = 512 << 20
CPU_MAX_SECONDS = 5
FILE_MAX_BYTES = 64 << 10
"""What it may write: its answer, and its complaints."""
OPEN_FILES_MAX = 16
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Set the limits and become the program."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the setting took hold
        return
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for kind, value in (
        (resource.RLIMIT_AS, MEMORY_MAX_BYTES),
        (resource.RLIMIT_CPU, CPU_MAX_SECONDS),
        (resource.RLIMIT_FSIZE, FILE_MAX_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES_MAX),
        (resource.RLIMIT_NPROC, 0),  # neither threads nor processes; the kernel spares root this one
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))
    os.execv(program[0], program)  # noqa: S606 - no shell, and nothing of a stranger's among the arguments


if __name__ == "__main__":
    main()
