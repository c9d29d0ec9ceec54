"""Number, name and memory of this machine's GPUs, as the driver reports them; no torch."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

NVML_LIBRARY = "libnvidia-ml.so.1"  # comes with the driver


class _NvmlMemory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def gpu_name() -> str:
    """The GPU's model name."""
    for info in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("Model:"):
                return line.partition(":")[2].strip()
    return "GPU"


def gpu_count(devices_folder: Path = Path("/dev")) -> int:
    """Number of GPUs that CUDA programs started by this process see; 0 without a driver."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if visible.strip():
        return len(visible.split(","))
    return sum(path.name.removeprefix("nvidia").isdecimal() for path in devices_folder.glob("nvidia*"))


def gpu_memory_bytes(load_library: Callable[[str], Any] = ctypes.CDLL, gpu: int = 0) -> int | None:
    """Total memory of a GPU, used or free, by its number among the visible; None if the driver does not report it."""
    try:
        library = load_library(NVML_LIBRARY)
    except OSError:
        return None
    if library.nvmlInit_v2() != 0:
        return None
    handle, memory = ctypes.c_void_p(), _NvmlMemory()
    try:
        succeeded = library.nvmlDeviceGetHandleByIndex_v2(_driver_index(gpu), ctypes.byref(handle)) == 0
        succeeded = succeeded and library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
    finally:
        library.nvmlShutdown()
    return memory.total if succeeded and memory.total else None


def _driver_index(gpu: int) -> int:
    """The driver's index of a visible GPU; its number if CUDA_VISIBLE_DEVICES has no index for it, but a UUID, say."""
    visible = [each.strip() for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return int(visible[gpu]) if gpu < len(visible) and visible[gpu].isdecimal() else gpu
