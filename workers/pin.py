"""GPU pinning: which GPUs an engine child may see, decided before any GPU library is loaded.

A CUDA process can't change its GPUs once the driver is initialised, and importing torch in the parent would cost
seconds and memory and might initialise it. So the parent only asks the driver's management library (NVML), and
hands the choice to the child by environment.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

DEVICES_PATH = Path("/dev")
NVML_LIBRARY = "libnvidia-ml.so.1"


class GpusMissing(Exception):
    """The machine has fewer GPUs than the model needs."""


def detect_gpus(devices_path: Path = DEVICES_PATH, nvml_library: str = NVML_LIBRARY) -> list[int]:
    """Return the numbers of this machine's usable NVIDIA GPUs, 0 to n - 1; empty when there is none.

    Usable means: a device file (containers get only those of their own GPUs; WSL has ``dxg``) and a driver that
    counts devices. Numbers are CUDA's under ``CUDA_DEVICE_ORDER=PCI_BUS_ID``, which is NVML's order, not those of
    the device files: a container that holds only ``nvidia3`` has a GPU 0.
    """
    has_device = any(devices_path.glob("nvidia[0-9]*")) or (devices_path / "dxg").exists()
    return list(range(_count_nvml_devices(nvml_library))) if has_device else []


def pick_gpus(available: Sequence[int], tensor_parallel: int, unit: int = 0) -> list[int]:
    """Return the GPUs of the ``unit``-th engine on this machine. Raises ``GpusMissing``."""
    first = unit * tensor_parallel
    picked = list(available[first : first + tensor_parallel])
    if len(picked) < tensor_parallel:
        raise GpusMissing(
            f"engine {unit} needs GPUs {first} to {first + tensor_parallel - 1}, but this machine has "
            f"{len(available)}; lower the model's tensor parallelism or the number of engines"
        )
    return picked


def pin_environment(gpus: Sequence[int]) -> dict[str, str]:
    """Return what the child's environment needs to see these GPUs only; an empty list hides all of them."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}


def _count_nvml_devices(nvml_library: str) -> int:
    """Ask NVML for the number of devices; 0 when there is no driver or it does not work."""
    try:
        nvml = ctypes.CDLL(nvml_library)
    except OSError:
        return 0
    if nvml.nvmlInit_v2() != 0:
        return 0
    count = ctypes.c_uint(0)
    status = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    nvml.nvmlShutdown()
    return count.value if status == 0 else 0
