"""What this machine offers a study: its name, how large packs may be, and where each of them runs; no torch.

machine = Machine.here().fitted(packs)
machine.room(stacked), machine.placement(pack, n_packs)
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from seedbed.engines.graphics import graphics, graphics_memory
from seedbed.engines.local import EXTRA, find_device, n_cores
from seedbed.records import Pack, Placement
from seedbed.study.pack import Room, ShapeKey

CPU_PACK = 24 * 2**20  # bytes; beyond the cache, stacking on a CPU gains nothing (docs/log.md)
GPU_PACK = 6 * 2**30  # with all lanes full of such packs 72 GiB, besides those that are compiled ahead meanwhile
GPU_LANES = 12  # packs that share a GPU at a time, each on its own stream
USABLE = 0.8  # of a GPU's memory; the rest is the driver's, the libraries', and what predictions miss


@dataclass(frozen=True)
class Machine:
    """A device, and how many packs train on it at a time."""

    device: str
    n_workers: int
    engine: str | None = None  # None: chosen for each pack
    workers_asked: bool = True  # else what packs started with counts when they go on
    memory: int | None = None  # bytes of a GPU that packs may hold together; None: not known, taken for plenty
    lanes: int = GPU_LANES

    @classmethod
    def here(cls, device: str | None = None, n_workers: int | None = None, engine: str | None = None) -> Machine:
        """This machine, as found or as asked for; a GPU has one worker, a CPU one for each core."""
        device = device or find_device()
        found = n_workers or (n_cores() if device == "cpu" else 1)
        memory = None if device == "cpu" else graphics_memory()
        usable = None if memory is None else int(USABLE * memory)
        return cls(device, found, engine, workers_asked=n_workers is not None, memory=usable)

    def fitted(self, packs: Iterable[Pack]) -> Machine:
        """This machine with as many lanes as have room for the largest of these packs side by side."""
        if self.memory is None:
            return self
        sizes = sorted((pack.bytes for pack in packs if not pack.runs[0].settings.train.alone), reverse=True)
        fits = (n for n in range(self.lanes, 1, -1) if sum(sizes[: n + EXTRA]) <= self.memory)
        return replace(self, lanes=next(fits, 1))

    @property
    def n_lanes(self) -> int:
        """Packs that one process trains in turn."""
        return 1 if self.device == "cpu" else self.lanes

    @property
    def n_side_by_side(self) -> int:
        """Packs that train at a time, in all processes together."""
        return self.n_workers * self.n_lanes

    def room(self, stacked: Mapping[ShapeKey, int] | None = None) -> Room:
        """Limits of packs; `stacked` are those of shapes for which it was measured how many runs pay."""
        if self.device == "cpu":
            return Room(max_bytes=CPU_PACK, max_runs=64, min_packs=self.n_workers, stacked=stacked or {})
        largest = GPU_PACK if self.memory is None else min(GPU_PACK, self.memory // 2)
        return Room(max_bytes=largest, max_runs=512, min_packs=1)

    def placement(self, pack: Pack, n_packs: int) -> Placement:
        """Single-threaded workers when there are packs for all of them; else a pack may use the idle cores.

        On a GPU the whole update is one graph; `choice.py` knows where compiling it first pays.
        """
        alone = pack.runs[0].settings.train.alone
        side_by_side = 1 if alone else min(self.n_side_by_side, max(1, n_packs))
        threads = max(1, n_cores() // side_by_side) if self.device == "cpu" else 1
        engine = self.engine or ("plain" if self.device == "cpu" else "graph")
        return Placement(self.device, threads, engine, workers=side_by_side, alone=alone)


def machine_name(device: str) -> str:
    """The processor with its cores, and the GPU where that is used: rates of one are not those of another."""
    name = f"{processor()} × {n_cores()}"
    return name if device == "cpu" else f"{graphics()}, {name}"


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())
