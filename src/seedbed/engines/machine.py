"""This machine's resources: its name, how large packs may be, and the default placement of each; no torch.

machine = Machine.detect().fit_slots(packs)
machine.capacity(max_runs_by_shape), machine.default_placement(pack, n_packs)
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from seedbed.engines.base import EngineResources
from seedbed.engines.local import EXTRA_SLOTS, n_cores
from seedbed.engines.nvml import gpu_count, gpu_memory_bytes, gpu_name
from seedbed.errors import UsageError
from seedbed.records import Pack, Placement
from seedbed.study.pack import Capacity, ShapeKey

MAX_CPU_PACK_BYTES = 24 * 2**20  # beyond the cache, stacking on a CPU gains nothing (docs/log.md)
MAX_GPU_PACK_FRACTION = 1 / 8  # of a GPU's usable memory: several packs train beside one another
MAX_GPU_PACK_BYTES = 6 * 2**30  # where the memory is unknown
MAX_GPU_SLOTS = 12  # concurrent packs on a GPU, each on its own stream
USABLE_GPU_MEMORY_FRACTION = 0.8  # the rest is for the driver, libraries, and the error of predictions


@dataclass(frozen=True)
class Machine:
    """The devices to train on, and how many packs train on them concurrently."""

    device: str  # cpu or cuda
    n_workers: int  # processes that train
    mode: str | None = None  # None: chosen for each pack
    workers_requested: bool = True  # otherwise resumed packs keep the number they started with
    memory_bytes: int | None = None  # of one GPU, for all its packs together; None: unknown, assumed ample
    max_slots: int = MAX_GPU_SLOTS  # of one GPU
    gpus: tuple[str, ...] = ()  # such as cuda:1, where each has a process of its own; none: the only GPU, or a CPU

    @classmethod
    def detect(cls, device: str | None = None, n_workers: int | None = None, mode: str | None = None) -> Machine:
        """This machine, as detected where not given; a GPU has one worker process, a CPU one per core.

        `cuda` stands for all GPUs, `cuda:1` for one of them.
        """
        if device is not None and not re.fullmatch(r"cpu|cuda(:\d+)?", device):
            raise UsageError(f"device {device}: expected cpu, cuda (all GPUs) or one GPU, such as cuda:1")
        if mode is not None and mode not in ("plain", "graph", "compiled"):
            raise UsageError(f"mode {mode}: expected plain, graph or compiled")
        if n_workers is not None and n_workers < 1:
            raise UsageError(f"workers {n_workers}: expected at least 1 process")
        device, requested = device or find_device(), n_workers is not None
        if device == "cpu":
            return cls(device, n_workers or n_cores(), mode, workers_requested=requested)
        numbers = _gpu_numbers(device)
        memories = [memory for gpu in numbers if (memory := gpu_memory_bytes(gpu=gpu)) is not None]
        usable = int(USABLE_GPU_MEMORY_FRACTION * min(memories)) if memories else None
        gpus = tuple(f"cuda:{gpu}" for gpu in numbers) if numbers != [0] or gpu_count() > 1 else ()
        n_processes = len(gpus) or n_workers or 1
        return cls("cuda", n_processes, mode, workers_requested=requested, memory_bytes=usable, gpus=gpus)

    def fit_slots(self, packs: Iterable[Pack]) -> Machine:
        """This machine with as many slots as fit into memory when the largest of these packs train concurrently."""
        if self.memory_bytes is None:
            return self
        sizes = sorted((pack.bytes for pack in packs if not pack.runs[0].settings.train.exclusive), reverse=True)
        fits = (n for n in range(self.max_slots, 1, -1) if sum(sizes[: n + EXTRA_SLOTS]) <= self.memory_bytes)
        return replace(self, max_slots=next(fits, 1))

    @property
    def n_slots(self) -> int:
        """Packs that one process trains concurrently."""
        return 1 if self.device == "cpu" else self.max_slots

    @property
    def n_concurrent_packs(self) -> int:
        """Packs that train concurrently in all processes together."""
        return self.n_workers * self.n_slots

    def resources(self, n_workers: int | None = None) -> EngineResources:
        """What an engine may use of this machine; `n_workers` instead of its own number of processes."""
        return EngineResources(n_workers or self.n_workers, self.n_slots, self.gpus)

    def capacity(self, max_runs_by_shape: Mapping[ShapeKey, int] | None = None) -> Capacity:
        """Limits of packs; `max_runs_by_shape` are those of shapes where measurements gave a smaller one."""
        if self.device == "cpu":
            return Capacity(
                max_bytes=MAX_CPU_PACK_BYTES,
                max_runs=64,
                min_packs=self.n_workers,
                measured_max_runs=max_runs_by_shape or {},
            )
        largest = MAX_GPU_PACK_BYTES
        if self.memory_bytes is not None:  # on a small GPU a pack may take half of it
            largest = max(int(MAX_GPU_PACK_FRACTION * self.memory_bytes), min(largest, self.memory_bytes // 2))
        return Capacity(max_bytes=largest, max_runs=512, min_packs=max(1, len(self.gpus)), device="cuda")

    def default_placement(self, pack: Pack, n_packs: int) -> Placement:
        """On a CPU one thread per pack, or more if there are fewer packs than cores; on a GPU one CUDA graph.

        Sums are in another order with more threads, so packs of reproducible runs always have one.

        `choose_placement` refines this where compiling or fewer threads are faster.
        """
        exclusive = pack.runs[0].settings.train.exclusive
        n_concurrent = 1 if exclusive else self._n_packs_sharing_a_device(n_packs)
        has_one_thread = self.device != "cpu" or pack.runs[0].settings.train.reproducible
        threads = 1 if has_one_thread else max(1, n_cores() // n_concurrent)
        mode = self.mode or ("plain" if self.device == "cpu" else "graph")
        return Placement(self.device, threads, mode, workers=n_concurrent, exclusive=exclusive)

    def _n_packs_sharing_a_device(self, n_packs: int) -> int:
        """Packs that train concurrently on one GPU, or on all cores of a CPU."""
        if self.gpus:
            return max(1, min(self.n_slots, -(-n_packs // len(self.gpus))))
        return min(self.n_concurrent_packs, max(1, n_packs))


def find_device() -> str:
    """`cuda` if an NVIDIA driver is loaded, else `cpu`; without importing torch."""
    return "cuda" if Path("/dev/nvidia0").exists() else "cpu"


def _gpu_numbers(device: str) -> list[int]:
    """The numbers of the GPUs that `cuda` or `cuda:1` stands for; [0] for the only one."""
    n_gpus, number = max(1, gpu_count()), device.partition(":")[2]
    if not number:
        return list(range(n_gpus))
    if not number.isdecimal() or int(number) >= n_gpus:
        known = ", ".join(f"cuda:{gpu}" for gpu in range(n_gpus))
        raise UsageError(f"there is no GPU {device} on this machine; expected cuda or one of {known}")
    return [int(number)]


def machine_name(device: str) -> str:
    """Processor, number of cores and, if used, the GPU: rates are valid only for the machine with that name."""
    name = f"{processor_name()} × {n_cores()}"
    return name if device == "cpu" else f"{gpu_name()}, {name}"


def processor_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())
