"""How our cost grows with runs in a pack, width, and length.

    for growth in growths("cpu", quick=False):
        grow(growth, n_rounds=4, seconds=0.15)

Each size is a side of its own, and sizes take turns as sides do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compare import take_turns, turn_length
from scenarios import CHARACTERS, PRECISION, SMALLER, on_device
from sides import Plan, Side, end


@dataclass(frozen=True)
class Growth:
    """How our cost grows with one size."""

    name: str
    about: str
    sizes: Sequence[int]
    plans: Sequence[Plan]


def growths(device: str, quick: bool) -> Iterator[Growth]:
    """Cost of a model's update against runs in a pack, width, and length; everything else as in the reports."""
    runs = (1, 2) if quick else (1, 2, 4, 8) if device == "cpu" else (1, 8, 32, 128)
    widths = lengths = (32, 64, 128, 256)
    where = {"device": device, "engine": "plain" if device == "cpu" else "graph"}

    def plan(size: int, dials: Mapping[str, Any], n_runs: int = 1) -> Plan:
        precise = {**dials, "train.precision": PRECISION[device]}
        return Plan(f"seedbed, {size}", "ours", precise, n_runs=n_runs, **where)

    yield Growth("R", "per model, by runs in a pack (one layer, width 32)", runs, [plan(n, SMALLER, n) for n in runs])
    if quick:
        return
    yield Growth("width", "by width (report D's GPT)", widths, [plan(n, {"model.dim": n}) for n in widths])
    text = on_device(CHARACTERS, device) | {"model.layers": 2, "train.batch_size": 8}
    yield Growth(
        "length",
        "by length (two layers, width 192, batch 8)",
        lengths,
        [plan(n, text | {"task.length": n}) for n in lengths],
    )


def grow(growth: Growth, n_rounds: int, seconds: float) -> dict[str, Any]:
    """Seconds of a model's update at each size, and the power by which they grow."""
    sides = [Side(plan) for plan in growth.plans]
    for side in sides:
        side.wait()
    taken = take_turns(sides, [turn_length(side, seconds) for side in sides], n_rounds)
    end(sides)
    medians = [
        statistics.median(turn["seconds"] / turn["updates"] for turn in taken[plan.name]) / plan.n_models
        for plan in growth.plans
    ]
    power = math.log(medians[-1] / medians[0]) / math.log(growth.sizes[-1] / growth.sizes[0])
    said = ", ".join(f"{size}: {1e3 * each:.2f} ms" for size, each in zip(growth.sizes, medians, strict=True))
    print(f"\n{growth.about}: {said}; as {growth.name}^{power:.2f}", flush=True)
    return {"growth": growth.name, "about": growth.about, "sizes": growth.sizes, "seconds": medians, "power": power}
