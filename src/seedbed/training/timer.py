"""What a pack costs while it trains: seconds by what they go to, and memory; nothing is decided here.

    meter = Meter(placement, spent)
    with meter.spending("compute"):
        trainer.advance()
    meter.cost()

Memory is counted per pack although a process may hold several: on a GPU, whose allocations happen in the host's order,
as what each kind of work allocates the first time it is done; on a CPU as the process's pages above those it had.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from resource import RUSAGE_SELF, getpagesize, getrusage
from typing import Protocol

import torch

from seedbed.records import Cost, Placement


class Timer:
    """The clocks of a pack, which go on from what was spent before; the first update of a session is its warm-up."""

    def __init__(self, placement: Placement, previous: Cost | None = None) -> None:
        previous = previous or Cost()
        self.seconds = {"compute": 0.0, "evaluate": 0.0} | dict(previous.seconds)
        self._counts = dict(previous.counts)
        self._previous = previous
        self._memory: _MemoryTracker = (
            _CudaMemoryTracker() if placement.device == "cuda" else _ProcessMemoryTracker(placement.exclusive)
        )
        self._warmup_sections = {"compute"} | ({"evaluate"} if placement.mode == "compiled" else set())
        self._seen_sections: set[str] = set()
        self._is_async = placement.device == "cuda"
        self._last_time = time.perf_counter()  # until when all is booked

    @contextmanager
    def section(self, name: str, count: int = 1) -> Iterator[None]:
        """Books the time of what is done inside, and its memory where it is done for the first time.

        On a GPU work is only queued inside, so all time counts from booking to booking.
        """
        booked = "compile" if name in self._warmup_sections else name
        first = name not in self._seen_sections
        if first:
            self._memory.begin()
        if not self._is_async:
            self.skip_elapsed()
        yield
        self._add_elapsed(booked, count)
        self._warmup_sections.discard(name)
        if first:
            self._seen_sections.add(name)
            self._memory.end()

    def add_device_wait(self, name: str) -> None:
        """Books the time that the device took for work that was queued before."""
        if self._is_async:
            self._add_elapsed(name, count=0)

    def skip_elapsed(self) -> None:
        """Leaves out the time up to here."""
        self._last_time = time.perf_counter()

    def _add_elapsed(self, name: str, count: int) -> None:
        now = time.perf_counter()
        self.add(name, now - self._last_time, count)
        self._last_time = now

    def add(self, name: str, seconds: float, count: int = 1) -> None:
        """Adds seconds; `times` is 0 for what belongs to work that was counted before."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self._counts[name] = self._counts.get(name, 0) + count

    def cost(self) -> Cost:
        """All of it up to now; memory is steady once an update has been done."""
        steady = self._memory.steady() if "compute" in self._seen_sections else self._previous.steady_bytes
        peak = max(self._memory.peak(), steady or 0, self._previous.peak_bytes or 0)
        return Cost(dict(self.seconds), dict(self._counts), steady, peak)


class _MemoryTracker(Protocol):
    """Bytes that a pack holds: between updates, and at most."""

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def steady(self) -> int: ...

    def peak(self) -> int: ...


class _CudaMemoryTracker:
    """What this pack's own work allocates on the GPU and keeps; other packs of the process work in between."""

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
    """Resident pages of this process above those that it had; it trains one pack at a time.

    What an earlier pack left is not this one's; where memory is to be compared, it is looked for thoroughly.
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
    """Returns freed heap to the system, as far as it can be asked to."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * getpagesize() if pages.exists() else _peak_resident_bytes()


def _peak_resident_bytes() -> int:
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    highest = next((line.split()[1] for line in lines if line.startswith("VmHWM")), None)
    return 1024 * int(highest or getrusage(RUSAGE_SELF).ru_maxrss)


def _reset_peak_resident() -> None:
    """Lets the system count the peak from here on (Linux; elsewhere it is that of the whole process)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return
