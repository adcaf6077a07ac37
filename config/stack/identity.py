"""As whom Postgres runs: it refuses to be root, and wants a user that the machine has a name for."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from typing import TYPE_CHECKING

from config.stack.child import NAMESPACE_PREFIX, SAME, USER_PREFIX
from config.stack.errors import IdentityImpossible
from config.stack.layout import PROJECT_FOLDER

if TYPE_CHECKING:
    from pathlib import Path

_PROBE_TIMEOUT_SECONDS = 30


def choose_identity(program: Path) -> str:
    """Return the identity (``config.stack.child``) under which ``program`` runs.

    A named, ordinary user stays itself. Root first tries a user namespace, in which it is the user ``nobody``
    while its files stay root's; else it becomes that user, whom the data folder's cluster is given to. Raises
    ``IdentityImpossible``.
    """
    if os.geteuid() != 0 and _has_name(os.geteuid()):
        return SAME
    user = _find_unprivileged_user()
    candidates = [f"{NAMESPACE_PREFIX}{user}"]
    if os.geteuid() == 0:
        candidates.append(f"{USER_PREFIX}{user}")
    for identity in candidates:
        if _can_run(identity, program):
            return identity
    raise IdentityImpossible(
        f"Postgres does not run as user id {os.geteuid()}, and here {program} can be run neither in a user "
        "namespace nor as an unprivileged user. Start `anex up` as an ordinary user (the program and "
        "ANEX_DATA_DIR must be readable for it), or set ANEX_DATABASE_OWNER_URL, ANEX_DATABASE_API_URL and "
        "ANEX_DATABASE_WORK_URL to a Postgres of your own."
    )


def wrap_command(command: list[str], identity: str, death_signal: int) -> list[str]:
    """Return the command that runs ``command`` as a child of this process (see ``config.stack.child``)."""
    wrapper = [sys.executable, "-S", "-m", "config.stack.child"]
    return [*wrapper, str(os.getpid()), str(int(death_signal)), identity, *command]


def _can_run(identity: str, program: Path) -> bool:
    probe = subprocess.run(
        wrap_command([str(program), "--version"], identity, 9),
        cwd=PROJECT_FOLDER,
        capture_output=True,
        timeout=_PROBE_TIMEOUT_SECONDS,
        check=False,
    )
    return probe.returncode == 0


def _has_name(user: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True


def _find_unprivileged_user() -> int:
    """Return the id of ``nobody``, or of any other user but root: initdb looks its name up."""
    users = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid != 0}
    if not users:
        raise IdentityImpossible("/etc/passwd names no user but root, and Postgres needs one: add one")
    return users.get("nobody", next(iter(users.values())))
