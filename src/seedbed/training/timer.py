"""Time and memory that a pack takes while it trains, by section: prepare, compile, compute, evaluate, write, save.

    timer = Timer(placement, previous)
    with timer.section("compute"):
        trainer.train_step()
    timer.cost()

Memory is measured per pack although a process may train several: on a GPU as what each section allocates the first time
it runs (allocations happen in host order), on a CPU as the resident memory above what the process had before.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch

from seedbed.records import Cost, Placement


class Timer:
    """Seconds and bytes of a pack, added to those of earlier sessions; a session's first update counts as compile."""

    def __init__(self, placement: Placement, previous: Cost | None = None) -> None:
        previous = previous or Cost()
        self.seconds = {"compute": 0.0, "evaluate": 0.0} | dict(previous.seconds)
        self._counts = dict(previous.counts)
        self._previous = previous
        self._memory: _MemoryTracker = (
            _CudaMemoryTracker() if placement.device == "cuda" else _ProcessMemoryTracker(placement.exclusive)
        )
        # The first evaluation is compiled or captured too.
        self._warmup_sections = {"compute"} | ({"evaluate"} if placement.mode != "plain" else set())
        self._seen_sections: set[str] = set()
        self._is_async = placement.device == "cuda"
        self._last_time = time.perf_counter()  # all time before this is accounted for

    @contextmanager
    def section(self, name: str, count: int = 1) -> Iterator[None]:
        """Adds the time of the block to this section, and measures its memory the first time.

        On a GPU the block only queues work, so all time since the last section is added.
        """
        recorded_name = "compile" if name in self._warmup_sections else name
        is_first = name not in self._seen_sections
        if is_first:
            self._memory.begin()
        if not self._is_async:
            self.skip_elapsed()
        yield
        self._add_elapsed(recorded_name, count)
        self._warmup_sections.discard(name)
        if is_first:
            self._seen_sections.add(name)
            self._memory.end()

    def add_device_wait(self, name: str) -> None:
        """Adds the time that the device took for work queued earlier."""
        if self._is_async:
            self._add_elapsed(name, count=0)

    def skip_elapsed(self) -> None:
        """Excludes the time up to now."""
        self._last_time = time.perf_counter()

    def _add_elapsed(self, name: str, count: int) -> None:
        now = time.perf_counter()
        self.add(name, now - self._last_time, count)
        self._last_time = now

    def add(self, name: str, seconds: float, count: int = 1) -> None:
        """Adds seconds to a section; `count` is 0 for more time of work that is already counted."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self._counts[name] = self._counts.get(name, 0) + count

    def cost(self) -> Cost:
        """The cost up to now; steady memory is known once an update has been done."""
        steady = self._memory.steady() if "compute" in self._seen_sections else self._previous.steady_bytes
        peak = max(self._memory.peak(), steady or 0, self._previous.peak_bytes or 0)
        return Cost(dict(self.seconds), dict(self._counts), steady, peak)


class _MemoryTracker(Protocol):
    """Bytes that a pack holds: steady (between updates) and peak."""

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def steady(self) -> int: ...

    def peak(self) -> int: ...


class _CudaMemoryTracker:
    """GPU memory that this pack allocates, measured per section: other packs of the process run in between."""

    def __init__(self) -> None:
        torch.cuda.init()
        self._allocated = self._peak = self._start = 0

    def begin(self) -> None:
        self._start = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()

    def end(self) -> None:
        self._peak = max(self._peak, self._allocated + torch.cuda.max_memory_allocated() - self._start)
        self._allocated += torch.cuda.memory_allocated() - self._start

    def steady(self) -> int:
        return self._allocated

    def peak(self) -> int:
        return self._peak


class _ProcessMemoryTracker:
    """Resident memory of this process above its baseline; it trains one pack at a time.

    Memory that an earlier pack freed is returned first; with `collect_garbage` (where memory is compared) also cycles.
    """

    def __init__(self, collect_garbage: bool) -> None:
        if collect_garbage:
            gc.collect()
        _trim_heap()
        self._baseline = _resident_bytes()
        _reset_peak_resident()

    def begin(self) -> None:
        pass

    def end(self) -> None:
        pass

    def steady(self) -> int:
        return max(0, _resident_bytes() - self._baseline)

    def peak(self) -> int:
        return max(0, _peak_resident_bytes() - self._baseline)


def _trim_heap() -> None:
    """Returns freed heap memory to the system, where the C library supports it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def _resident_bytes() -> int:
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else _peak_resident_bytes()


def _peak_resident_bytes() -> int:
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    peak_kib = next((line.split()[1] for line in lines if line.startswith("VmHWM")), None)
    if peak_kib is None:
        try:
            from resource import RUSAGE_SELF, getrusage
        except ImportError:  # Windows: not measured
            return 0
        return getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return 1024 * int(peak_kib)


def _reset_peak_resident() -> None:
    """Resets the peak of the resident memory (Linux; elsewhere the peak is that of the whole process)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return
