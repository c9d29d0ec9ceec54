"""Level curves of a budget C = P·B·T: where they run, and what each point on them would have reached.

For a budget and a point with P parameters and batch B, the run is taken as if stopped at T = C / (P·B), with nothing
interpolated. The left panel is the level curves themselves, with the best point of each ringed; the others show the
metric along them. Beside what was seen stands what a fitted law says, dashed, and the point that it advises for each
budget, with its interval (`advised`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final

import numpy as np

from seedbed.charts.budget_fit import BudgetFit, fit_budget_law
from seedbed.charts.labels import setting_label
from seedbed.charts.line_data import Scale, status_notes
from seedbed.charts.panel_layout import value_title
from seedbed.charts.run_selection import (
    check_setting_names,
    distinct_values,
    group_by_config,
    metric_curve,
    select_runs,
    setting_value,
)
from seedbed.data.dataset_info import get_dataset_info
from seedbed.settings import Value
from seedbed.specs import FigureSpec
from seedbed.stats.comparison import summarise_seeds
from seedbed.stats.curve_statistics import find_extremum, metric_direction
from seedbed.stats.summary import RunCurves
from seedbed.stats.training_cost import training_compute

if TYPE_CHECKING:
    import altair as alt

N_BUDGETS: Final = 6


@dataclass(frozen=True)
class BudgetPoint:
    """A point stopped where it has used up a budget."""

    x: float
    steps: float
    mean: float
    std: float
    n: int
    is_best: bool = False


@dataclass(frozen=True)
class IsoBudgetCurve:
    """The stops of one budget, by x; the best of them is marked."""

    group: int
    metric: int
    budget: float
    points: tuple[BudgetPoint, ...]


@dataclass(frozen=True)
class BudgetChart:
    """A chart of level curves, gathered: one row of panels for each group of runs."""

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
        """Whether there is nothing to see."""
        return not self.curves


def gather_budget(figure: FigureSpec, runs: Sequence[RunCurves]) -> BudgetChart:
    """The level curves of a figure of kind `level`; x is a number such as the batch size or `parameters`."""
    x = "train.batch_size" if figure.x == "step" else figure.x
    check_setting_names(runs, (x, figure.column))
    drawn = [run for run in select_runs(runs, figure) if run.is_included]
    groups = distinct_values(drawn, figure.column)
    curves: list[IsoBudgetCurve] = []
    fits: list[BudgetFit | None] = []
    for group, value in enumerate(groups):
        inside = [run for run in drawn if figure.column is None or setting_value(run, figure.column) == value]
        fits.append(fit_budget_law(group, figure.metrics, x, _budget_levels(inside), inside))
        for budget in _budget_levels(inside):
            for place, metric in enumerate(figure.metrics):
                curves += _iso_budget_curve(group, place, metric, budget, x, inside)
    names = tuple(value_title(figure.column, value) if figure.column else "" for value in groups)
    return BudgetChart(
        title=figure.title or f"What a budget of C = P·B·T buys, against {setting_label(x)}",
        groups=names,
        metrics=figure.metrics,
        curves=tuple(curves),
        fits=tuple(filter(None, fits)),
        x_title=setting_label(x),
        x_scale=figure.x_scale,
        y_scale=figure.y_scale,
        notes=(*_notes(drawn, runs), *_law_notes(names, fits)),
    )


def _budget_levels(runs: Sequence[RunCurves]) -> list[float]:
    """Budgets in equal ratios: from what every point can spend in a tenth of its steps to the largest of all."""
    spent = [training_compute(run.run.settings, run.run.parameters) for run in runs]
    if not spent:
        return []
    low, high = max(spent) / 50, max(spent)
    return [float(f"{budget:.2g}") for budget in np.geomspace(low, high, N_BUDGETS)]


def _iso_budget_curve(
    group: int, metric_index: int, metric: str, budget: float, x: str, runs: Sequence[RunCurves]
) -> list[IsoBudgetCurve]:
    """The curve of one budget; none where fewer than two points can spend it."""
    found: dict[float, BudgetPoint] = {}
    kind = metric_direction(metric) or "min"
    for members in group_by_config(runs):
        stop = _budget_point(members, metric, budget, x)
        if stop and (stop.x not in found or _is_better(stop, found[stop.x], kind)):
            found[stop.x] = stop
    if len(found) < 2:
        return []
    ordered = [found[x] for x in sorted(found)]
    best = (min if kind == "min" else max)(ordered, key=lambda stop: stop.mean)
    stops = tuple(BudgetPoint(s.x, s.steps, s.mean, s.std, s.n, s is best) for s in ordered)
    return [IsoBudgetCurve(group, metric_index, budget, stops)]


def _is_better(one: BudgetPoint, other: BudgetPoint, goal: str) -> bool:
    return one.mean < other.mean if goal == "min" else one.mean > other.mean


def _budget_point(seed_runs: Sequence[RunCurves], metric: str, budget: float, x: str) -> BudgetPoint | None:
    """Where this point stops; None where its steps do not reach so far, or nothing is recorded before."""
    first = seed_runs[0].run
    each = training_compute(first.settings, first.parameters, 1)
    steps = budget / each
    if not 1 <= steps <= first.settings.n_steps(get_dataset_info(first.settings.task)) * 1.05:
        return None
    kind = metric_direction(metric) or "min"
    best = {run.run.seed: find_extremum(metric_curve(run, metric), kind, steps).value for run in seed_runs}
    spread = summarise_seeds(best)
    where: Value = setting_value(seed_runs[0], x)
    return BudgetPoint(float(where), steps, spread.mean, spread.std, spread.n) if isfinite(spread.mean) else None


def _notes(selected: Sequence[RunCurves], runs: Sequence[RunCurves]) -> tuple[str, ...]:
    counts = sorted({len(members) for members in group_by_config(selected)})
    n = f"n = {counts[0]} seed{'s' * (counts[0] != 1)} a point." if len(counts) == 1 else ""
    how = "Each run is taken as if stopped at T = C / (P·B). Rings: the best of each budget."
    return tuple(note for note in (n, how, *status_notes(runs)) if note)


def _law_notes(names: Sequence[str], fits: Sequence[BudgetFit | None]) -> list[str]:
    """What each group's law says, with its warnings; the drawing leaves out what lies beyond its axes."""
    found = [fit for fit in fits if fit]
    how = (
        "Dashed: the fitted law. Diamonds: the points that it advises, with 95 % intervals, where they are on the axes."
    )
    said = [f"{names[fit.group]}: {note}".removeprefix(": ") for fit in found for note in fit.notes]
    return [how, *said] if any(fit.predictions for fit in found) else said


def draw_budget(chart: BudgetChart) -> alt.ConcatChart:
    """The level curves over (T, x), and the metrics along them."""
    from seedbed.charts.budget_panels import draw_budget_panels

    return draw_budget_panels(chart)
