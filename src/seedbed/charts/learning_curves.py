"""Metrics against steps, epochs, tokens or seconds: one line per config, the mean over seeds with a band of ± std.

If the seeds of a config were evaluated at different steps, each run is drawn separately: a mean over a changing set of
seeds would mislead. A run that diverged or failed is in no mean; its own line goes to where it ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import isnan, nan
from typing import TYPE_CHECKING

import numpy as np

from seedbed.charts.axis_labels import capitalize_first, metric_label, metric_quantity, setting_label, value_label
from seedbed.charts.line_data import (
    Axis,
    FloatArray,
    Line,
    LineChart,
    downsample_indices,
    max_points_per_line,
    seed_count_note,
    status_notes,
)
from seedbed.charts.panel_layout import (
    PanelSpec,
    build_panel,
    colour_axis,
    config_label,
    dash_title,
    dash_value,
    group_metrics,
    n_panel_columns,
    panel_specs,
    split_and_group,
)
from seedbed.charts.run_selection import (
    check_clock,
    check_setting_names,
    group_by_config,
    measured_clock_units_per_step,
    metric_curve,
)
from seedbed.charts.stopping_marks import stopping_marks, stopping_note
from seedbed.records import Curve
from seedbed.specs import FigureSpec
from seedbed.stats.groups import filter_runs, setting_value
from seedbed.stats.summary import RunCurves

if TYPE_CHECKING:
    import altair as alt


def gather_learning_curves(figure: FigureSpec, runs: Sequence[RunCurves]) -> LineChart:
    """The data of a `curves` figure."""
    check_setting_names(runs, (figure.colour, figure.dash, figure.row, figure.column))
    check_clock(figure.x)
    figure, selected = _with_gap_metrics(figure), filter_runs(runs, figure.only)
    metrics_by_panel = group_metrics(figure)
    specs = list(panel_specs(figure, selected, metrics_by_panel))
    lines = [line for index, spec in enumerate(specs) for line in _lines_in_panel(figure, index, spec, selected)]
    shown = [_downsample(line, max_points_per_line(len(lines))) for line in lines]
    marks = tuple(mark for index, spec in enumerate(specs) for mark in stopping_marks(figure, index, spec, selected))
    return LineChart(
        title=figure.title or _default_title(figure),
        panels=tuple(build_panel(figure, spec) for spec in specs),
        n_columns=n_panel_columns(figure, selected, metrics_by_panel),
        lines=tuple(shown),
        x=Axis(setting_label(figure.x), figure.x_scale),
        colour=colour_axis(figure, selected),
        dash_title=dash_title(figure),
        notes=tuple(filter(None, (*_chart_notes(figure, selected, shown), stopping_note(marks, figure)))),
        stopping_marks=marks,
    )


def draw_learning_curves(chart: LineChart) -> alt.ConcatChart:
    """The chart as Altair panels of lines with bands."""
    from seedbed.charts.line_chart import draw_lines

    return draw_lines(chart)


def stoppable_metrics(figure: FigureSpec) -> tuple[str, ...]:
    """The metrics whose stopping advice can be marked: those that are drawn themselves, and not by their gap."""
    return () if figure.value == "gap" else figure.metrics


def _with_gap_metrics(figure: FigureSpec) -> FigureSpec:
    """With `value = "gap"`, the figure of the train–validation gap of its metrics."""
    if figure.value != "gap":
        return figure
    gaps = dict.fromkeys(f"gap/{metric.rpartition('/')[2]}" for metric in figure.metrics)
    return figure.model_copy(update={"metrics": tuple(gaps)})


# ---- lines ----


def _lines_in_panel(figure: FigureSpec, panel_index: int, spec: PanelSpec, runs: Sequence[RunCurves]) -> Iterator[Line]:
    for seed_runs, metric in product(group_by_config(spec.select(figure, runs)), spec.metrics):
        for group in _runs_to_average(seed_runs, metric):
            if line := _line(figure, panel_index, metric, group, len(seed_runs)):
                yield line


def _runs_to_average(seed_runs: Sequence[RunCurves], metric: str) -> Iterator[list[RunCurves]]:
    """The runs of each line: all included runs together if their steps agree, else one by one; excluded runs apart."""
    included = [run for run in seed_runs if run.is_included]
    steps = [metric_curve(run, metric).steps for run in included]
    if all(np.array_equal(steps[0], other) for other in steps[1:]):
        yield included
    else:
        yield from ([run] for run in included)
    yield from ([run] for run in seed_runs if not run.is_included)


def _line(figure: FigureSpec, panel_index: int, metric: str, runs: Sequence[RunCurves], n_runs: int) -> Line | None:
    curves = [metric_curve(run, metric) for run in runs]
    units_per_step = float(np.mean([measured_clock_units_per_step(figure.x, run) for run in runs])) if runs else nan
    if not curves or not curves[0].steps.size or isnan(units_per_step):
        return None
    first = runs[0]
    mean, std = _mean_and_std(curves)
    split, _ = split_and_group(metric)
    n = len(runs)
    name = f"{config_label(first)} {metric_label(metric)}".strip()
    return Line(
        panel=panel_index,
        name=name if n > 1 else f"{name}, seed {first.run.seed}",
        colour=setting_value(first, figure.colour) if figure.colour else split,
        dash=value_label(setting_value(first, figure.dash)) if figure.dash else dash_value(figure, metric),
        x=tuple(np.asarray(curves[0].steps * units_per_step, dtype=np.float64)),
        y=mean,
        low=mean - std,
        high=mean + std,
        n=n,
        n_runs=n_runs,
        diverged=not first.is_included,
    )


def _mean_and_std(curves: Sequence[Curve]) -> tuple[FloatArray, FloatArray]:
    """Mean and population std at each step; one NaN makes both NaN, and the line has a gap."""
    values = np.stack([curve.values for curve in curves])
    values = np.where(np.isfinite(values), values, np.nan)
    return values.mean(axis=0), values.std(axis=0)


def _downsample(line: Line, max_points: int) -> Line:
    indices = downsample_indices(line.y, max_points)
    return replace(
        line, x=tuple(line.x[i] for i in indices), y=line.y[indices], low=line.low[indices], high=line.high[indices]
    )


# ---- title and notes ----


def _default_title(figure: FigureSpec) -> str:
    metrics = list(dict.fromkeys(metric_quantity(metric) for metric in figure.metrics))
    per_colour = f" for each {setting_label(figure.colour)}" if figure.colour else ""
    return capitalize_first(f"{' and '.join(metrics)} against {setting_label(figure.x)}{per_colour}")


def _chart_notes(figure: FigureSpec, runs: Sequence[RunCurves], lines: Sequence[Line]) -> tuple[str, ...]:
    conditions = {
        "Bands are ± std over seeds (population).": any(line.n > 1 for line in lines),
        "Seeds evaluated at different steps have no mean: each run has its own line.": _has_single_run_lines(lines),
        "Gaps are values that are not finite.": any(np.isnan(line.y).any() for line in lines),
        "Compute time is spread evenly over a run's steps.": figure.x == "time",
        "Values that are not positive are not shown on a log axis.": {figure.x_scale, figure.y_scale} != {"linear"},
        "The epochs of these runs are unknown without their data.": figure.x == "epoch" and not lines,
    }
    notes = (seed_count_note(lines), *(note for note, applies in conditions.items() if applies), *status_notes(runs))
    return tuple(note for note in notes if note)


def _has_single_run_lines(lines: Sequence[Line]) -> bool:
    return any(line.n == 1 and line.n_runs > 1 and not line.diverged for line in lines)
