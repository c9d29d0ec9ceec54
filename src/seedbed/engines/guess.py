"""What a pack would cost at round figures of a machine, for what was never measured on this one; no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from seedbed.models.count import effective_batch, predict_bytes
from seedbed.models.work import Work, record_work, update_work
from seedbed.records import Placement, Run


class Speed(NamedTuple):
    """Round figures of a way of computing, for what was never measured."""

    operations: float  # a second
    bytes: float  # a second
    step: float  # seconds of an update besides
    once: float  # seconds of the first update of a session


CPU: Final = Speed(40e9, 8e9, 2e-3, 0.1)  # one thread
GPU: Final = {  # an H200, products in tf32; bytes are those of `predict_bytes`, which a GPU does not all move
    "plain": Speed(150e12, 4e12, 4e-3, 0.5), "graph": Speed(150e12, 4e12, 6e-4, 5.0),
    "compiled": Speed(200e12, 5e12, 4e-4, 45.0),
}  # fmt: skip
START: Final = {"cpu": 5.0, "cuda": 10.0}  # seconds from the command to the first update: processes, imports
# How many times more updates a second so many packs make together than one does, on one GPU: between the GPT's 2.09 and
# 3.35 with 4 and 12 lanes and the LSTM's 1.49, 2.36, 3.3, 3.7 with 2, 4, 8 and 12 (H200, report D's, 2 runs a pack).
GAINS: Final = {1: 1.0, 2: 1.4, 4: 2.2, 8: 3.1, 12: 3.5}
DEVICE_WORK: Final = frozenset({"compute", "evaluate"})
PREPARE, SAVE, SAVED_BYTES = 0.3, 0.05, 100e6  # seconds of a build and of a save, and its bytes a second


def expected(work: Work, placement: Placement) -> float:
    """Seconds of some work at round figures."""
    speed = _speed(placement)
    return work.operations / speed.operations + work.bytes / speed.bytes


def _speed(placement: Placement) -> Speed:
    if placement.device != "cpu":
        return GPU.get(placement.engine, GPU["graph"])
    threads = 0.4 + 0.6 * placement.threads  # the second thread adds some 60 %
    return Speed(CPU.operations * threads, CPU.bytes * threads, CPU.step, CPU.once)


def slowdown(device: str, workers: int) -> float:
    """How much longer a pack's work on the device takes beside others than alone; cores of a CPU are not shared.

    >>> [round(slowdown("cuda", workers), 2) for workers in (1, 3, 12, 24)]
    [1.0, 1.67, 3.43, 6.86]
    """
    if device == "cpu" or workers <= 1:
        return 1.0
    return workers / float(np.interp(workers, list(GAINS), list(GAINS.values())))


def on_device(seconds: Mapping[str, float], factor: float) -> dict[str, float]:
    """Times of which those of work on the device are so many times as long."""
    return {name: spent * (factor if name in DEVICE_WORK else 1.0) for name, spent in seconds.items()}


def guess(runs: Sequence[Run], placement: Placement) -> dict[str, float]:
    """Seconds that everything a pack does takes a time, at round figures."""
    run, n, speed = widest(runs), len(runs), _speed(placement)
    bytes_ = n * predict_bytes(run.settings, run.facts)
    alone = {
        "prepare": PREPARE, "compile": speed.once, "save": SAVE + n * SAVE / 5 + bytes_ / SAVED_BYTES / 2,
        "compute": speed.step + n * expected(update_work(run.settings, run.facts), placement),
        "evaluate": speed.step + n * expected(record_work(run.settings, run.facts), placement),
    }  # fmt: skip
    return on_device(alone, slowdown(placement.device, placement.workers))


def widest(runs: Sequence[Run]) -> Run:
    """The run to whose batch a pack is padded."""
    return max(runs, key=lambda run: effective_batch(run.settings, run.facts))
