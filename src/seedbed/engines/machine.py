"""What this machine offers a study: its name, how large packs may be, and where each of them runs; no torch.

machine = Machine.here().fitted(packs)
machine.room(stacked), machine.placement(pack, n_packs)
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from seedbed.engines.local import EXTRA_SLOTS, find_device, n_cores
from seedbed.engines.nvml import gpu_memory_bytes, gpu_name
from seedbed.records import Pack, Placement
from seedbed.study.pack import Capacity, ShapeKey

MAX_CPU_PACK_BYTES = 24 * 2**20  # bytes; beyond the cache, stacking on a CPU gains nothing (docs/log.md)
MAX_GPU_PACK_BYTES = (
    6 * 2**30
)  # with all lanes full of such packs 72 GiB, besides those that are compiled ahead meanwhile
MAX_GPU_SLOTS = 12  # packs that share a GPU at a time, each on its own stream
USABLE_GPU_MEMORY_FRACTION = (
    0.8  # of a GPU's memory; the rest is the driver's, the libraries', and what predictions miss
)


@dataclass(frozen=True)
class Machine:
    """A device, and how many packs train on it at a time."""

    device: str
    n_workers: int
    mode: str | None = None  # None: chosen for each pack
    workers_requested: bool = True  # else what packs started with counts when they go on
    memory_bytes: int | None = None  # bytes of a GPU that packs may hold together; None: not known, taken for plenty
    max_slots: int = MAX_GPU_SLOTS

    @classmethod
    def detect(cls, device: str | None = None, n_workers: int | None = None, mode: str | None = None) -> Machine:
        """This machine, as found or as asked for; a GPU has one worker, a CPU one for each core."""
        device = device or find_device()
        found = n_workers or (n_cores() if device == "cpu" else 1)
        memory = None if device == "cpu" else gpu_memory_bytes()
        usable = None if memory is None else int(USABLE_GPU_MEMORY_FRACTION * memory)
        return cls(device, found, mode, workers_requested=n_workers is not None, memory_bytes=usable)

    def fit_slots(self, packs: Iterable[Pack]) -> Machine:
        """This machine with as many lanes as have room for the largest of these packs side by side."""
        if self.memory_bytes is None:
            return self
        sizes = sorted((pack.bytes for pack in packs if not pack.runs[0].settings.train.exclusive), reverse=True)
        fits = (n for n in range(self.max_slots, 1, -1) if sum(sizes[: n + EXTRA_SLOTS]) <= self.memory_bytes)
        return replace(self, max_slots=next(fits, 1))

    @property
    def n_slots(self) -> int:
        """Packs that one process trains in turn."""
        return 1 if self.device == "cpu" else self.max_slots

    @property
    def n_concurrent_packs(self) -> int:
        """Packs that train at a time, in all processes together."""
        return self.n_workers * self.n_slots

    def capacity(self, max_runs_by_shape: Mapping[ShapeKey, int] | None = None) -> Capacity:
        """Limits of packs; `stacked` are those of shapes for which it was measured how many runs pay."""
        if self.device == "cpu":
            return Capacity(
                max_bytes=MAX_CPU_PACK_BYTES,
                max_runs=64,
                min_packs=self.n_workers,
                measured_max_runs=max_runs_by_shape or {},
            )
        largest = MAX_GPU_PACK_BYTES if self.memory_bytes is None else min(MAX_GPU_PACK_BYTES, self.memory_bytes // 2)
        return Capacity(max_bytes=largest, max_runs=512, min_packs=1)

    def default_placement(self, pack: Pack, n_packs: int) -> Placement:
        """Single-threaded workers when there are packs for all of them; else a pack may use the idle cores.

        On a GPU the whole update is one graph; `choice.py` knows where compiling it first pays.
        """
        alone = pack.runs[0].settings.train.exclusive
        side_by_side = 1 if alone else min(self.n_concurrent_packs, max(1, n_packs))
        threads = max(1, n_cores() // side_by_side) if self.device == "cpu" else 1
        engine = self.mode or ("plain" if self.device == "cpu" else "graph")
        return Placement(self.device, threads, engine, workers=side_by_side, exclusive=alone)


def machine_name(device: str) -> str:
    """The processor with its cores, and the GPU where that is used: rates of one are not those of another."""
    name = f"{processor_name()} × {n_cores()}"
    return name if device == "cpu" else f"{gpu_name()}, {name}"


def processor_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())
