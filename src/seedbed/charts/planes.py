"""Level curves as Altair panels, a row for each group: the plane of steps and x, then each metric along the curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan
from typing import Any, Final

import altair as alt

from seedbed.charts.labels import dial_in_words, metric_in_words, unit_of, with_unit
from seedbed.charts.level import Level, Stop
from seedbed.charts.lines import Scale
from seedbed.charts.scales import axis_of, domain_of, scale_of
from seedbed.charts.specs import table_of, titled
from seedbed.measures.curves import direction
from seedbed.measures.laws import Estimate

COLUMNS: Final[dict[str, Any]] = {
    "group": "number", "metric": "number", "budget": "number", "x": "number", "steps": "number", "y": "number",
    "low": "number", "high": "number", "best": "number", "n": "number",
}  # fmt: skip
LAW_COLUMNS: Final[dict[str, Any]] = {
    "group": "number", "metric": "number", "advised": "number", "budget": "number",
    **{f"{name}{end}": "number" for name in ("x", "steps", "y") for end in ("", "_low", "_high")},
}  # fmt: skip


def draw_planes(level: Level) -> alt.ConcatChart:
    """The level curves over (T, x), and the metrics along them."""
    data, block = table_of(COLUMNS, _rows(level))
    law, more = table_of(LAW_COLUMNS, _law_rows(level), "law")
    bases = (alt.Chart(data), alt.Chart(law))
    panels: list[Any] = []
    for group, name in enumerate(level.groups):
        panels.append(_plane(*bases, level, group, name))
        panels += [_profile(*bases, level, group, place) for place in range(len(level.metrics))]
    chart = alt.concat(*panels, columns=1 + len(level.metrics), title=titled(level.title), datasets=block | more)
    return chart.resolve_scale(color="shared")


def _rows(level: Level) -> list[tuple[Any, ...]]:
    return [
        (curve.group, curve.metric, curve.budget, stop.x, stop.steps, stop.mean, stop.mean - stop.std,
         stop.mean + stop.std, int(stop.best), stop.n)
        for curve in level.curves for stop in curve.stops
    ]  # fmt: skip


def _law_rows(level: Level) -> Iterator[tuple[float, ...]]:
    """The law along its level curves and the advised points, where the axes have a place for them."""
    across, steps = _across(level), _steps(level)
    for fit in level.fits:
        up = _heights(level, fit.metric)
        for point in fit.along:
            if _inside(point.loss, up):
                bare = (nan, nan)
                places = (point.x, *bare, point.steps, *bare, point.loss, *bare)
                yield fit.group, fit.metric, 0, point.budget, *places
        for one in fit.advised:
            if _inside(one.x.value, across) and _inside(one.steps.value, steps) and _inside(one.loss.value, up):
                places = (*_ends(one.x, across), *_ends(one.steps, steps), *_ends(one.loss, up))
                yield fit.group, fit.metric, 1, one.budget, *places


def _inside(value: float, domain: tuple[float, float]) -> bool:
    return domain[0] / 1.001 <= value <= domain[1] * 1.001


def _ends(found: Estimate, domain: tuple[float, float]) -> tuple[float, float, float]:
    """The value and its interval as far as the axis goes."""
    return found.value, max(found.low, domain[0]), min(found.high, domain[1])


def _colour(shown: bool) -> alt.Color:
    bar = alt.Legend(title=dial_in_words("budget"), format=".1e", type="gradient", tickCount=4)
    return alt.Color("budget:Q", scale=alt.Scale(type="log"), legend=bar if shown else None)


def _marks(base: alt.Chart, encoded: dict[str, Any], legend: bool) -> list[alt.Chart]:
    """Lines, their points, and rings around the best of each budget; one panel carries the legend of all."""
    tooltip = [alt.Tooltip("budget:Q", format=".2e"), alt.Tooltip("x:Q"), alt.Tooltip("steps:Q", format=",.0f")]
    tooltip += [alt.Tooltip("y:Q", format=".4~g", title="value"), alt.Tooltip("n:Q")]
    marks = base.encode(detail="budget:N", tooltip=tooltip, **encoded)
    lines = marks.encode(color=_colour(legend)).mark_line(strokeWidth=1.6)
    points = marks.encode(color=_colour(False)).mark_point(filled=True, size=40, opacity=1)
    rings = points.transform_filter("datum.best == 1").mark_point(size=170, strokeWidth=2, filled=False, opacity=1)
    return [lines, points, rings]


def _advice_marks(law: alt.Chart, encoded: dict[str, Any]) -> list[alt.Chart]:
    """Diamonds at the advised points, with a bar along each axis."""
    x, y = (encoded[name].shorthand.removesuffix(":Q") for name in ("x", "y"))
    tooltip = [alt.Tooltip(f"{name}{end}:Q", format=".4~g") for name in (x, y) for end in ("", "_low", "_high")]
    places = {"x": encoded["x"], "y": encoded["y"]}
    inside = law.transform_filter("datum.advised == 1").encode(color=_colour(False), tooltip=tooltip, **places)
    wide = inside.encode(x=_as(encoded["x"], f"{x}_low"), x2=f"{x}_high:Q").mark_rule(strokeWidth=1.2)
    high = inside.encode(y=_as(encoded["y"], f"{y}_low"), y2=f"{y}_high:Q").mark_rule(strokeWidth=1.2)
    return [wide, high, inside.mark_point(shape="diamond", filled=True, size=90, opacity=1)]


def _as(channel: Any, field: str) -> Any:
    """The same axis for another field."""
    other = channel.copy()
    other.shorthand = f"{field}:Q"
    return other


def _panel(layers: Sequence[alt.Chart], title: str = "") -> alt.LayerChart:
    return alt.layer(*layers).resolve_legend(color="independent").properties(width=280, height=210, title=title)


def _xs(level: Level) -> list[float]:
    return sorted({stop.x for stop in _stops(level)})


def _across(level: Level) -> tuple[float, float]:
    return domain_of(_xs(level), level.x_scale)


def _steps(level: Level) -> tuple[float, float]:
    return domain_of([stop.steps for stop in _stops(level)], "log")


def _heights(level: Level, place: int) -> tuple[float, float]:
    """What the axis of a metric shows."""
    heights = [stop.mean for curve in level.curves if curve.metric == place for stop in curve.stops]
    return domain_of(heights, _kind(level, place))


def _kind(level: Level, place: int) -> Scale:
    return "linear" if unit_of(level.metrics[place]) == "share" else level.y_scale


def _plane(base: alt.Chart, law: alt.Chart, level: Level, group: int, name: str) -> alt.LayerChart:
    """The level curves themselves: steps across, x up."""
    steps, up = _steps(level), _across(level)
    encoded: dict[str, Any] = {
        "x": alt.X("steps:Q", title="steps T", axis=axis_of(steps, "log"), scale=scale_of("log", steps, False)),
        "y": alt.Y("x:Q", title=level.x_title, axis=_ticks(level), scale=scale_of(level.x_scale, up, False)),
        "order": alt.Order("x:Q"),
    }
    inside = base.transform_filter(f"datum.group == {group} && datum.metric == 0")
    advised = law.transform_filter(f"datum.group == {group}")
    return _panel([*_marks(inside, encoded, legend=False), *_advice_marks(advised, encoded)], name)


def _stops(level: Level) -> list[Stop]:
    return [stop for curve in level.curves for stop in curve.stops]


def _ticks(level: Level, grid: bool = True) -> alt.Axis:
    xs = _xs(level)
    return axis_of(domain_of(xs, level.x_scale), level.x_scale, xs if len(xs) <= 10 else None, grid)


def _profile(base: alt.Chart, law: alt.Chart, level: Level, group: int, place: int) -> alt.LayerChart:
    """A metric along the level curves: x across, the value reached up; dashed what the law has there."""
    metric = level.metrics[place]
    best = "highest" if direction(metric) == "max" else "lowest"
    title = with_unit(f"{best} {metric_in_words(metric)}", unit_of(metric))
    kind, across, up = _kind(level, place), _across(level), _heights(level, place)
    encoded: dict[str, Any] = {
        "x": alt.X("x:Q", title=level.x_title, axis=_ticks(level, False), scale=scale_of(level.x_scale, across, False)),
        "y": alt.Y("y:Q", title=title, axis=axis_of(up, kind), scale=scale_of(kind, up, False)),
    }
    inside = base.transform_filter(f"datum.group == {group} && datum.metric == {place}")
    corner = group == 0 and place == len(level.metrics) - 1
    said = law.transform_filter(f"datum.group == {group} && datum.metric == {place}")
    dashes = said.transform_filter("datum.advised == 0").encode(color=_colour(False), detail="budget:N", **encoded)
    layers = [*_marks(inside, encoded, legend=corner), dashes.mark_line(strokeDash=[4, 3], strokeWidth=1.2)]
    return _panel([*layers, *_advice_marks(said, encoded)])
