"""What a pack would cost at round figures of a machine, for what was never measured on this one; no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

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
GPU: Final = {
    "plain": Speed(20e12, 1e12, 4e-3, 0.5), "graph": Speed(20e12, 1e12, 3e-4, 2.0),
    "compiled": Speed(40e12, 2e12, 1e-4, 30.0),
}  # fmt: skip
START: Final = {"cpu": 5.0, "cuda": 10.0}  # seconds from the command to the first update: processes, imports
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


def guess(runs: Sequence[Run], placement: Placement) -> dict[str, float]:
    """Seconds that everything a pack does takes a time, at round figures."""
    run, n, speed = widest(runs), len(runs), _speed(placement)
    bytes_ = n * predict_bytes(run.settings, run.facts)
    return {
        "prepare": PREPARE, "compile": speed.once, "save": SAVE + n * SAVE / 5 + bytes_ / SAVED_BYTES / 2,
        "compute": speed.step + n * expected(update_work(run.settings, run.facts), placement),
        "evaluate": speed.step + n * expected(record_work(run.settings, run.facts), placement),
    }  # fmt: skip


def widest(runs: Sequence[Run]) -> Run:
    """The run to whose batch a pack is padded."""
    return max(runs, key=lambda run: effective_batch(run.settings, run.facts))
