"""Steps as epochs, tokens or seconds; the curves of runs, and runs grouped by config."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from math import nan
from typing import Final

import numpy as np

from seedbed.errors import UsageError
from seedbed.records import Curve, StoredRun
from seedbed.settings import Value
from seedbed.stats.curve_statistics import metric_direction
from seedbed.stats.groups import setting_value
from seedbed.stats.metric_registry import training_metric
from seedbed.stats.run_statistics import EMPTY_CURVE
from seedbed.stats.summary import RunCurves
from seedbed.study.toml_text import did_you_mean
from seedbed.tasks.base import stored_dataset_info

TRAINING_CLOCKS: Final = ("step", "epoch", "tokens", "time")
NON_SETTING_NAMES: Final = (*TRAINING_CLOCKS, "parameters", "alpha", "seed")  # what a figure may name besides settings


def clock_units_per_step(clock: str, run: StoredRun) -> float:
    """Epochs or tokens that one step takes; NaN where a corpus is needed that is missing here."""
    if clock not in ("epoch", "tokens"):
        return 1.0
    info = stored_dataset_info(run)
    if clock == "tokens":
        return run.settings.tokens_per_update(info)
    return nan if info is None else 1 / run.settings.updates_per_epoch(info)


def measured_clock_units_per_step(clock: str, run: RunCurves) -> float:
    """One step of this run in units of a clock; compute time is spread evenly over steps. NaN if unknown."""
    if clock != "time":
        return clock_units_per_step(clock, run.run)
    return run.seconds.get("compute", nan) / run.run.step if run.run.step else nan


def metric_curve(run: RunCurves, metric: str) -> Curve:
    """The run's curve of this metric; `gap/accuracy` is the train–validation gap at each step."""
    if not metric.startswith("gap/"):
        return run.curves.get(metric, EMPTY_CURVE)
    quantity = metric.removeprefix("gap/")
    names = training_metric(quantity, run.curves), f"val/{quantity}"
    train, val = (run.curves.get(name, EMPTY_CURVE) for name in names)
    steps, of_train, of_val = np.intersect1d(train.steps, val.steps, return_indices=True)
    sign = 1 if metric_direction(quantity) == "max" else -1
    return Curve(steps, sign * (train.values[of_train] - val.values[of_val]))


def check_setting_names(runs: Sequence[RunCurves], names: Iterable[str | None]) -> None:
    """Raises UsageError for a name that is no setting of any of these runs."""
    known = dict.fromkeys(setting for run in runs for setting in (*run.run.settings.flat(), *run.config))
    for name in names:
        if name and runs and name not in NON_SETTING_NAMES and name not in known:
            guess = did_you_mean(name, (*NON_SETTING_NAMES, *known))
            raise UsageError(
                f"{name} is not a setting of these runs{guess}; expected {', '.join(NON_SETTING_NAMES)}, or a setting "
                "that `seedbed plan STUDY --print-config` lists"
            )


def check_clock(name: str) -> None:
    """Raises UsageError for an x axis along which a single run has no curve."""
    if name not in TRAINING_CLOCKS:
        clocks = ", ".join(TRAINING_CLOCKS)
        raise UsageError(f"x = {name}: learning curves are drawn over {clocks}; kind sweep draws over a setting")


def group_by_config(runs: Iterable[RunCurves]) -> list[list[RunCurves]]:
    """Groups of runs that differ only in their seed, in order of first appearance.

    Truncations of a run (`alpha`), the groups of a comparison (`group`) and versions of an edited text (`dataset`) stay
    separate, though their settings agree.
    """
    groups: dict[Hashable, list[RunCurves]] = {}
    for run in runs:
        beside_settings = (run.config.get(name) for name in ("alpha", "group", "dataset"))
        groups.setdefault((run.run.settings, *beside_settings), []).append(run)
    return list(groups.values())


def distinct_values(runs: Sequence[RunCurves], name: str | None) -> list[Value]:
    """The distinct values of a setting: numbers sorted, others in order of appearance."""
    if name is None:
        return [None]
    values = list(dict.fromkeys(setting_value(run, name) for run in runs))
    return sorted(values) if all(is_number(value) for value in values) else values


def is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
