"""This machine's resources: how large packs may be, the default placement of each, and what the system says; no torch.

machine = Machine.detect().fit_slots(packs)
machine.capacity(max_runs_by_shape), machine.default_placement(pack, n_packs)
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seedbed.engines.base import EXTRA_SLOTS, EngineResources
from seedbed.errors import OutOfResources, UsageError
from seedbed.records import Pack, Placement
from seedbed.study.pack import Capacity, ShapeKey

MAX_CPU_PACK_BYTES = 24 * 2**20  # beyond the cache, stacking on a CPU gains nothing (docs/log.md)
MAX_GPU_PACK_FRACTION = 1 / 8  # of a GPU's usable memory: several packs train beside one another
MAX_GPU_PACK_BYTES = 6 * 2**30  # where the memory is unknown
MAX_GPU_SLOTS = 12  # concurrent packs on a GPU, each on its own stream
USABLE_GPU_MEMORY_FRACTION = 0.8  # the rest is for the driver, libraries, and the error of predictions
NVML_LIBRARY = "libnvidia-ml.so.1"  # comes with the driver


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
    engine: str = "local"
    address: str | None = None  # of the engine's cluster
    node_cores: tuple[int, ...] = ()  # of each node of a cluster; none: the cores of this machine

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

    def check_memory(self, pack: Pack) -> None:
        """OutOfResources if a single run is predicted to need more memory than there is."""
        available = total_memory_bytes() if self.device == "cpu" else self.memory_bytes
        if available is not None and len(pack.runs) == 1 and pack.bytes > available:
            raise OutOfResources(describe_lack_of_memory(pack.bytes, f"there are {available / 2**20:,.0f} MiB"))

    def resources(self, n_workers: int | None = None) -> EngineResources:
        """What an engine may use of this machine; `n_workers` instead of its own number of processes."""
        if self.node_cores:  # nodes may join it
            n_workers = self.n_workers if self.workers_requested else 0
            return EngineResources(n_workers, self.n_slots, self.gpus, address=self.address)
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
        nodes = self.node_cores or (n_cores(),)
        threads = 1 if has_one_thread else max(1, min(min(nodes), sum(nodes) // n_concurrent))
        mode = self.mode or ("plain" if self.device == "cpu" else "graph")
        return Placement(self.device, threads, mode, workers=n_concurrent, exclusive=exclusive)

    def _n_packs_sharing_a_device(self, n_packs: int) -> int:
        """Packs that train concurrently on one GPU, or on all cores of a CPU."""
        if self.gpus:
            return max(1, min(self.n_slots, -(-n_packs // len(self.gpus))))
        return min(self.n_concurrent_packs, max(1, n_packs))


def describe_lack_of_memory(predicted_bytes: int | None, cause: str) -> str:
    predicted = "" if predicted_bytes is None else f" (predicted: {predicted_bytes / 2**20:,.0f} MiB)"
    return (
        f"a single run does not fit into memory{predicted}: {cause}; "
        "make train.batch_size, task.length or the model smaller, or use a larger machine"
    )


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


# ---- processor and memory ----


def n_cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


def total_memory_bytes() -> int | None:
    """Memory of this machine, or of the container it is used in; None if the system does not say."""
    sizes = []
    with suppress(AttributeError, OSError, ValueError):  # Windows has no sysconf
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            sizes.append(int((Path("/sys/fs/cgroup") / limit).read_text()))
    return min((size for size in sizes if size > 0), default=None)


def process_age_seconds() -> float:
    """Seconds since this process was started; 0 where the system does not report it."""
    stat = Path("/proc/self/stat")
    if not stat.exists():
        return 0.0
    ticks = int(stat.read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


# ---- GPUs ----


def visible_gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES lists, indices or UUIDs; empty if it does not restrict anything."""
    return [each for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if (each := part.strip())]


def gpu_count(devices_folder: Path = Path("/dev")) -> int:
    """Number of GPUs that CUDA programs started by this process see; 0 without a driver."""
    numbered = sum(path.name.removeprefix("nvidia").isdecimal() for path in devices_folder.glob("nvidia*"))
    return len(visible_gpus()) or numbered


def restrict_to_device(device: str) -> None:
    """Makes a GPU such as cuda:1 the only one that this process sees, as `cuda`; call it before CUDA is initialized."""
    index, visible = int(device.partition(":")[2]), visible_gpus()
    # The index counts the GPUs that are visible to the parent.
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[index] if index < len(visible) else str(index)


def gpu_name() -> str:
    """The GPU's model name."""
    for info in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("Model:"):
                return line.partition(":")[2].strip()
    return "GPU"


class _NvmlMemory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


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
    visible = visible_gpus()
    return int(visible[gpu]) if gpu < len(visible) and visible[gpu].isdecimal() else gpu
