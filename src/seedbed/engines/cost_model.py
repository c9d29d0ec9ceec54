"""What a pack would cost at round figures of a machine, for what was never measured on this one; no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from seedbed.models.flops import Workload, evaluation_workload, update_workload
from seedbed.models.model_size import effective_batch_size, estimate_training_bytes
from seedbed.records import Placement, Run


class DeviceSpeed(NamedTuple):
    """Round figures of a way of computing, for what was never measured."""

    flops_per_second: float  # a second
    bytes_per_second: float  # a second
    update_overhead_seconds: float  # seconds of an update besides
    first_update_seconds: float  # seconds of the first update of a session


CPU_THREAD_SPEED: Final = DeviceSpeed(40e9, 8e9, 2e-3, 0.1)  # one thread
GPU_SPEED_BY_MODE: Final = {  # an H200, products in tf32; bytes are those of `predict_bytes`, which a GPU does not all move
    "plain": DeviceSpeed(150e12, 4e12, 4e-3, 0.5), "graph": DeviceSpeed(150e12, 4e12, 6e-4, 5.0),
    "compiled": DeviceSpeed(200e12, 5e12, 4e-4, 45.0),
}  # fmt: skip
STARTUP_SECONDS: Final = {"cpu": 5.0, "cuda": 10.0}  # seconds from the command to the first update: processes, imports
# How many times more updates a second so many packs make together than one does, on one GPU: between the GPT's 2.09 and
# 3.35 with 4 and 12 lanes and the LSTM's 1.49, 2.36, 3.3, 3.7 with 2, 4, 8 and 12 (H200, report D's, 2 runs a pack).
GPU_CONCURRENCY_SPEEDUP: Final = {1: 1.0, 2: 1.4, 4: 2.2, 8: 3.1, 12: 3.5}
DEVICE_SECTIONS: Final = frozenset({"compute", "evaluate"})
PREPARE_SECONDS, SAVE_SECONDS, SAVE_BYTES_PER_SECOND = (
    0.3,
    0.05,
    100e6,
)  # seconds of a build and of a save, and its bytes a second


def predict_seconds(work: Workload, placement: Placement) -> float:
    """Seconds of some work at round figures."""
    speed = _device_speed(placement)
    return work.flops / speed.flops_per_second + work.bytes / speed.bytes_per_second


def _device_speed(placement: Placement) -> DeviceSpeed:
    if placement.device != "cpu":
        return GPU_SPEED_BY_MODE.get(placement.mode, GPU_SPEED_BY_MODE["graph"])
    threads = 0.4 + 0.6 * placement.threads  # the second thread adds some 60 %
    return DeviceSpeed(
        CPU_THREAD_SPEED.flops_per_second * threads,
        CPU_THREAD_SPEED.bytes_per_second * threads,
        CPU_THREAD_SPEED.update_overhead_seconds,
        CPU_THREAD_SPEED.first_update_seconds,
    )


def concurrency_slowdown(device: str, n_packs: int) -> float:
    """How much longer a pack's work on the device takes beside others than alone; cores of a CPU are not shared.

    >>> [round(slowdown("cuda", workers), 2) for workers in (1, 3, 12, 24)]
    [1.0, 1.67, 3.43, 6.86]
    """
    if device == "cpu" or n_packs <= 1:
        return 1.0
    return n_packs / float(np.interp(n_packs, list(GPU_CONCURRENCY_SPEEDUP), list(GPU_CONCURRENCY_SPEEDUP.values())))


def scale_device_seconds(seconds: Mapping[str, float], factor: float) -> dict[str, float]:
    """Times of which those of work on the device are so many times as long."""
    return {name: spent * (factor if name in DEVICE_SECTIONS else 1.0) for name, spent in seconds.items()}


def predict_section_seconds(runs: Sequence[Run], placement: Placement) -> dict[str, float]:
    """Seconds that everything a pack does takes a time, at round figures."""
    run, n, speed = largest_batch_run(runs), len(runs), _device_speed(placement)
    bytes_ = n * estimate_training_bytes(run.settings, run.dataset_info)
    alone = {
        "prepare": PREPARE_SECONDS, "compile": speed.first_update_seconds, "save": SAVE_SECONDS + n * SAVE_SECONDS / 5 + bytes_ / SAVE_BYTES_PER_SECOND / 2,
        "compute": speed.update_overhead_seconds + n * predict_seconds(update_workload(run.settings, run.dataset_info), placement),
        "evaluate": speed.update_overhead_seconds + n * predict_seconds(evaluation_workload(run.settings, run.dataset_info), placement),
    }  # fmt: skip
    return scale_device_seconds(alone, concurrency_slowdown(placement.device, placement.workers))


def largest_batch_run(runs: Sequence[Run]) -> Run:
    """The run to whose batch a pack is padded."""
    return max(runs, key=lambda run: effective_batch_size(run.settings, run.dataset_info))
