"""What a step is worth (epochs, tokens, seconds), which runs a figure draws, and which of them share a point.

>>> per_step("epoch", Settings())  # 480 training equations, so a batch of 512 is all of them
1.0
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from math import nan
from typing import Final

import numpy as np

from seedbed.data.dataset_info import get_dataset_info
from seedbed.errors import MissingData, UsageError
from seedbed.records import Curve
from seedbed.settings import ArithmeticSettings, Settings, Value
from seedbed.specs import FigureSpec
from seedbed.stats.curve_statistics import metric_direction
from seedbed.stats.run_statistics import EMPTY_CURVE
from seedbed.stats.summary import RunCurves
from seedbed.study.toml_format import did_you_mean

TRAINING_CLOCKS: Final = ("step", "epoch", "tokens", "time")
NON_SETTING_NAMES: Final = (
    *TRAINING_CLOCKS,
    "parameters",
    "alpha",
    "seed",
)  # names that a figure may use besides dials


def clock_units_per_step(clock: str, settings: Settings) -> float:
    """How many epochs or tokens one step takes; NaN where only data could tell that is not here."""
    if clock == "epoch":
        try:
            return 1 / settings.updates_per_epoch(get_dataset_info(settings.task))
        except (MissingData, UsageError):
            return nan
    return _tokens_per_step(settings) if clock == "tokens" else 1.0


def _tokens_per_step(settings: Settings) -> float:
    task, samples = settings.task, settings.train.batch_size * settings.train.accumulate
    if not isinstance(task, ArithmeticSettings):
        return float(samples * task.length)
    n_train = {order: task.n_train(order) for order in task.orders}
    total = sum(n_train.values())  # BOS a + b = r EOS: two tokens an operand and three more
    return min(samples, total) * sum(n * (2 * order + 3) for order, n in n_train.items()) / total


def measured_clock_units_per_step(clock: str, run: RunCurves) -> float:
    """One step of this run on a clock; its compute seconds are spread evenly, and NaN where none are stored."""
    if clock != "time":
        return clock_units_per_step(clock, run.run.settings)
    return run.seconds.get("compute", nan) / run.run.step if run.run.step else nan


def metric_curve(run: RunCurves, metric: str) -> Curve:
    """The run's curve of this metric; `gap/accuracy` is how far validation lags behind training at each step."""
    if not metric.startswith("gap/"):
        return run.curves.get(metric, EMPTY_CURVE)
    quantity = metric.removeprefix("gap/")
    train, val = (run.curves.get(f"{split}/{quantity}", EMPTY_CURVE) for split in ("train", "val"))
    steps, of_train, of_val = np.intersect1d(train.steps, val.steps, return_indices=True)
    sign = 1 if metric_direction(quantity) == "max" else -1
    return Curve(steps, sign * (train.values[of_train] - val.values[of_val]))


def select_runs(runs: Iterable[RunCurves], figure: FigureSpec) -> list[RunCurves]:
    """The runs that a figure's `only` asks for."""
    return [
        run
        for run in runs
        if all(_matches_filter(setting_value(run, name), wanted) for name, wanted in figure.only.items())
    ]


def _matches_filter(value: Value, wanted: Value) -> bool:
    return bool(value == wanted) or (isinstance(wanted, tuple) and value in wanted)


def setting_value(run: RunCurves, name: str) -> Value:
    """The run's value of a dial, of `seed`, or of `parameters`; None for a dial that it does not have."""
    if name == "seed":
        return run.run.seed
    if name == "parameters":
        return run.run.parameters.non_embedding
    value = run.config[name] if name in run.config else run.run.settings.flat().get(name)
    return tuple(value) if isinstance(value, list) else value


def check_setting_names(runs: Sequence[RunCurves], names: Iterable[str | None]) -> None:
    """Refuses a dial that none of these runs has."""
    known = dict.fromkeys(dial for run in runs for dial in (*run.run.settings.flat(), *run.config))
    for name in names:
        if name and runs and name not in NON_SETTING_NAMES and name not in known:
            guess = did_you_mean(name, (*NON_SETTING_NAMES, *known))
            raise UsageError(
                f"{name} is not a dial of these runs{guess}; expected {', '.join(NON_SETTING_NAMES)}, or a dial that "
                "`seedbed plan STUDY --print-config` lists"
            )


def group_by_config(runs: Iterable[RunCurves]) -> list[list[RunCurves]]:
    """Runs that differ in nothing but the seed, together; in order of first appearance.

    Replays of a run (`alpha`) and the groups of a comparison (`group`) stay apart, though their settings are the same.
    """
    points: dict[Hashable, list[RunCurves]] = {}
    for run in runs:
        points.setdefault((run.run.settings, run.config.get("alpha"), run.config.get("group")), []).append(run)
    return list(points.values())


def distinct_values(runs: Sequence[RunCurves], name: str | None) -> list[Value]:
    """The different values of a dial; numbers by size, words as they come."""
    if name is None:
        return [None]
    found = list(dict.fromkeys(setting_value(run, name) for run in runs))
    return sorted(found) if all(is_number(value) for value in found) else found


def is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
