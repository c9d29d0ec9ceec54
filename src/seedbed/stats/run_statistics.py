"""One statistic of one run: the meaning of `value = "best"` or `"t_f"` in a figure or a question.

    compute_statistic(run, "val/accuracy", "t_f")  # the first step with the best validation accuracy
    replay_at_alpha(run, 0.3)                      # the run as if stopped at 0.3 T

`groups` and `comparison` decide which runs are compared, and over which seeds.
"""

from __future__ import annotations

from dataclasses import replace
from math import floor, nan
from typing import Literal, TypeAlias

import numpy as np

from seedbed.records import Curve
from seedbed.stats.curve_statistics import (
    find_extremum,
    generalisation_gap,
    last_value,
    metric_direction,
    truncate_curve,
)
from seedbed.stats.grokking import GrokkingResult, classify_grokking
from seedbed.stats.metric_registry import Direction, MetricName
from seedbed.stats.summary import RunCurves
from seedbed.stats.training_cost import predict_memory_mib

StatisticName: TypeAlias = Literal["best", "t_f", "last", "gap", "delta_t", "seconds", "memory"]
EMPTY_CURVE = Curve(np.array([], dtype=np.int64), np.array([], dtype=np.float64))


def compute_statistic(run: RunCurves, metric: str, statistic: StatisticName, t_max: float | None = None) -> float:
    """This statistic of a run's metric; NaN if it is undefined."""
    if statistic == "seconds":
        return run.seconds.get("compute", nan)
    if statistic == "memory":
        return predict_memory_mib(run.run.settings) if run.steady_bytes is None else run.steady_bytes / 2**20
    curve, direction = run.curves.get(metric, EMPTY_CURVE), metric_direction(metric)
    if statistic == "last" or (statistic == "best" and direction is None):
        return last_value(curve, t_max)
    if direction is None:
        return nan  # no value is best, so there is no first step with it
    if statistic == "best":
        return find_extremum(curve, direction, t_max).value
    if statistic == "t_f":
        return find_extremum(curve, direction, t_max).step
    return _compare_splits(run, metric, statistic, direction, t_max)


def _compare_splits(
    run: RunCurves, metric: str, statistic: StatisticName, direction: Direction, t_max: float | None
) -> float:
    train, val = (run.curves.get(metric_for_split(metric, split), EMPTY_CURVE) for split in ("train", "val"))
    if statistic == "gap":
        return generalisation_gap(train, val, direction, t_max)
    return find_extremum(val, direction, t_max).step - find_extremum(train, direction, t_max).step


def statistic_direction(metric: str, statistic: StatisticName) -> Direction | None:
    """Which direction is better; None for steps (earlier is not better in itself) and for metrics such as the norm."""
    if statistic in ("gap", "seconds", "memory"):
        return "min"
    return metric_direction(metric) if statistic in ("best", "last") else None


def metric_for_split(metric: str, split: str, quantity: str | None = None) -> str:
    """The same metric of another split: `val/loss[order=2]` → `train/loss[order=2]`."""
    parts = MetricName.parse(metric)
    return f"{split}/{quantity or parts.quantity}{parts.group}"


def substitute_metric(run: RunCurves, source: str, target: str) -> RunCurves:
    """The run with the curves of `source`, in all splits, named `target`: to compare two metrics of one run."""
    pairs = [
        (source, target),
        *((metric_for_split(source, split), metric_for_split(target, split)) for split in ("train", "val")),
    ]
    kept = {name: curve for name, curve in run.curves.items() if name not in {new for _, new in pairs}}
    return replace(run, curves=kept | {new: run.curves[old] for old, new in pairs if old in run.curves})


def classify_run(run: RunCurves, metric: str = "val/accuracy", t_max: float | None = None) -> GrokkingResult | None:
    """The grokking label of a run, from the accuracies of the metric's group; None if they were not recorded."""
    train, val = (run.curves.get(metric_for_split(metric, split, "accuracy")) for split in ("train", "val"))
    if train is None or val is None or not (train.steps.size and val.steps.size):
        return None
    return classify_grokking(train, val, t_max)


def total_steps(run: RunCurves) -> int:
    """T: the planned steps; if training is limited by epochs, tokens or seconds, the steps done so far."""
    settings = run.run.settings
    return settings.train.steps if settings.is_active("train.steps") else run.run.step


def replay_at_alpha(run: RunCurves, alpha: float) -> RunCurves:
    """The run as if stopped at αT, with `alpha` added to its config."""
    t_max = floor(alpha * total_steps(run))
    curves = {name: truncate_curve(curve, t_max) for name, curve in run.curves.items()}
    return replace(run, config={**run.config, "alpha": alpha}, curves=curves)
