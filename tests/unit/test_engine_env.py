"""Installing the engine's environment: what goes wrong, without the gigabytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from config.stack import engine_env, engine_shim
from config.stack.engine_env import LOCK, EngineInstallFailed, install_engine

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    return tmp_path / "engine"


def write_fake_python(venv: Path, script: str) -> Path:
    """Put a script where the environment's interpreter stands; it logs what it was asked."""
    python = engine_env.engine_python(venv)
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f'#!/bin/sh\necho "$@" >> "{venv}/calls"\n{script}\n')
    python.chmod(0o755)
    return python


def read_calls(venv: Path) -> list[str]:
    return (venv / "calls").read_text().splitlines()


def test_torch_is_looked_for_where_pip_is_configured_first(venv: Path) -> None:
    write_fake_python(venv, "exit 0")
    engine_env._install_torch(venv, Path("torch.txt"), lambda _: None)
    (call,) = read_calls(venv)
    assert "--require-hashes" in call
    assert "--index-url" not in call


def test_torch_is_then_looked_for_at_pytorch_without_retries(venv: Path) -> None:
    write_fake_python(venv, 'case "$*" in *download.pytorch.org*) exit 0;; *) exit 1;; esac')
    engine_env._install_torch(venv, Path("torch.txt"), lambda _: None)
    assert read_calls(venv)[1].endswith("--retries=0 --timeout=5")


def test_torch_nowhere_says_what_to_do_and_what_pip_said(venv: Path) -> None:
    write_fake_python(venv, "echo 'No matching distribution found'; exit 1")
    with pytest.raises(EngineInstallFailed, match="PIP_FIND_LINKS") as failed:
        engine_env._install_torch(venv, Path("torch-lock.txt"), lambda _: None)
    assert "No matching distribution found" in failed.value.message
    assert "torch-lock.txt" in failed.value.message


def test_a_folder_that_is_no_environment_is_left_alone(venv: Path) -> None:
    venv.mkdir()
    (venv / "letter.txt").write_text("dear reader")
    with pytest.raises(EngineInstallFailed, match="not a virtual environment"):
        install_engine(venv, LOCK, lambda _: None)
    assert (venv / "letter.txt").read_text() == "dear reader"


def test_a_complete_environment_is_not_touched(venv: Path) -> None:
    write_fake_python(venv, "exit 1")
    (venv / "anex-engine.sha256").write_text(engine_env._digest(LOCK))
    install_engine(venv, LOCK, lambda _: None)
    assert not (venv / "calls").exists()


@pytest.mark.parametrize("stamp", [None, "of other locks"])
def test_an_interrupted_or_older_environment_is_made_anew(
    venv: Path, stamp: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_fake_python(venv, "exit 1")
    if stamp is not None:
        (venv / "anex-engine.sha256").write_text(stamp)
    made: list[Path] = []
    monkeypatch.setattr(engine_env, "_install", lambda venv, _lock, _report: made.append(venv))
    install_engine(venv, LOCK, lambda _: None)
    install_engine(venv, LOCK, lambda _: None)
    assert made == [venv]


def test_locks_pin_with_hashes_and_name_no_index() -> None:
    for lock in (LOCK, engine_env._torch_lock(LOCK)):
        text = lock.read_text()
        pinned = engine_env._pinned(lock)
        assert pinned
        assert "://" not in text
        requirements = [block for block in text.split("\n") if block and block[0] not in "# "]
        assert len(requirements) >= len(pinned)
        assert all(block.rstrip().endswith("\\") for block in requirements), "a requirement without a hash"
    assert "torch" not in engine_env._pinned(LOCK)


def test_runs_with_nothing_but_the_standard_library() -> None:
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(PROJECT)!r}); import config.stack.engine_env",
    ]
    subprocess.run(command, check=True)


def test_the_import_repair_is_installed_once_however_often_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "meta_path", [])
    engine_shim.install()
    engine_shim.install()
    (finder,) = sys.meta_path
    assert isinstance(finder, engine_shim._TorchvisionFinder)


def test_the_import_repair_acts_for_torchvision_alone_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    acted: list[bool] = []
    monkeypatch.setattr(engine_shim, "_define_operators", lambda: acted.append(True))
    monkeypatch.setattr(sys, "meta_path", [])
    engine_shim.install()
    (finder,) = sys.meta_path
    assert finder.find_spec("torch", None) is None
    assert not acted
    assert finder.find_spec("torchvision", None) is None
    assert acted == [True]
    assert sys.meta_path == []
