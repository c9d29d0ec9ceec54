"""Name and memory of this machine's GPU, as its driver reports them; no torch."""

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


def gpu_memory_bytes(load_library: Callable[[str], Any] = ctypes.CDLL) -> int | None:
    """Total memory of the GPU, used or free; None if the driver does not report it."""
    try:
        library = load_library(NVML_LIBRARY)
    except OSError:
        return None
    if library.nvmlInit_v2() != 0:
        return None
    handle, memory = ctypes.c_void_p(), _NvmlMemory()
    try:
        succeeded = library.nvmlDeviceGetHandleByIndex_v2(_first_visible_gpu(), ctypes.byref(handle)) == 0
        succeeded = succeeded and library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
    finally:
        library.nvmlShutdown()
    return memory.total if succeeded and memory.total else None


def _first_visible_gpu() -> int:
    """Index of the GPU that torch sees as the first; 0 if CUDA_VISIBLE_DEVICES has a UUID instead of an index."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return int(first) if first.isdecimal() else 0
