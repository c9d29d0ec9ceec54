"""The GPU of this machine as its driver tells it: what it is, and its memory; no torch."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

NVML_LIBRARY = "libnvidia-ml.so.1"  # NVML, which comes with the driver


class _NvmlMemory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def gpu_name() -> str:
    """The GPU's model."""
    for info in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("Model:"):
                return line.partition(":")[2].strip()
    return "GPU"


def gpu_memory_bytes(load_library: Callable[[str], Any] = ctypes.CDLL) -> int | None:
    """Bytes of the GPU's memory, whoever holds them; None where the driver does not tell."""
    try:
        library = load_library(NVML_LIBRARY)
    except OSError:
        return None
    if library.nvmlInit_v2() != 0:
        return None
    handle, memory = ctypes.c_void_p(), _NvmlMemory()
    try:
        found = library.nvmlDeviceGetHandleByIndex_v2(_first_visible_gpu(), ctypes.byref(handle)) == 0
        found = found and library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
    finally:
        library.nvmlShutdown()
    return memory.total if found and memory.total else None


def _first_visible_gpu() -> int:
    """The number of the GPU that torch calls its first, unless it is named in another way than by a number."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return int(named) if named.isdecimal() else 0
