"""Metrics against steps, epochs, tokens or seconds: one line per config, the mean over seeds with a band of ± std.

If the seeds of a config were evaluated at different steps, each run is drawn separately: a mean over a changing set of
seeds would mislead. So is each run if the seed is coloured, dashed or faceted. A run that diverged or failed is in no
mean; its own line goes to where it ended. Marks show where training could have stopped (`stats.stopping_advice`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import isfinite, isnan, nan
from typing import Any, Final

import numpy as np

from seedbed.charts.axis_labels import metric_label, setting_label
from seedbed.charts.panel_layout import (
    MAX_POINTS_PER_FIGURE,
    MAX_POINTS_PER_LINE,
    MIN_POINTS_PER_LINE,
    Axis,
    FloatArray,
    Line,
    LineChart,
    PanelSpec,
    Scale,
    StoppingMark,
    ambiguity_note,
    build_panel,
    check_clock,
    colour_axis,
    config_label,
    dash_title,
    downsample_indices,
    group_metrics,
    line_colour,
    line_dash,
    list_quantities,
    measured_clock_units_per_step,
    metric_curve,
    panel_specs,
    seed_count_note,
    status_notes,
    title_by_settings,
    with_chosen_colours,
)
from seedbed.format import format_count, join_words
from seedbed.records import Curve
from seedbed.specs import FigureSpec
from seedbed.stats.groups import filter_runs
from seedbed.stats.stopping_advice import StoppingAdvice, advise_stopping_for_runs, mean_curve
from seedbed.stats.summary import RunCurves, group_by_config

EARLY_SHARE: Final = 0.05  # of training; a line that is through most of its change by then is drawn over log steps
EARLY_CHANGE: Final = 0.9  # of the way from its first to its extreme value
MIN_EARLY_EVALUATIONS: Final = 4  # without which a log axis would show nothing more
CLOSING_SHARE: Final = 0.1  # of the usual distance: the last evaluation replaces those that are this near to it
STOPPING_RULES: Final = {"best": "best", "earliest": "first within one std. error", "copying": "samples begin to copy"}


def gather_learning_curves(figure: FigureSpec, runs: Sequence[RunCurves]) -> LineChart:
    """The data of a `curves` figure."""
    check_clock(figure.x)
    selected = filter_runs(runs, figure.only)
    figure = with_chosen_colours(_with_gap_metrics(figure), selected)
    recorded = tuple(name for name in figure.metrics if any(metric_curve(run, name).steps.size for run in selected))
    missing = [name for name in figure.metrics if name not in recorded] if recorded else []
    figure = figure.model_copy(update={"metrics": recorded or figure.metrics})
    specs, n_columns = panel_specs(figure, selected, group_metrics(figure))
    lines = [line for index, spec in enumerate(specs) for line in _lines_in_panel(figure, index, spec, selected)]
    n_points = max(MIN_POINTS_PER_LINE, min(MAX_POINTS_PER_LINE, MAX_POINTS_PER_FIGURE // max(1, len(lines))))
    shown = [_downsample(line, n_points) for line in lines]
    marks = tuple(mark for index, spec in enumerate(specs) for mark in _stopping_marks(figure, index, spec, selected))
    x_scale = _choose_x_scale(lines) if figure.x_scale == "auto" else figure.x_scale
    notes = (
        *_chart_notes(figure, selected, shown, x_scale),
        _stopping_note(marks, figure),
        f"No run has {join_words(list(map(metric_label, missing)), 'or')}." if missing else "",
    )
    return LineChart(
        title=figure.title or _default_title(figure),
        panels=tuple(build_panel(figure, spec, selected) for spec in specs),
        n_columns=n_columns,
        lines=tuple(shown),
        x=Axis(setting_label(figure.x), x_scale),
        colour=colour_axis(figure, selected),
        dash_title=dash_title(figure),
        notes=tuple(filter(None, notes)),
        stopping_marks=marks,
    )


def draw_learning_curves(chart: LineChart) -> dict[str, Any]:
    """The chart as panels of lines with bands."""
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
    by_seed = "seed" in (figure.colour, figure.dash)
    for seed_runs, metric in product(group_by_config(spec.select(figure, runs)), spec.metrics):
        for group in _runs_to_average(seed_runs, metric, by_seed):
            if line := _line(figure, panel_index, metric, group, len(group) if by_seed else len(seed_runs)):
                yield line


def _runs_to_average(seed_runs: Sequence[RunCurves], metric: str, by_seed: bool) -> Iterator[list[RunCurves]]:
    """The runs of each line: all included runs together if their steps agree, else one by one; excluded runs apart."""
    included = [run for run in seed_runs if run.is_included]
    steps = {metric_curve(run, metric).steps.tobytes() for run in included}
    if not by_seed and len(steps) <= 1:
        yield included
    else:
        yield from ([run] for run in included)
    yield from ([run] for run in seed_runs if not run.is_included)


def _line(figure: FigureSpec, panel_index: int, metric: str, runs: Sequence[RunCurves], n_runs: int) -> Line | None:
    curves = [metric_curve(run, metric) for run in runs]
    units_per_step = float(np.mean([measured_clock_units_per_step(figure.x, run) for run in runs])) if runs else nan
    if not curves or not curves[0].steps.size or isnan(units_per_step):
        return None
    first, n = runs[0], len(runs)
    steps = _steps_trained(curves[0].steps, first)
    kept = _without_crowded_end(steps)
    mean, std = (values[kept] for values in _mean_and_std(curves))
    name = ", ".join(filter(None, (config_label(first), metric_label(metric))))
    return Line(
        panel=panel_index,
        name=name if n > 1 else f"{name}, seed {first.run.seed}",
        colour=line_colour(figure, first, metric),
        dash=line_dash(figure, first, metric),
        x=tuple(np.asarray(steps[kept] * units_per_step, dtype=np.float64)),
        y=mean,
        low=mean - std,
        high=mean + std,
        n=n,
        n_runs=n_runs,
        diverged=not first.is_included,
    )


def _steps_trained(steps: np.ndarray, run: RunCurves) -> np.ndarray:
    """The steps, of which a closing evaluation has no own: it is recorded one step after the last update."""
    return np.minimum(steps, run.run.step) if run.run.status == "finished" else steps


def _without_crowded_end(steps: np.ndarray) -> np.ndarray:
    """Which evaluations to draw: those a step or two before the closing one would make it a vertical tick."""
    kept = np.ones(len(steps), dtype=bool)
    if len(steps) > 2:
        usual = np.diff(steps)[-4:].max()
        kept[1:-1] = steps[-1] - steps[1:-1] > CLOSING_SHARE * usual
    return kept


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


def _choose_x_scale(lines: Sequence[Line]) -> Scale:
    """Logarithmic if a line has made most of its change in the first few percent of training, and was evaluated then.

    Memorising is over in 300 of 10,000 steps, and a linear axis would hide it.
    """
    return "log" if any(_changes_early(line) for line in lines if not line.diverged) else "linear"


def _changes_early(line: Line) -> bool:
    finite = np.isfinite(line.y)
    x, y = np.array(line.x, dtype=float)[finite], line.y[finite]
    early = (x <= EARLY_SHARE * x[-1]) & (x > 0) if len(x) else np.array([])
    if early.sum() < MIN_EARLY_EVALUATIONS or (reach := float(np.abs(y - y[0]).max())) == 0:
        return False
    return float(np.abs(y[early] - y[0]).max()) >= EARLY_CHANGE * reach


# ---- marks where training could have stopped ----


def _stopping_marks(
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
    curve = ", ".join(filter(None, (config_label(seed_runs[0]), metric_label(figure.stopping))))
    steps = {"best": advice.best, "copying": advice.copying}
    if advice.earliest < advice.best:
        steps["earliest"] = advice.earliest
    for field, step in steps.items():
        rule = STOPPING_RULES[field]
        y = float(np.interp(step, mean.steps, mean.values)) if isfinite(step) else step
        if isfinite(y) and isfinite(units_per_step):
            name = f"{curve}: {rule}, step {format_count(step)}"
            yield StoppingMark(panel_index, rule, step * units_per_step, y, name)


def _stopping_note(marks: Sequence[StoppingMark], figure: FigureSpec) -> str:
    """A sentence about the marks; empty if there are none."""
    if not marks:
        return ""
    rules = [rule for rule in STOPPING_RULES.values() if any(mark.rule == rule for mark in marks)]
    return f"Marks on the {metric_label(figure.stopping or '')}, mean over seeds: {'; '.join(rules)}."


# ---- title and notes ----


def _default_title(figure: FigureSpec) -> str:
    """`Loss and accuracy during training, by learning rate`."""
    clock = "during training" if figure.x == "step" else f"against {setting_label(figure.x)}"
    return title_by_settings(f"{list_quantities(figure)} {clock}", figure)


def _chart_notes(figure: FigureSpec, runs: Sequence[RunCurves], lines: Sequence[Line], x_scale: str) -> tuple[str, ...]:
    has_positive = any((np.array(line.x, dtype=float) <= 0).any() for line in lines)
    conditions = {
        "Bands are ± std over seeds (population).": any(line.n > 1 for line in lines),
        "Seeds evaluated at different steps have no mean: each run has its own line.": any(
            line.n == 1 and line.n_runs > 1 and not line.diverged for line in lines
        ),
        "Gaps are values that are not finite.": any(np.isnan(line.y).any() for line in lines),
        "Compute time is spread evenly over a run's steps.": figure.x == "time",
        "A log axis does not show step 0.": x_scale != "linear" and has_positive,
        "Values that are not positive are not shown on a log axis.": figure.y_scale == "log",
        "The epochs of these runs are unknown without their data.": figure.x == "epoch" and not lines,
        ambiguity_note(figure, runs): "seed" not in (figure.colour, figure.dash),
    }
    notes = (seed_count_note(lines), *(note for note, applies in conditions.items() if applies), *status_notes(runs))
    return tuple(note for note in notes if note)
