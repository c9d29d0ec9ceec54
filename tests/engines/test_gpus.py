"""GPU memory as NVML reports it, with a fake library; without a driver it is unknown and nothing fails."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from seedbed.engines.machine import NVML_LIBRARY, gpu_count, gpu_memory_bytes

GIB = 2**30


class FakeLibrary:
    """NVML with two GPUs of 8 and 24 GiB; `broken` names a call that fails."""

    def __init__(self, broken: str = "") -> None:
        self.broken, self.open = broken, False

    def _code(self, call: str) -> int:
        return 1 if call == self.broken else 0

    def nvmlInit_v2(self) -> int:
        self.open = self._code("init") == 0
        return self._code("init")

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        handle._obj.value = 100 + index
        return self._code("handle")

    def nvmlDeviceGetMemoryInfo(self, handle: ctypes.c_void_p, memory: Any) -> int:
        memory._obj.total = {100: 8 * GIB, 101: 24 * GIB}[handle.value]
        return self._code("memory")

    def nvmlShutdown(self) -> int:
        self.open = False
        return 0


@pytest.mark.parametrize(("visible", "gib"), [(None, 8), ("0", 8), ("1,0", 24), ("GPU-5f2a", 8)])
def test_memory_is_that_of_the_first_visible_gpu(visible, gib, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    library = FakeLibrary()
    assert gpu_memory_bytes({NVML_LIBRARY: library}.__getitem__) == gib * GIB
    assert not library.open


@pytest.mark.parametrize(("visible", "gib"), [(None, 24), ("1,0", 8), ("GPU-5f2a,GPU-6c3b", 24)])
def test_memory_of_another_visible_gpu(visible, gib, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_memory_bytes(lambda _: FakeLibrary(), gpu=1) == gib * GIB


@pytest.mark.parametrize(("visible", "n_gpus"), [(None, 3), ("", 3), ("2", 1), ("0,2", 2), ("GPU-5f2a,GPU-6c3b", 2)])
def test_gpus_are_counted_by_their_device_files_or_the_visible_ones(visible, n_gpus, monkeypatch, tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_count(tmp_path) == n_gpus
    assert gpu_count(tmp_path / "none") == (n_gpus if visible else 0)


@pytest.mark.parametrize("broken", ["init", "handle", "memory"])
def test_memory_is_unknown_where_the_driver_does_not_report_it(broken):
    library = FakeLibrary(broken)
    assert gpu_memory_bytes(lambda _: library) is None
    assert not library.open


def test_memory_is_unknown_without_a_driver():
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    assert gpu_memory_bytes(missing) is None
