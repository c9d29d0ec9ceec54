"""How the cost of our updates grows with the runs in a pack, the width and the length.

    for growth in make_growths("cpu", quick=False):
        measure_growth(growth, n_rounds=4, seconds=0.15)

Each size is a side of its own, timed in interleaved rounds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compare import run_rounds, updates_per_turn
from scenarios import CHARACTERS, PRECISION, TINY_MODEL, for_device
from sides import Side, SideSpec, stop_sides


@dataclass(frozen=True)
class Growth:
    """A benchmark over values of one size."""

    name: str
    description: str
    sizes: Sequence[int]
    plans: Sequence[SideSpec]


def make_growths(device: str, quick: bool) -> Iterator[Growth]:
    """Benchmarks over runs in a pack, width and length; everything else as in the reports."""
    runs = (1, 2) if quick else (1, 2, 4, 8) if device == "cpu" else (1, 8, 32, 128)
    widths = lengths = (32, 64, 128, 256)
    resources = {"device": device, "mode": "plain" if device == "cpu" else "graph"}

    def plan(size: int, overrides: Mapping[str, Any], n_runs: int = 1) -> SideSpec:
        settings = {**overrides, "train.precision": PRECISION[device]}
        return SideSpec(f"seedbed, {size}", "ours", settings, n_runs=n_runs, **resources)

    yield Growth(
        "R", "per model, by runs in a pack (one layer, width 32)", runs, [plan(n, TINY_MODEL, n) for n in runs]
    )
    if quick:
        return
    yield Growth("width", "by width (report D's GPT)", widths, [plan(n, {"model.dim": n}) for n in widths])
    text = for_device(CHARACTERS, device) | {"model.layers": 2, "train.batch_size": 8}
    yield Growth(
        "length",
        "by length (two layers, width 192, batch 8)",
        lengths,
        [plan(n, text | {"task.length": n}) for n in lengths],
    )


def measure_growth(growth: Growth, n_rounds: int, seconds: float) -> dict[str, Any]:
    """Seconds per update of a model at each size, and the exponent of their growth."""
    sides = [Side(plan) for plan in growth.plans]
    for side in sides:
        side.wait_until_ready()
    timings = run_rounds(sides, [updates_per_turn(side, seconds) for side in sides], n_rounds)
    stop_sides(sides)
    medians = [
        statistics.median(turn["seconds"] / turn["updates"] for turn in timings[plan.name]) / plan.n_models
        for plan in growth.plans
    ]
    power = math.log(medians[-1] / medians[0]) / math.log(growth.sizes[-1] / growth.sizes[0])
    text = ", ".join(f"{size}: {1e3 * each:.2f} ms" for size, each in zip(growth.sizes, medians, strict=True))
    print(f"\n{growth.description}: {text}; as {growth.name}^{power:.2f}", flush=True)
    return {
        "growth": growth.name,
        "about": growth.description,
        "sizes": growth.sizes,
        "seconds": medians,
        "power": power,
    }
