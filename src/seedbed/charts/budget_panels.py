"""A budget chart as Altair panels, recommended row per group: curves over steps and x, then each metric along them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan
from typing import Any, Final

import altair as alt

from seedbed.charts.axis_labels import label_with_unit, metric_label, metric_unit, setting_label
from seedbed.charts.budget import BudgetChart, BudgetPoint
from seedbed.charts.encodings import build_axis, build_scale, compute_domain
from seedbed.charts.line_data import Scale
from seedbed.charts.vega_lite import csv_dataset, wrapped_title
from seedbed.stats.curve_statistics import metric_direction
from seedbed.stats.scaling_laws import FittedValue

DATASET_COLUMNS: Final[dict[str, Any]] = {
    "group": "number", "metric": "number", "budget": "number", "x": "number", "steps": "number", "y": "number",
    "low": "number", "high": "number", "best": "number", "n": "number",
}  # fmt: skip
LAW_COLUMNS: Final[dict[str, Any]] = {
    "group": "number", "metric": "number", "recommended": "number", "budget": "number",
    **{f"{name}{end}": "number" for name in ("x", "steps", "y") for end in ("", "_low", "_high")},
}  # fmt: skip


def draw_budget_panels(budget_chart: BudgetChart) -> alt.ConcatChart:
    """The iso-budget curves over (T, x), and the metrics along them."""
    data, points = csv_dataset(DATASET_COLUMNS, _dataset_rows(budget_chart))
    law, predictions = csv_dataset(LAW_COLUMNS, _fit_rows(budget_chart), "law")
    bases = (alt.Chart(data), alt.Chart(law))
    panels: list[Any] = []
    for group, name in enumerate(budget_chart.groups):
        panels.append(_draw_plane(*bases, budget_chart, group, name))
        panels += [_draw_profile(*bases, budget_chart, group, index) for index in range(len(budget_chart.metrics))]
    chart = alt.concat(
        *panels,
        columns=1 + len(budget_chart.metrics),
        title=wrapped_title(budget_chart.title),
        datasets=points | predictions,
    )
    return chart.resolve_scale(color="shared")


def _dataset_rows(chart: BudgetChart) -> list[tuple[Any, ...]]:
    return [
        (curve.group, curve.metric, curve.budget, point.x, point.steps, point.mean, point.mean - point.std,
         point.mean + point.std, int(point.is_best), point.n)
        for curve in chart.curves for point in curve.points
    ]  # fmt: skip


def _fit_rows(chart: BudgetChart) -> Iterator[tuple[float, ...]]:
    """The law along the curves, and the recommended points, as far as they lie within the axes."""
    x_domain, steps_domain = _x_domain(chart), _steps_domain(chart)
    for fit in chart.fits:
        y_domain = _metric_domain(chart, fit.metric)
        for point in fit.predictions:
            if _is_within(point.loss, y_domain):
                no_interval = (nan, nan)
                values = (point.x, *no_interval, point.steps, *no_interval, point.loss, *no_interval)
                yield fit.group, fit.metric, 0, point.budget, *values
        for recommended in fit.recommended:
            if (
                _is_within(recommended.x.value, x_domain)
                and _is_within(recommended.steps.value, steps_domain)
                and _is_within(recommended.loss.value, y_domain)
            ):
                values = (
                    *_clip_interval(recommended.x, x_domain),
                    *_clip_interval(recommended.steps, steps_domain),
                    *_clip_interval(recommended.loss, y_domain),
                )
                yield fit.group, fit.metric, 1, recommended.budget, *values


def _is_within(value: float, domain: tuple[float, float]) -> bool:
    return domain[0] / 1.001 <= value <= domain[1] * 1.001


def _clip_interval(estimate: FittedValue, domain: tuple[float, float]) -> tuple[float, float, float]:
    """The value with its interval clipped to the axis."""
    return estimate.value, max(estimate.low, domain[0]), min(estimate.high, domain[1])


def _budget_colour(legend: bool) -> alt.Color:
    bar = alt.Legend(title=setting_label("budget"), format=".1e", type="gradient", tickCount=4)
    return alt.Color("budget:Q", scale=alt.Scale(type="log"), legend=bar if legend else None)


def _curve_marks(base: alt.Chart, encoded: dict[str, Any], legend: bool) -> list[alt.Chart]:
    """Lines, points, and rings around the best of each budget; recommended panel carries the legend for all."""
    tooltip = [alt.Tooltip("budget:Q", format=".2e"), alt.Tooltip("x:Q"), alt.Tooltip("steps:Q", format=",.0f")]
    tooltip += [alt.Tooltip("y:Q", format=".4~g", title="value"), alt.Tooltip("n:Q")]
    marks = base.encode(detail="budget:N", tooltip=tooltip, **encoded)
    lines = marks.encode(color=_budget_colour(legend)).mark_line(strokeWidth=1.6)
    points = marks.encode(color=_budget_colour(False)).mark_point(filled=True, size=40, opacity=1)
    rings = points.transform_filter("datum.best == 1").mark_point(size=170, strokeWidth=2, filled=False, opacity=1)
    return [lines, points, rings]


def _recommendation_marks(fit: alt.Chart, encoded: dict[str, Any]) -> list[alt.Chart]:
    """Diamonds at the recommended points, with an error bar along each axis."""
    x, y = (encoded[name].shorthand.removesuffix(":Q") for name in ("x", "y"))
    tooltip = [alt.Tooltip(f"{name}{end}:Q", format=".4~g") for name in (x, y) for end in ("", "_low", "_high")]
    position = {"x": encoded["x"], "y": encoded["y"]}
    recommended = fit.transform_filter("datum.recommended == 1")
    marks = recommended.encode(color=_budget_colour(False), tooltip=tooltip, **position)
    x_bars = marks.encode(x=_with_field(encoded["x"], f"{x}_low"), x2=f"{x}_high:Q").mark_rule(strokeWidth=1.2)
    y_bars = marks.encode(y=_with_field(encoded["y"], f"{y}_low"), y2=f"{y}_high:Q").mark_rule(strokeWidth=1.2)
    return [x_bars, y_bars, marks.mark_point(shape="diamond", filled=True, size=90, opacity=1)]


def _with_field(channel: Any, field: str) -> Any:
    """The same encoding channel for another field."""
    copy = channel.copy()
    copy.shorthand = f"{field}:Q"
    return copy


def _layer_panel(layers: Sequence[alt.Chart], title: str = "") -> alt.LayerChart:
    return alt.layer(*layers).resolve_legend(color="independent").properties(width=280, height=210, title=title)


def _x_values(chart: BudgetChart) -> list[float]:
    return sorted({point.x for point in _all_points(chart)})


def _x_domain(chart: BudgetChart) -> tuple[float, float]:
    return compute_domain(_x_values(chart), chart.x_scale)


def _steps_domain(chart: BudgetChart) -> tuple[float, float]:
    return compute_domain([point.steps for point in _all_points(chart)], "log")


def _metric_domain(chart: BudgetChart, metric_index: int) -> tuple[float, float]:
    """The domain of a metric's axis."""
    means = [point.mean for curve in chart.curves if curve.metric == metric_index for point in curve.points]
    return compute_domain(means, _metric_scale(chart, metric_index))


def _metric_scale(chart: BudgetChart, metric_index: int) -> Scale:
    return "linear" if metric_unit(chart.metrics[metric_index]) == "share" else chart.y_scale


def _draw_plane(base: alt.Chart, fit: alt.Chart, chart: BudgetChart, group: int, name: str) -> alt.LayerChart:
    """The iso-budget curves: steps on the x axis, the figure's x on the y axis."""
    steps, x_domain = _steps_domain(chart), _x_domain(chart)
    encoded: dict[str, Any] = {
        "x": alt.X("steps:Q", title="steps T", axis=build_axis(steps, "log"), scale=build_scale("log", steps, False)),
        "y": alt.Y("x:Q", title=chart.x_title, axis=_x_axis(chart), scale=build_scale(chart.x_scale, x_domain, False)),
        "order": alt.Order("x:Q"),
    }
    curves = base.transform_filter(f"datum.group == {group} && datum.metric == 0")
    law = fit.transform_filter(f"datum.group == {group}")
    return _layer_panel([*_curve_marks(curves, encoded, legend=False), *_recommendation_marks(law, encoded)], name)


def _all_points(chart: BudgetChart) -> list[BudgetPoint]:
    return [point for curve in chart.curves for point in curve.points]


def _x_axis(chart: BudgetChart, grid: bool = True) -> alt.Axis:
    xs = _x_values(chart)
    return build_axis(compute_domain(xs, chart.x_scale), chart.x_scale, xs if len(xs) <= 10 else None, grid)


def _draw_profile(base: alt.Chart, fit: alt.Chart, chart: BudgetChart, group: int, metric_index: int) -> alt.LayerChart:
    """A metric along the iso-budget curves, against x; dashed what the law predicts."""
    metric = chart.metrics[metric_index]
    best = "highest" if metric_direction(metric) == "max" else "lowest"
    title = label_with_unit(f"{best} {metric_label(metric)}", metric_unit(metric))
    scale, x_domain, y_domain = (
        _metric_scale(chart, metric_index),
        _x_domain(chart),
        _metric_domain(chart, metric_index),
    )
    encoded: dict[str, Any] = {
        "x": alt.X(
            "x:Q", title=chart.x_title, axis=_x_axis(chart, False), scale=build_scale(chart.x_scale, x_domain, False)
        ),
        "y": alt.Y("y:Q", title=title, axis=build_axis(y_domain, scale), scale=build_scale(scale, y_domain, False)),
    }
    curves = base.transform_filter(f"datum.group == {group} && datum.metric == {metric_index}")
    is_corner = group == 0 and metric_index == len(chart.metrics) - 1
    law = fit.transform_filter(f"datum.group == {group} && datum.metric == {metric_index}")
    dashes = law.transform_filter("datum.recommended == 0").encode(
        color=_budget_colour(False), detail="budget:N", **encoded
    )
    layers = [*_curve_marks(curves, encoded, legend=is_corner), dashes.mark_line(strokeDash=[4, 3], strokeWidth=1.2)]
    return _layer_panel([*layers, *_recommendation_marks(law, encoded)])
