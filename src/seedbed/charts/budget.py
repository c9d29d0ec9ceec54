"""Iso-budget curves for a compute budget C = P·B·T, and the metric that each config reaches along them.

For a budget and a config with P parameters and batch size B, each run is truncated at T = C / (P·B), without
interpolation. The left panel shows the curves in the plane of steps and x, with the best config of each ringed; the
others show the metrics along them, with the fitted scaling law dashed and the config that the law recommends for each
budget, with its interval (`budget_fit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final

import numpy as np

from seedbed.charts.axis_labels import setting_label
from seedbed.charts.budget_fit import BudgetFit, fit_budget_law
from seedbed.charts.line_data import Scale, status_notes
from seedbed.charts.panel_layout import value_title
from seedbed.charts.run_selection import (
    check_setting_names,
    distinct_values,
    group_by_config,
    metric_curve,
)
from seedbed.settings import Value
from seedbed.specs import FigureSpec
from seedbed.stats.comparison import summarise_seeds
from seedbed.stats.curve_statistics import find_extremum, metric_direction
from seedbed.stats.groups import filter_runs, setting_value
from seedbed.stats.summary import RunCurves
from seedbed.stats.training_cost import training_compute

if TYPE_CHECKING:
    import altair as alt

N_BUDGETS: Final = 6


@dataclass(frozen=True)
class BudgetPoint:
    """A config truncated at the step where it has used up a budget."""

    x: float
    steps: float
    mean: float
    std: float
    n: int
    is_best: bool = False


@dataclass(frozen=True)
class IsoBudgetCurve:
    """The configs that can spend one budget, sorted by x; the best is flagged."""

    group: int
    metric: int
    budget: float
    points: tuple[BudgetPoint, ...]


@dataclass(frozen=True)
class BudgetChart:
    """The data of a budget chart: one row of panels per group of runs."""

    title: str
    groups: tuple[str, ...]
    metrics: tuple[str, ...]
    curves: tuple[IsoBudgetCurve, ...]
    fits: tuple[BudgetFit, ...]
    x_title: str
    x_scale: Scale
    y_scale: Scale
    notes: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.curves


def gather_budget(figure: FigureSpec, runs: Sequence[RunCurves]) -> BudgetChart:
    """The data of a `budget` figure; x is numeric, such as the batch size or `parameters`."""
    x = _choose_x(runs) if figure.x == "step" else figure.x
    check_setting_names(runs, (x, figure.column))
    selected = [run for run in filter_runs(runs, figure.only) if run.is_included]
    groups = distinct_values(selected, figure.column)
    curves: list[IsoBudgetCurve] = []
    fits: list[BudgetFit | None] = []
    for group, value in enumerate(groups):
        group_runs = [run for run in selected if figure.column is None or setting_value(run, figure.column) == value]
        fits.append(fit_budget_law(group, figure.metrics, x, _budget_levels(group_runs), group_runs))
        for budget in _budget_levels(group_runs):
            for metric_index, metric in enumerate(figure.metrics):
                curves += _iso_budget_curve(group, metric_index, metric, budget, x, group_runs)
    names = tuple(value_title(figure.column, value) if figure.column else "" for value in groups)
    return BudgetChart(
        title=figure.title or f"Best values for each budget C = P·B·T, against {setting_label(x)}",
        groups=names,
        metrics=figure.metrics,
        curves=tuple(curves),
        fits=tuple(filter(None, fits)),
        x_title=setting_label(x),
        x_scale=figure.x_scale,
        y_scale=figure.y_scale,
        notes=(*_chart_notes(selected, runs), *_law_notes(names, fits)),
    )


def _choose_x(runs: Sequence[RunCurves]) -> str:
    """The x axis of a figure that names none: the batch size, unless only the number of parameters varies."""
    varies = {name: len({setting_value(run, name) for run in runs}) > 1 for name in ("train.batch_size", "parameters")}
    return "parameters" if varies["parameters"] and not varies["train.batch_size"] else "train.batch_size"


def _budget_levels(runs: Sequence[RunCurves]) -> list[float]:
    """Geometrically spaced budgets, from a fiftieth of the largest compute of any run up to all of it."""
    compute = [training_compute(run.run) for run in runs]
    if not compute:
        return []
    low, high = max(compute) / 50, max(compute)
    return [float(f"{budget:.2g}") for budget in np.geomspace(low, high, N_BUDGETS)]


def _iso_budget_curve(
    group: int, metric_index: int, metric: str, budget: float, x: str, runs: Sequence[RunCurves]
) -> list[IsoBudgetCurve]:
    """The curve of one budget; empty if fewer than two configs can spend it. Of equal x the better config is kept."""
    best_by_x: dict[float, BudgetPoint] = {}
    goal = metric_direction(metric) or "min"
    for seed_runs in group_by_config(runs):
        point = _budget_point(seed_runs, metric, budget, x)
        if point and (point.x not in best_by_x or _is_better(point, best_by_x[point.x], goal)):
            best_by_x[point.x] = point
    if len(best_by_x) < 2:
        return []
    ordered = [best_by_x[x] for x in sorted(best_by_x)]
    best = (min if goal == "min" else max)(ordered, key=lambda point: point.mean)
    points = tuple(BudgetPoint(p.x, p.steps, p.mean, p.std, p.n, p is best) for p in ordered)
    return [IsoBudgetCurve(group, metric_index, budget, points)]


def _is_better(one: BudgetPoint, other: BudgetPoint, goal: str) -> bool:
    return one.mean < other.mean if goal == "min" else one.mean > other.mean


def _budget_point(seed_runs: Sequence[RunCurves], metric: str, budget: float, x: str) -> BudgetPoint | None:
    """The config truncated at this budget; None if it was trained for too few steps or has no finite value by then."""
    first = seed_runs[0].run
    steps = budget / training_compute(first, 1)
    if not 1 <= steps <= first.settings.n_steps(first.dataset_info or first.settings.task.dataset_info()) * 1.05:
        return None
    goal = metric_direction(metric) or "min"
    trained = [run for run in seed_runs if run.is_complete or run.run.step >= steps]
    best = {run.run.seed: find_extremum(metric_curve(run, metric), goal, steps).value for run in trained}
    spread = summarise_seeds(best)
    x_value: Value = setting_value(seed_runs[0], x)
    return BudgetPoint(float(x_value), steps, spread.mean, spread.std, spread.n) if isfinite(spread.mean) else None


def _chart_notes(selected: Sequence[RunCurves], runs: Sequence[RunCurves]) -> tuple[str, ...]:
    counts = sorted({len(seed_runs) for seed_runs in group_by_config(selected)})
    n = f"n = {counts[0]} seed{'s' * (counts[0] != 1)} per config." if len(counts) == 1 else ""
    legend = "Each run is truncated at T = C / (P·B). Rings: the best config of each budget."
    return tuple(note for note in (n, legend, *status_notes(runs)) if note)


def _law_notes(names: Sequence[str], fits: Sequence[BudgetFit | None]) -> list[str]:
    """Each group's fitted law, its recommendation and its warnings."""
    known = [fit for fit in fits if fit]
    legend = "Dashed: the fitted law. Diamonds: the configs it recommends, with 95 % intervals, if within the axes."
    notes = [f"{names[fit.group]}: {note}".removeprefix(": ") for fit in known for note in fit.notes]
    return [legend, *notes] if any(fit.predictions for fit in known) else notes


def draw_budget(chart: BudgetChart) -> alt.ConcatChart:
    """The iso-budget curves over (T, x), and the metrics along them."""
    from seedbed.charts.budget_panels import draw_budget_panels

    return draw_budget_panels(chart)
