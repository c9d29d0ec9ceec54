"""Level curves as Altair panels, a row for each group: the plane of steps and x, then each metric along the curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan
from typing import Any, Final

import altair as alt

from seedbed.charts.budget import BudgetChart, BudgetPoint
from seedbed.charts.encodings import build_axis, build_scale, compute_domain
from seedbed.charts.labels import label_with_unit, metric_label, metric_unit, setting_label
from seedbed.charts.line_data import Scale
from seedbed.charts.vega_lite import csv_dataset, wrapped_title
from seedbed.stats.curve_statistics import metric_direction
from seedbed.stats.scaling_laws import FittedValue

COLUMNS: Final[dict[str, Any]] = {
    "group": "number", "metric": "number", "budget": "number", "x": "number", "steps": "number", "y": "number",
    "low": "number", "high": "number", "best": "number", "n": "number",
}  # fmt: skip
LAW_COLUMNS: Final[dict[str, Any]] = {
    "group": "number", "metric": "number", "advised": "number", "budget": "number",
    **{f"{name}{end}": "number" for name in ("x", "steps", "y") for end in ("", "_low", "_high")},
}  # fmt: skip


def draw_budget_panels(budget_chart: BudgetChart) -> alt.ConcatChart:
    """The level curves over (T, x), and the metrics along them."""
    data, block = csv_dataset(COLUMNS, _rows(budget_chart))
    law, more = csv_dataset(LAW_COLUMNS, _fit_rows(budget_chart), "law")
    bases = (alt.Chart(data), alt.Chart(law))
    panels: list[Any] = []
    for group, name in enumerate(budget_chart.groups):
        panels.append(_draw_plane(*bases, budget_chart, group, name))
        panels += [_draw_profile(*bases, budget_chart, group, place) for place in range(len(budget_chart.metrics))]
    chart = alt.concat(
        *panels, columns=1 + len(budget_chart.metrics), title=wrapped_title(budget_chart.title), datasets=block | more
    )
    return chart.resolve_scale(color="shared")


def _rows(chart: BudgetChart) -> list[tuple[Any, ...]]:
    return [
        (curve.group, curve.metric, curve.budget, stop.x, stop.steps, stop.mean, stop.mean - stop.std,
         stop.mean + stop.std, int(stop.is_best), stop.n)
        for curve in chart.curves for stop in curve.points
    ]  # fmt: skip


def _fit_rows(chart: BudgetChart) -> Iterator[tuple[float, ...]]:
    """The law along its level curves and the advised points, where the axes have a place for them."""
    across, steps = _x_domain(chart), _steps_domain(chart)
    for fit in chart.fits:
        up = _metric_domain(chart, fit.metric)
        for point in fit.predictions:
            if _is_within(point.loss, up):
                bare = (nan, nan)
                places = (point.x, *bare, point.steps, *bare, point.loss, *bare)
                yield fit.group, fit.metric, 0, point.budget, *places
        for one in fit.recommended:
            if (
                _is_within(one.x.value, across)
                and _is_within(one.steps.value, steps)
                and _is_within(one.loss.value, up)
            ):
                places = (
                    *_clip_interval(one.x, across),
                    *_clip_interval(one.steps, steps),
                    *_clip_interval(one.loss, up),
                )
                yield fit.group, fit.metric, 1, one.budget, *places


def _is_within(value: float, domain: tuple[float, float]) -> bool:
    return domain[0] / 1.001 <= value <= domain[1] * 1.001


def _clip_interval(estimate: FittedValue, domain: tuple[float, float]) -> tuple[float, float, float]:
    """The value and its interval as far as the axis goes."""
    return estimate.value, max(estimate.low, domain[0]), min(estimate.high, domain[1])


def _budget_colour(legend: bool) -> alt.Color:
    bar = alt.Legend(title=setting_label("budget"), format=".1e", type="gradient", tickCount=4)
    return alt.Color("budget:Q", scale=alt.Scale(type="log"), legend=bar if legend else None)


def _curve_marks(base: alt.Chart, encoded: dict[str, Any], legend: bool) -> list[alt.Chart]:
    """Lines, their points, and rings around the best of each budget; one panel carries the legend of all."""
    tooltip = [alt.Tooltip("budget:Q", format=".2e"), alt.Tooltip("x:Q"), alt.Tooltip("steps:Q", format=",.0f")]
    tooltip += [alt.Tooltip("y:Q", format=".4~g", title="value"), alt.Tooltip("n:Q")]
    marks = base.encode(detail="budget:N", tooltip=tooltip, **encoded)
    lines = marks.encode(color=_budget_colour(legend)).mark_line(strokeWidth=1.6)
    points = marks.encode(color=_budget_colour(False)).mark_point(filled=True, size=40, opacity=1)
    rings = points.transform_filter("datum.best == 1").mark_point(size=170, strokeWidth=2, filled=False, opacity=1)
    return [lines, points, rings]


def _recommendation_marks(fit: alt.Chart, encoded: dict[str, Any]) -> list[alt.Chart]:
    """Diamonds at the advised points, with a bar along each axis."""
    x, y = (encoded[name].shorthand.removesuffix(":Q") for name in ("x", "y"))
    tooltip = [alt.Tooltip(f"{name}{end}:Q", format=".4~g") for name in (x, y) for end in ("", "_low", "_high")]
    places = {"x": encoded["x"], "y": encoded["y"]}
    inside = fit.transform_filter("datum.advised == 1").encode(color=_budget_colour(False), tooltip=tooltip, **places)
    wide = inside.encode(x=_with_field(encoded["x"], f"{x}_low"), x2=f"{x}_high:Q").mark_rule(strokeWidth=1.2)
    high = inside.encode(y=_with_field(encoded["y"], f"{y}_low"), y2=f"{y}_high:Q").mark_rule(strokeWidth=1.2)
    return [wide, high, inside.mark_point(shape="diamond", filled=True, size=90, opacity=1)]


def _with_field(channel: Any, field: str) -> Any:
    """The same axis for another field."""
    other = channel.copy()
    other.shorthand = f"{field}:Q"
    return other


def _layer_panel(layers: Sequence[alt.Chart], title: str = "") -> alt.LayerChart:
    return alt.layer(*layers).resolve_legend(color="independent").properties(width=280, height=210, title=title)


def _x_values(chart: BudgetChart) -> list[float]:
    return sorted({stop.x for stop in _all_points(chart)})


def _x_domain(chart: BudgetChart) -> tuple[float, float]:
    return compute_domain(_x_values(chart), chart.x_scale)


def _steps_domain(chart: BudgetChart) -> tuple[float, float]:
    return compute_domain([stop.steps for stop in _all_points(chart)], "log")


def _metric_domain(chart: BudgetChart, metric_index: int) -> tuple[float, float]:
    """What the axis of a metric shows."""
    heights = [stop.mean for curve in chart.curves if curve.metric == metric_index for stop in curve.points]
    return compute_domain(heights, _metric_scale(chart, metric_index))


def _metric_scale(chart: BudgetChart, metric_index: int) -> Scale:
    return "linear" if metric_unit(chart.metrics[metric_index]) == "share" else chart.y_scale


def _draw_plane(base: alt.Chart, fit: alt.Chart, chart: BudgetChart, group: int, name: str) -> alt.LayerChart:
    """The level curves themselves: steps across, x up."""
    steps, up = _steps_domain(chart), _x_domain(chart)
    encoded: dict[str, Any] = {
        "x": alt.X("steps:Q", title="steps T", axis=build_axis(steps, "log"), scale=build_scale("log", steps, False)),
        "y": alt.Y("x:Q", title=chart.x_title, axis=_x_axis(chart), scale=build_scale(chart.x_scale, up, False)),
        "order": alt.Order("x:Q"),
    }
    inside = base.transform_filter(f"datum.group == {group} && datum.metric == 0")
    advised = fit.transform_filter(f"datum.group == {group}")
    return _layer_panel([*_curve_marks(inside, encoded, legend=False), *_recommendation_marks(advised, encoded)], name)


def _all_points(chart: BudgetChart) -> list[BudgetPoint]:
    return [stop for curve in chart.curves for stop in curve.points]


def _x_axis(chart: BudgetChart, grid: bool = True) -> alt.Axis:
    xs = _x_values(chart)
    return build_axis(compute_domain(xs, chart.x_scale), chart.x_scale, xs if len(xs) <= 10 else None, grid)


def _draw_profile(base: alt.Chart, fit: alt.Chart, chart: BudgetChart, group: int, metric_index: int) -> alt.LayerChart:
    """A metric along the level curves: x across, the value reached up; dashed what the law has there."""
    metric = chart.metrics[metric_index]
    best = "highest" if metric_direction(metric) == "max" else "lowest"
    title = label_with_unit(f"{best} {metric_label(metric)}", metric_unit(metric))
    kind, across, up = _metric_scale(chart, metric_index), _x_domain(chart), _metric_domain(chart, metric_index)
    encoded: dict[str, Any] = {
        "x": alt.X(
            "x:Q", title=chart.x_title, axis=_x_axis(chart, False), scale=build_scale(chart.x_scale, across, False)
        ),
        "y": alt.Y("y:Q", title=title, axis=build_axis(up, kind), scale=build_scale(kind, up, False)),
    }
    inside = base.transform_filter(f"datum.group == {group} && datum.metric == {metric_index}")
    corner = group == 0 and metric_index == len(chart.metrics) - 1
    said = fit.transform_filter(f"datum.group == {group} && datum.metric == {metric_index}")
    dashes = said.transform_filter("datum.advised == 0").encode(
        color=_budget_colour(False), detail="budget:N", **encoded
    )
    layers = [*_curve_marks(inside, encoded, legend=corner), dashes.mark_line(strokeDash=[4, 3], strokeWidth=1.2)]
    return _layer_panel([*layers, *_recommendation_marks(said, encoded)])
