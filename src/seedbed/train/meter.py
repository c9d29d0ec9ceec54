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


class Meter:
    """The clocks of a pack, which go on from what was spent before; the first update of a session is its warm-up."""

    def __init__(self, placement: Placement, spent: Cost | None = None) -> None:
        spent = spent or Cost()
        self.seconds = {"compute": 0.0, "evaluate": 0.0} | dict(spent.seconds)
        self._counts = dict(spent.counts)
        self._before = spent
        self._memory: _Memory = _DeviceMemory() if placement.device == "cuda" else _ProcessMemory(placement.alone)
        self._cold = {"compute"} | ({"evaluate"} if placement.engine == "compiled" else set())
        self._met: set[str] = set()
        self._queues = placement.device == "cuda"
        self._last = time.perf_counter()  # until when all is booked

    @contextmanager
    def spending(self, on: str, times: int = 1) -> Iterator[None]:
        """Books the time of what is done inside, and its memory where it is done for the first time.

        On a GPU work is only queued inside, so all time counts from booking to booking.
        """
        booked = "compile" if on in self._cold else on
        first = on not in self._met
        if first:
            self._memory.begin()
        if not self._queues:
            self.pause()
        yield
        self._book_since(booked, times)
        self._cold.discard(on)
        if first:
            self._met.add(on)
            self._memory.end()

    def wait(self, on: str) -> None:
        """Books the time that the device took for work that was queued before."""
        if self._queues:
            self._book_since(on, times=0)

    def pause(self) -> None:
        """Leaves out the time up to here."""
        self._last = time.perf_counter()

    def _book_since(self, name: str, times: int) -> None:
        now = time.perf_counter()
        self.book(name, now - self._last, times)
        self._last = now

    def book(self, name: str, seconds: float, times: int = 1) -> None:
        """Adds seconds; `times` is 0 for what belongs to work that was counted before."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self._counts[name] = self._counts.get(name, 0) + times

    def cost(self) -> Cost:
        """All of it up to now; memory is steady once an update has been done."""
        steady = self._memory.steady() if "compute" in self._met else self._before.steady
        peak = max(self._memory.peak(), steady or 0, self._before.peak or 0)
        return Cost(dict(self.seconds), dict(self._counts), steady, peak)


class _Memory(Protocol):
    """Bytes that a pack holds: between updates, and at most."""

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def steady(self) -> int: ...

    def peak(self) -> int: ...


class _DeviceMemory:
    """What this pack's own work allocates on the GPU and keeps; other packs of the process work in between."""

    def __init__(self) -> None:
        torch.cuda.init()
        self._held = self._peak = self._start = 0

    def begin(self) -> None:
        self._start = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()

    def end(self) -> None:
        self._peak = max(self._peak, self._held + torch.cuda.max_memory_allocated() - self._start)
        self._held += torch.cuda.memory_allocated() - self._start

    def steady(self) -> int:
        return self._held

    def peak(self) -> int:
        return self._peak


class _ProcessMemory:
    """Resident pages of this process above those that it had; it trains one pack at a time.

    What an earlier pack left is not this one's; where memory is to be compared, it is looked for thoroughly.
    """

    def __init__(self, thorough: bool) -> None:
        if thorough:
            gc.collect()
        _give_back_freed()
        self._bare = _resident()
        _forget_peak()

    def begin(self) -> None:
        pass

    def end(self) -> None:
        pass

    def steady(self) -> int:
        return max(0, _resident() - self._bare)

    def peak(self) -> int:
        return max(0, _most_resident() - self._bare)


def _give_back_freed() -> None:
    """Returns freed heap to the system, as far as it can be asked to."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _resident() -> int:
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * getpagesize() if pages.exists() else _most_resident()


def _most_resident() -> int:
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    highest = next((line.split()[1] for line in lines if line.startswith("VmHWM")), None)
    return 1024 * int(highest or getrusage(RUSAGE_SELF).ru_maxrss)


def _forget_peak() -> None:
    """Lets the system count the peak from here on (Linux; elsewhere it is that of the whole process)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return
