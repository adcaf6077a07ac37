from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from workers.pin import GpusMissing, detect_gpus, pick_gpus, pin_environment

if TYPE_CHECKING:
    from pathlib import Path


class FakeNvml:
    """The three calls of NVML, counting four devices."""

    def __init__(self, path: str) -> None:
        self.path = path

    def nvmlInit_v2(self) -> int:  # noqa: N802 - the library's name
        return 0 if self.path != "broken" else 9

    def nvmlDeviceGetCount_v2(self, count: object) -> int:  # noqa: N802 - the library's name
        ctypes.cast(count, ctypes.POINTER(ctypes.c_uint))[0] = 4  # type: ignore[arg-type]
        return 0

    def nvmlShutdown(self) -> int:  # noqa: N802 - the library's name
        return 0


def test_no_device_file_is_no_gpu_whatever_the_driver_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", FakeNvml)
    (tmp_path / "nvidiactl").touch()
    assert detect_gpus(tmp_path) == []


def test_a_device_file_without_a_driver_is_no_gpu(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    assert detect_gpus(tmp_path, nvml_library="libno-such.so.1") == []


def test_gpus_are_numbered_as_cuda_does_not_as_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", FakeNvml)
    (tmp_path / "nvidia3").touch()
    assert detect_gpus(tmp_path) == [0, 1, 2, 3]
    assert detect_gpus(tmp_path, nvml_library="broken") == []


def test_each_engine_gets_gpus_of_its_own() -> None:
    assert [pick_gpus([0, 1, 2, 3], 2, unit) for unit in (0, 1)] == [[0, 1], [2, 3]]
    with pytest.raises(GpusMissing, match="engine 2 needs GPUs 4 to 5, but this machine has 4"):
        pick_gpus([0, 1, 2, 3], 2, unit=2)


def test_the_child_sees_its_gpus_only() -> None:
    assert pin_environment([2, 3])["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert pin_environment([])["CUDA_VISIBLE_DEVICES"] == ""


def test_looking_for_gpus_loads_no_gpu_library() -> None:
    script = "import sys, workers.pin; workers.pin.detect_gpus(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
