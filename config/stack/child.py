"""The first thing every child runs: tie its life to the supervisor's, take its identity, become the program.

Used as ``python -S -m config.stack.child PARENT DEATH_SIGNAL IDENTITY program argument…``. A program of its
own, because code between fork and exec in a process with threads may deadlock. The kernel sends the death
signal when the supervisor's main thread ends, in whatever way. Changing identity clears that setting, so the
identity comes first. Standard library only: this runs before every service.
"""

from __future__ import annotations

import ctypes
import os
import sys

SAME = "same"
"""Run as who we are."""

NAMESPACE_PREFIX = "namespace:"
"""Run in a user namespace in which we are the user named by the number after the colon."""

USER_PREFIX = "user:"
"""Run as the user named by the number after the colon; needs root."""

_CLONE_NEWUSER = 0x10000000
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def become(program: list[str], *, parent: int, death_signal: int, identity: str) -> None:
    """Replace this process by ``program``; returns only when the parent is already gone."""
    _take_identity(identity)
    _check(_libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0), "prctl")
    if os.getppid() != parent:  # it died before the setting took hold
        return
    os.execv(program[0], program)  # noqa: S606 - there is no shell and no input of strangers


def _take_identity(identity: str) -> None:
    if identity.startswith(NAMESPACE_PREFIX):
        _enter_namespace(int(identity.removeprefix(NAMESPACE_PREFIX)))
    elif identity.startswith(USER_PREFIX):
        user = int(identity.removeprefix(USER_PREFIX))
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)


def _enter_namespace(user: int) -> None:
    """Become ``user`` inside a new user namespace; outside, files stay ours (``user_namespaces(7)``)."""
    outer_user, outer_group = os.geteuid(), os.getegid()
    _check(_libc.unshare(_CLONE_NEWUSER), "unshare")
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {outer_user} 1"),
        ("gid_map", f"{user} {outer_group} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, line.encode())
        os.close(descriptor)


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


if __name__ == "__main__":
    become(sys.argv[4:], parent=int(sys.argv[1]), death_signal=int(sys.argv[2]), identity=sys.argv[3])
