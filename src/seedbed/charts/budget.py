"""Iso-budget curves for a compute budget C = P·B·T, and the metric that each config reaches along them.

For a budget and a config with P parameters and batch size B, each run is truncated at T = C / (P·B), without
interpolation. The left panel shows the curves in the plane of steps and x, with the best config of each ringed; the
others show the metrics along them. Dashed is a scaling law fitted to all runs, if it describes them well
(`stats.compute_budget`), and diamonds are the configs that it recommends, with their intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from seedbed.charts.axis_labels import label_with_unit, metric_label, metric_unit, setting_label
from seedbed.charts.panel_layout import (
    Scale,
    channel_value,
    check_setting_names,
    distinct_values,
    metric_curve,
    scale_for_values,
    status_notes,
    value_title,
)
from seedbed.errors import UsageError
from seedbed.format import format_number
from seedbed.specs import FigureSpec
from seedbed.stats.comparison import summarise_seeds
from seedbed.stats.compute_budget import (
    LAW_VARIABLES,
    advise_budget,
    budget_curve,
    fit_law_to_runs,
    format_budget_advice,
    format_scaling_law,
    training_compute,
)
from seedbed.stats.curve_statistics import find_extremum
from seedbed.stats.groups import filter_runs
from seedbed.stats.metric_registry import metric_direction
from seedbed.stats.scaling_laws import MIN_GOOD_R_SQUARED, FittedValue, ScalingLaw
from seedbed.stats.summary import RunCurves, group_by_config

if TYPE_CHECKING:
    import altair as alt

N_BUDGETS: Final = 6
MAX_STEPS_RATIO: Final = 1.05  # tolerance beyond the range of trained steps, for rounding
LAW_VARIABLE_OF_X: Final = {"train.batch_size": "batch", "parameters": "parameters"}
FIXED_VARIABLE: Final = {"batch": "parameters", "parameters": "batch"}  # not in the law, so equal in all runs
X_OF_LAW_VARIABLE: Final = {variable: x for x, variable in LAW_VARIABLE_OF_X.items()}
DATASET_COLUMNS: Final[dict[str, Any]] = {
    "group": "number", "metric": "number", "budget": "number", "x": "number", "steps": "number", "y": "number",
    "low": "number", "high": "number", "best": "number", "n": "number",
}  # fmt: skip
LAW_COLUMNS: Final[dict[str, Any]] = {
    "group": "number", "metric": "number", "recommended": "number", "budget": "number",
    **{f"{name}{end}": "number" for name in ("x", "steps", "y") for end in ("", "_low", "_high")},
}  # fmt: skip


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
class PredictedPoint:
    """A point on an iso-budget curve, with the loss that the law predicts there."""

    budget: float
    x: float
    steps: float
    loss: float


@dataclass(frozen=True)
class RecommendedPoint:
    """Where the predicted loss is lowest on an iso-budget curve, with 95 % intervals."""

    budget: float
    x: FittedValue
    steps: FittedValue
    loss: FittedValue


@dataclass(frozen=True)
class BudgetFit:
    """The law of one group of runs; if there is none that fits well, it has no points and its notes say why."""

    group: int
    metric: int
    predictions: tuple[PredictedPoint, ...] = ()
    recommended: tuple[RecommendedPoint, ...] = ()
    notes: tuple[str, ...] = ()


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
        group_runs = [run for run in selected if figure.column is None or channel_value(run, figure.column) == value]
        fits.append(fit_budget_law(group, figure.metrics, x, _budget_levels(group_runs), group_runs))
        for budget in _budget_levels(group_runs):
            for metric_index, metric in enumerate(figure.metrics):
                curves += _iso_budget_curve(group, metric_index, metric, budget, x, group_runs)
    names = tuple(value_title(figure.column, value) if figure.column else "" for value in groups)
    x_values = sorted({point.x for curve in curves for point in curve.points})
    return BudgetChart(
        title=figure.title or f"Best values for each budget C = P·B·T, against {setting_label(x)}",
        groups=names,
        metrics=figure.metrics,
        curves=tuple(curves),
        fits=tuple(filter(None, fits)),
        x_title=setting_label(x),
        x_scale=scale_for_values(x_values, figure.x_scale) or "linear",
        y_scale=figure.y_scale,
        notes=(*_chart_notes(selected, runs), *_law_notes(names, fits)),
    )


def _choose_x(runs: Sequence[RunCurves]) -> str:
    """The x axis of a figure that names none: the batch size, unless only the number of parameters varies."""
    varies = {name: len(distinct_values(runs, name)) > 1 for name in ("train.batch_size", "parameters")}
    return "parameters" if varies["parameters"] and not varies["train.batch_size"] else "train.batch_size"


def _budget_levels(runs: Sequence[RunCurves]) -> list[float]:
    """Geometrically spaced budgets, from a fiftieth of the largest compute of any run up to all of it."""
    compute = [training_compute(run.run) for run in runs]
    if not compute:
        return []
    return [float(f"{budget:.2g}") for budget in np.geomspace(max(compute) / 50, max(compute), N_BUDGETS)]


def _iso_budget_curve(
    group: int, metric_index: int, metric: str, budget: float, x: str, runs: Sequence[RunCurves]
) -> list[IsoBudgetCurve]:
    """The curve of one budget; empty if fewer than two configs can spend it. Of equal x the better config is kept."""
    sign = -1 if metric_direction(metric) == "max" else 1
    points = [point for seed_runs in group_by_config(runs) if (point := _budget_point(seed_runs, metric, budget, x))]
    by_x = {point.x: point for point in sorted(points, key=lambda point: -sign * point.mean)}  # the better ones last
    if len(by_x) < 2:
        return []
    best = min(by_x.values(), key=lambda point: sign * point.mean)
    ordered = (by_x[value] for value in sorted(by_x))
    flagged = tuple(BudgetPoint(p.x, p.steps, p.mean, p.std, p.n, p is best) for p in ordered)
    return [IsoBudgetCurve(group, metric_index, budget, flagged)]


def _budget_point(seed_runs: Sequence[RunCurves], metric: str, budget: float, x: str) -> BudgetPoint | None:
    """The config truncated at this budget; None if it was trained for too few steps or has no finite value by then."""
    first = seed_runs[0].run
    steps = budget / training_compute(first, 1)
    n_steps = first.settings.n_steps(first.dataset_info or first.settings.task.dataset_info())
    if not 1 <= steps <= n_steps * MAX_STEPS_RATIO:
        return None
    trained = [run for run in seed_runs if run.is_complete or run.run.step >= steps]
    goal = metric_direction(metric) or "min"
    best = {run.run.seed: find_extremum(metric_curve(run, metric), goal, steps).value for run in trained}
    spread = summarise_seeds(best)
    x_value = float(channel_value(seed_runs[0], x))
    return BudgetPoint(x_value, steps, spread.mean, spread.std, spread.n) if isfinite(spread.mean) else None


def _chart_notes(selected: Sequence[RunCurves], runs: Sequence[RunCurves]) -> tuple[str, ...]:
    counts = sorted({len(seed_runs) for seed_runs in group_by_config(selected)})
    n = f"n = {counts[0]} seed{'s' * (counts[0] != 1)} per config." if len(counts) == 1 else ""
    legend = "Each run is truncated at T = C / (P·B). Rings: the best config of each budget."
    return tuple(note for note in (n, legend, *status_notes(runs)) if note)


# ---- the scaling law ----


def fit_budget_law(
    group: int, metrics: Sequence[str], x: str, budgets: Sequence[float], runs: Sequence[RunCurves]
) -> BudgetFit | None:
    """The law of the first metric to be minimised; None if there is none, or if x is not a variable of a law."""
    metric_index = next((index for index, name in enumerate(metrics) if metric_direction(name) == "min"), None)
    if metric_index is None or x not in LAW_VARIABLE_OF_X or not budgets:
        return None
    variable, metric = LAW_VARIABLE_OF_X[x], metrics[metric_index]
    try:
        fixed = _fixed_value(FIXED_VARIABLE[variable], runs)
        law = fit_law_to_runs(runs, metric, (variable, "steps"))
        advice = [advise_budget(law, budget, fixed) for budget in budgets]
    except UsageError as error:
        return BudgetFit(group, metric_index, notes=(f"No law is fitted: {error}.",))
    if law.r_squared < MIN_GOOD_R_SQUARED:
        poor = f"R² = {law.r_squared:.2f}, and {MIN_GOOD_R_SQUARED} is needed"
        return BudgetFit(
            group, metric_index, notes=(f"The scaling law is not drawn: it does not fit these runs ({poor}).",)
        )
    recommended = (
        RecommendedPoint(one.budget, one.allocation[variable], one.allocation["steps"], one.loss) for one in advice
    )
    predictions = [point for budget in budgets for point in _predictions_along(law, budget, variable, fixed)]
    notes = (format_scaling_law(law, metric), format_budget_advice(advice[-1], metric))
    return BudgetFit(group, metric_index, tuple(predictions), tuple(recommended), notes)


def _fixed_value(name: str, runs: Sequence[RunCurves]) -> dict[str, float]:
    """The factor of the budget that all runs must share."""
    values = {float(LAW_VARIABLES[name](run)) for run in runs}
    if len(values) > 1:
        what, other = ("number of parameters", "batch size") if name == "parameters" else ("batch size", "parameters")
        tried = f"{format_number(min(values))} to {format_number(max(values))}"
        raise UsageError(
            f"along the {other} it holds the {what} fixed, which varies here ({tried}): "
            f"try x = {X_OF_LAW_VARIABLE[name]}, or runs that share it"
        )
    return {name: values.pop()}


def _predictions_along(
    law: ScalingLaw, budget: float, variable: str, fixed: dict[str, float]
) -> Iterator[PredictedPoint]:
    """The law on one iso-budget curve, within the range of trained steps."""
    curve = budget_curve(law, budget, variable, "steps", fixed)
    low, high = law.ranges["steps"]
    for x, steps, loss in zip(curve.x, curve.y, curve.loss, strict=True):
        if low / MAX_STEPS_RATIO <= steps <= high * MAX_STEPS_RATIO:
            yield PredictedPoint(budget, float(x), float(steps), float(loss))


def _law_notes(names: Sequence[str], fits: Sequence[BudgetFit | None]) -> list[str]:
    """Each group's fitted law, its recommendation and its warnings."""
    known = [fit for fit in fits if fit]
    legend = "Dashed: the fitted law. Diamonds: the configs it recommends, with 95 % intervals, if within the axes."
    notes = [f"{names[fit.group]}: {note}".removeprefix(": ") for fit in known for note in fit.notes]
    return [legend, *notes] if any(fit.predictions for fit in known) else notes


# ---- as a picture ----


def draw_budget(chart: BudgetChart) -> alt.ConcatChart:
    """One row of panels per group: curves over steps and x, then each metric along them, with the law dashed."""
    from seedbed.charts.vega_lite import csv_dataset, panel_grid

    domains = _domains(chart)
    points, point_data = csv_dataset(DATASET_COLUMNS, _dataset_rows(chart))
    law, law_data = csv_dataset(LAW_COLUMNS, _fit_rows(chart, domains), "law")
    panels = [
        _draw_panel(chart, domains, points, law, group, metric)
        for group in range(len(chart.groups)) for metric in (None, *range(len(chart.metrics)))
    ]  # fmt: skip
    grid = panel_grid(
        panels, 1 + len(chart.metrics), chart.title, point_data | law_data, side_pixels=120, axis_pixels=80
    )
    return grid.resolve_scale(color="shared")


def _domains(chart: BudgetChart) -> dict[str | int, tuple[float, float]]:
    """The domain of x, of the steps, and of each metric."""
    from seedbed.charts.vega_lite import compute_domain

    points = [(curve.metric, point) for curve in chart.curves for point in curve.points]
    domains: dict[str | int, tuple[float, float]] = {
        "x": compute_domain([point.x for _, point in points], chart.x_scale),
        "steps": compute_domain([point.steps for _, point in points], "log"),
    }
    for index in range(len(chart.metrics)):
        means = [point.mean for metric, point in points if metric == index]
        domains[index] = compute_domain(means, _metric_scale(chart, index))
    return domains


def _dataset_rows(chart: BudgetChart) -> list[tuple[Any, ...]]:
    return [
        (curve.group, curve.metric, curve.budget, point.x, point.steps, point.mean, point.mean - point.std,
         point.mean + point.std, int(point.is_best), point.n)
        for curve in chart.curves for point in curve.points
    ]  # fmt: skip


def _fit_rows(chart: BudgetChart, domains: dict[str | int, tuple[float, float]]) -> Iterator[tuple[float, ...]]:
    """The law along the curves, and the recommended points, as far as they lie within the axes."""
    for fit in chart.fits:
        shown = (domains["x"], domains["steps"], domains[fit.metric])
        for point in fit.predictions:
            if _is_within(point.loss, domains[fit.metric]):
                values = (value for one in (point.x, point.steps, point.loss) for value in (one, nan, nan))
                yield fit.group, fit.metric, 0, point.budget, *values
        for best in fit.recommended:
            pairs = list(zip((best.x, best.steps, best.loss), shown, strict=True))
            if all(_is_within(one.value, domain) for one, domain in pairs):
                ends = ((one.value, max(one.low, low), min(one.high, high)) for one, (low, high) in pairs)
                yield fit.group, fit.metric, 1, best.budget, *(value for values in ends for value in values)


def _is_within(value: float, domain: tuple[float, float]) -> bool:
    return domain[0] / 1.001 <= value <= domain[1] * 1.001


def _metric_scale(chart: BudgetChart, metric_index: int) -> Scale:
    return "linear" if metric_unit(chart.metrics[metric_index]) == "fraction" else chart.y_scale


def _draw_panel(
    chart: BudgetChart, domains: dict[str | int, tuple[float, float]], points: Any, law: Any, group: int,
    metric: int | None,
) -> alt.LayerChart:  # fmt: skip
    """The plane of steps and x for metric None; else that metric against x, with what the law predicts."""
    import altair as alt

    in_group = f"datum.group == {group} && datum.metric == "
    fit = alt.Chart(law).transform_filter(f"datum.group == {group}" if metric is None else f"{in_group}{metric}")
    base = alt.Chart(points).transform_filter(f"{in_group}{metric or 0}")
    position, names = _position(chart, domains, metric)
    is_corner = group == 0 and metric == len(chart.metrics) - 1
    layers = _curve_marks(base.encode(**position), legend=is_corner)
    if metric is not None:
        dashes = fit.transform_filter("datum.recommended == 0").mark_line(strokeDash=[4, 3], strokeWidth=1.2)
        layers.append(dashes.encode(color=_budget_colour(False), detail="budget:N", **position))
    layers += _recommendation_marks(fit, {name: position[name] for name in "xy"}, names)
    title = chart.groups[group] if metric is None else ""
    return alt.layer(*layers).resolve_legend(color="independent").properties(width=280, height=210, title=title)


def _position(
    chart: BudgetChart, domains: dict[str | int, tuple[float, float]], metric: int | None
) -> tuple[dict[str, Any], tuple[str, str]]:
    """The encodings of both axes, and the columns that they show."""
    import altair as alt

    from seedbed.charts.vega_lite import build_axis, build_scale, readable_ticks

    xs = [point.x for curve in chart.curves for point in curve.points]
    ticks = readable_ticks(xs, domains["x"], chart.x_scale, 260)
    x_axis = build_axis(domains["x"], chart.x_scale, ticks, grid=metric is None)
    x_options: dict[str, Any] = {
        "title": chart.x_title,
        "axis": x_axis,
        "scale": build_scale(chart.x_scale, domains["x"], False),
    }
    if metric is None:
        steps: dict[str, Any] = {
            "axis": build_axis(domains["steps"], "log"),
            "scale": build_scale("log", domains["steps"], False),
        }
        position: dict[str, Any] = {"x": alt.X("steps:Q", title="steps T", **steps), "y": alt.Y("x:Q", **x_options)}
        return position | {"order": alt.Order("x:Q")}, ("steps", "x")
    best = "highest" if metric_direction(chart.metrics[metric]) == "max" else "lowest"
    title = label_with_unit(f"{best} {metric_label(chart.metrics[metric])}", metric_unit(chart.metrics[metric]))
    scale = _metric_scale(chart, metric)
    y: dict[str, Any] = {
        "axis": build_axis(domains[metric], scale),
        "scale": build_scale(scale, domains[metric], False),
    }
    return {"x": alt.X("x:Q", **x_options), "y": alt.Y("y:Q", title=title, **y)}, ("x", "y")


def _budget_colour(legend: bool) -> alt.Color:
    import altair as alt

    bar = alt.Legend(title=setting_label("budget"), format=".1e", type="gradient", tickCount=4)
    return alt.Color("budget:Q", scale=alt.Scale(type="log"), legend=bar if legend else None)


def _curve_marks(base: alt.Chart, legend: bool) -> list[alt.Chart]:
    """Lines, points, and rings around the best of each budget; one panel carries the legend for all."""
    import altair as alt

    from seedbed.charts.vega_lite import number_tooltip

    tooltip = [alt.Tooltip("budget:Q", format=".2e"), number_tooltip("x"), alt.Tooltip("steps:Q", format=",.0f")]
    marks = base.encode(detail="budget:N", tooltip=[*tooltip, number_tooltip("y", "value"), alt.Tooltip("n:Q")])
    lines = marks.encode(color=_budget_colour(legend)).mark_line(strokeWidth=1.6)
    points = marks.encode(color=_budget_colour(False)).mark_point(filled=True, size=40, opacity=1)
    rings = points.transform_filter("datum.best == 1").mark_point(size=170, strokeWidth=2, filled=False, opacity=1)
    return [lines, points, rings]


def _recommendation_marks(fit: alt.Chart, position: dict[str, Any], names: tuple[str, str]) -> list[alt.Chart]:
    """Diamonds at the recommended points, with an error bar along each axis."""
    from seedbed.charts.vega_lite import number_tooltip

    tooltip = [number_tooltip(f"{name}{end}") for name in names for end in ("", "_low", "_high")]
    recommended = fit.transform_filter("datum.recommended == 1")
    marks = recommended.encode(color=_budget_colour(False), tooltip=tooltip, **position)
    bars = []
    for channel, name in zip("xy", names, strict=True):
        low = position[channel].copy()
        low.shorthand = f"{name}_low:Q"
        bars.append(marks.encode(**{channel: low, f"{channel}2": f"{name}_high:Q"}).mark_rule(strokeWidth=1.2))
    return [*bars, marks.mark_point(shape="diamond", filled=True, size=90, opacity=1)]
