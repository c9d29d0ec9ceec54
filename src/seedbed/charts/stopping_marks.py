"""Where training could have stopped, as marks on learning curves; the advice comes from `stats.stopping_advice`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Final

import numpy as np

from seedbed.charts.axis_labels import metric_label
from seedbed.charts.line_data import StoppingMark
from seedbed.charts.panel_layout import PanelSpec, config_label
from seedbed.charts.run_selection import group_by_config, measured_clock_units_per_step
from seedbed.specs import FigureSpec
from seedbed.stats.format import format_count
from seedbed.stats.stopping_advice import StoppingAdvice, advise_stopping_for_runs, mean_curve
from seedbed.stats.summary import RunCurves

STOPPING_RULES: Final = {"best": "best", "earliest": "first within one std. error", "copying": "samples begin to copy"}


def stopping_marks(
    figure: FigureSpec, panel_index: int, spec: PanelSpec, runs: Sequence[RunCurves]
) -> Iterator[StoppingMark]:
    """The marks in one panel: up to three per config, if the metric is drawn there."""
    if figure.stopping not in spec.metrics:
        return
    for seed_runs in group_by_config(spec.select(figure, runs)):
        if advice := advise_stopping_for_runs(seed_runs, figure.stopping):
            yield from _marks_of_config(figure, panel_index, seed_runs, advice)


def _marks_of_config(
    figure: FigureSpec, panel_index: int, seed_runs: Sequence[RunCurves], advice: StoppingAdvice
) -> Iterator[StoppingMark]:
    assert figure.stopping  # for mypy: there is no advice without a metric
    included = [run for run in seed_runs if run.is_included and figure.stopping in run.curves]
    mean = mean_curve([run.curves[figure.stopping] for run in included])
    units_per_step = float(np.mean([measured_clock_units_per_step(figure.x, run) for run in included]))
    curve = f"{config_label(seed_runs[0])} {metric_label(figure.stopping)}".strip()
    steps = {"best": advice.best, "copying": advice.copying}
    if advice.earliest < advice.best:
        steps["earliest"] = advice.earliest
    for field, step in steps.items():
        rule = STOPPING_RULES[field]
        y = float(np.interp(step, mean.steps, mean.values)) if isfinite(step) else step
        if isfinite(y) and isfinite(units_per_step):
            name = f"{curve}: {rule}, step {format_count(step)}"
            yield StoppingMark(panel_index, rule, step * units_per_step, y, name)


def stopping_note(marks: Sequence[StoppingMark], figure: FigureSpec) -> str:
    """A sentence about the marks; empty if there are none."""
    if not marks:
        return ""
    rules = [rule for rule in STOPPING_RULES.values() if any(mark.rule == rule for mark in marks)]
    return f"Marks on the {metric_label(figure.stopping or '')}, mean over seeds: {'; '.join(rules)}."
