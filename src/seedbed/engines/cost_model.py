"""Predicts the cost of a pack from typical speeds, for what has not been measured on this machine; no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from seedbed.models.model_size import (
    Workload,
    effective_batch_size,
    estimate_state_bytes,
    evaluation_workload,
    update_workload,
)
from seedbed.records import Placement, Run


class DeviceSpeed(NamedTuple):
    """Typical speed of a device in one mode, in round numbers."""

    flops_per_second: float
    bytes_per_second: float
    update_overhead_seconds: float  # of every update, whatever its size
    first_update_seconds: float  # what the first update of a session takes longer, with compiling and capturing


# One core with AVX-512 at 2.8 GHz; a third of the matmul peak of 164 GFLOP/s is lost to everything else.
CPU_THREAD_SPEED: Final = DeviceSpeed(100e9, 12e9, 4e-3, 0.05)
# An H200 with TF32 matrix products; the bytes of a workload are an upper bound of what a GPU moves.
GPU_SPEED_BY_MODE: Final = {
    "plain": DeviceSpeed(150e12, 4e12, 4e-3, 0.5), "graph": DeviceSpeed(150e12, 4e12, 6e-4, 5.0),
    "compiled": DeviceSpeed(200e12, 5e12, 4e-4, 45.0),
}  # fmt: skip
# Matrix products of models of this size, relative to TF32.
GPU_SPEED_BY_PRECISION: Final = {"fp32": 0.35, "tf32": 1.0, "bf16": 1.8}
STARTUP_SECONDS: Final = {"cpu": 3.5, "cuda": 10.0}  # until the first update: processes, imports
# Total updates per second of that many concurrent packs on one GPU, relative to one pack. Between what was measured for
# the GPT (2.09 and 3.35 with 4 and 12 packs) and the LSTM (1.49, 2.36, 3.3, 3.7 with 2, 4, 8, 12) of report D on an
# H200, 2 runs per pack.
GPU_CONCURRENCY_SPEEDUP: Final = {1: 1.0, 2: 1.4, 4: 2.2, 8: 3.1, 12: 3.5}
DEVICE_SECTIONS: Final = frozenset({"compute", "evaluate"})
PREPARE_SECONDS = 0.1
SAVE_SECONDS, SAVE_SECONDS_PER_RUN, SAVE_BYTES_PER_SECOND = 0.01, 0.004, 500e6  # files are written beside training


def predict_update(run: Run, placement: Placement) -> float:
    """Seconds that one update of one run computes at typical speeds, without overhead."""
    return _predict_seconds(update_workload(run.settings, run.dataset_info), run, placement)


def predict_evaluation(run: Run, placement: Placement) -> float:
    """The same for one evaluation."""
    return _predict_seconds(evaluation_workload(run.settings, run.dataset_info), run, placement)


def _predict_seconds(workload: Workload, run: Run, placement: Placement) -> float:
    speed = _device_speed(placement)
    relative = GPU_SPEED_BY_PRECISION[run.settings.train.precision] if placement.device != "cpu" else 1.0
    return workload.flops / (relative * speed.flops_per_second) + workload.bytes / speed.bytes_per_second


def _device_speed(placement: Placement) -> DeviceSpeed:
    if placement.device != "cpu":
        return GPU_SPEED_BY_MODE.get(placement.mode, GPU_SPEED_BY_MODE["graph"])
    speedup = 0.4 + 0.6 * placement.threads  # each further thread adds about 60 %
    return CPU_THREAD_SPEED._replace(
        flops_per_second=CPU_THREAD_SPEED.flops_per_second * speedup,
        bytes_per_second=CPU_THREAD_SPEED.bytes_per_second * speedup,
    )


def concurrency_slowdown(placement: Placement, work_seconds: float, n_packs: int | None = None) -> float:
    """Time of a pack's updates among the concurrent packs, relative to alone; CPU packs have cores of their own.

    `work_seconds` is what an update computes. What it takes besides, the overhead of its kernels, overlaps with that
    of other packs; work does not, since it fills the GPU.

    >>> on_gpu = Placement("cuda", mode="graph")
    >>> [round(concurrency_slowdown(on_gpu, 0.0, n_packs), 2) for n_packs in (1, 3, 12, 24)]
    [1.0, 1.67, 3.43, 6.86]
    >>> round(concurrency_slowdown(on_gpu, 1.0, n_packs=12), 1)
    12.0
    """
    n_packs = placement.workers if n_packs is None else n_packs
    if placement.device == "cpu" or n_packs <= 1:
        return 1.0
    speedup = float(np.interp(n_packs, list(GPU_CONCURRENCY_SPEEDUP), list(GPU_CONCURRENCY_SPEEDUP.values())))
    overhead = _device_speed(placement).update_overhead_seconds
    return n_packs * (overhead / speedup + work_seconds) / (overhead + work_seconds)


def update_work_seconds(runs: Sequence[Run], placement: Placement) -> float:
    """Seconds that a pack's update computes at typical speeds, without overhead."""
    return len(runs) * predict_update(largest_batch_run(runs), placement)


def scale_device_seconds(seconds: Mapping[str, float], factor: float) -> dict[str, float]:
    """Multiplies the seconds of sections that run on the device by a factor."""
    return {name: value * (factor if name in DEVICE_SECTIONS else 1.0) for name, value in seconds.items()}


def predict_section_seconds(runs: Sequence[Run], placement: Placement) -> dict[str, float]:
    """Seconds of each section of a pack per execution, at typical speeds."""
    run, n_runs, speed = largest_batch_run(runs), len(runs), _device_speed(placement)
    work = update_work_seconds(runs, placement)
    evaluation = predict_evaluation(run, placement)
    state_bytes = estimate_state_bytes(run.settings, run.dataset_info)
    compute = speed.update_overhead_seconds + work
    seconds = {
        "prepare": PREPARE_SECONDS,
        "compile": speed.first_update_seconds + compute,
        "save": SAVE_SECONDS + n_runs * (SAVE_SECONDS_PER_RUN + state_bytes / SAVE_BYTES_PER_SECOND),
        "compute": compute,
        "evaluate": speed.update_overhead_seconds + n_runs * evaluation,
    }
    return scale_device_seconds(seconds, concurrency_slowdown(placement, work))


def largest_batch_run(runs: Sequence[Run]) -> Run:
    """The run with the largest batch, to which the whole pack is padded."""
    return max(runs, key=lambda run: effective_batch_size(run.settings, run.dataset_info))
