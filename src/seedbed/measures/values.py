"""One number from one run: what `value = "best"` or `"t_f"` in a figure or a question means.

    run_value(run, "val/accuracy", "t_f")        the step at which validation accuracy is first at its best
    replayed(run, 0.3)                           the run as if stopped at 0.3 T

Which runs are compared, and over which seeds, is left to `groups` and `compare`.
"""

from __future__ import annotations

from dataclasses import replace
from math import floor, nan
from typing import Literal, TypeAlias

import numpy as np

from seedbed.measures.catalogue import Direction, Metric
from seedbed.measures.cost import memory
from seedbed.measures.curves import direction, extremum, gap, last, up_to
from seedbed.measures.grokking import Grokking, grokking
from seedbed.measures.summary import RunCurves
from seedbed.records import Curve
from seedbed.study.expand import has_effect

ValueName: TypeAlias = Literal["best", "t_f", "last", "gap", "delta_t", "seconds", "memory"]
NO_RECORDS = Curve(np.array([], dtype=np.int64), np.array([], dtype=np.float64))


def run_value(run: RunCurves, metric: str, value: ValueName, t_max: float | None = None) -> float:
    """The number that this value of this metric is for this run; NaN where it has none."""
    if value == "seconds":
        return run.seconds.get("compute", nan)
    if value == "memory":
        return memory(run.run.settings) if run.steady is None else run.steady / 2**20
    curve, kind = run.curves.get(metric, NO_RECORDS), direction(metric)
    if value == "last" or (value == "best" and kind is None):
        return last(curve, t_max)
    if kind is None:
        return nan  # nothing is best, so nothing is first attained
    if value == "best":
        return extremum(curve, kind, t_max).value
    if value == "t_f":
        return extremum(curve, kind, t_max).step
    return _between_splits(run, metric, value, kind, t_max)


def _between_splits(run: RunCurves, metric: str, value: ValueName, kind: Direction, t_max: float | None) -> float:
    train, val = (run.curves.get(sibling(metric, split), NO_RECORDS) for split in ("train", "val"))
    if value == "gap":
        return gap(train, val, kind, t_max)
    return extremum(val, kind, t_max).step - extremum(train, kind, t_max).step


def value_direction(metric: str, value: ValueName) -> Direction | None:
    """Which way is better; None for steps, where early is early and not better, and for metrics such as the norm."""
    if value in ("gap", "seconds", "memory"):
        return "min"
    return direction(metric) if value in ("best", "last") else None


def sibling(metric: str, split: str, quantity: str | None = None) -> str:
    """The metric of another split, with the same group: `val/loss[order=2]` → `train/loss[order=2]`."""
    parts = Metric.parse(metric)
    return f"{split}/{quantity or parts.quantity}{parts.group}"


def renamed(run: RunCurves, source: str, target: str) -> RunCurves:
    """The run with one metric, and its other splits, in the place of another: to compare two metrics of one run."""
    pairs = [(source, target), *((sibling(source, split), sibling(target, split)) for split in ("train", "val"))]
    kept = {name: curve for name, curve in run.curves.items() if name not in {new for _, new in pairs}}
    return replace(run, curves=kept | {new: run.curves[old] for old, new in pairs if old in run.curves})


def run_label(run: RunCurves, metric: str = "val/accuracy", t_max: float | None = None) -> Grokking | None:
    """The grokking label of a run, from the accuracies of the metric's group; None where they were not recorded."""
    train, val = (run.curves.get(sibling(metric, split, "accuracy")) for split in ("train", "val"))
    if train is None or val is None or not (train.steps.size and val.steps.size):
        return None
    return grokking(train, val, t_max)


def total_steps(run: RunCurves) -> int:
    """T: the steps that the study asked for; where it asked for epochs, tokens or seconds, those done so far."""
    settings = run.run.settings
    return settings.train.steps if has_effect("train.steps", settings) else run.run.step


def replayed(run: RunCurves, alpha: float) -> RunCurves:
    """The run as if stopped at αT, with `alpha` among its dials."""
    t_max = floor(alpha * total_steps(run))
    curves = {name: up_to(curve, t_max) for name, curve in run.curves.items()}
    return replace(run, point={**run.point, "alpha": alpha}, curves=curves)
