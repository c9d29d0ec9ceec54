"""Level curves of a budget C = P·B·T: where they run, and what each point on them would have reached.

For a budget and a point with P parameters and batch B, the run is taken as if stopped at T = C / (P·B): no law is
fitted and nothing is interpolated. The left panel is the level curves themselves, with the best point of each ringed;
the others show the metric along them. Fits beyond what was run are `measures.scaling`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from seedbed.charts.axes import by_point, check_dials, chosen, curve_of, dial_of, values_of
from seedbed.charts.labels import dial_in_words, metric_in_words, unit_of, with_unit
from seedbed.charts.lines import Scale, status_notes
from seedbed.charts.panels import said
from seedbed.measures.compare import over_seeds
from seedbed.measures.cost import compute
from seedbed.measures.curves import direction, extremum
from seedbed.measures.summary import RunCurves
from seedbed.settings import Value
from seedbed.shown import Figure

if TYPE_CHECKING:
    import altair as alt

N_BUDGETS: Final = 6
COLUMNS: Final[dict[str, Any]] = {
    "group": "number", "metric": "number", "budget": "number", "x": "number", "steps": "number", "y": "number",
    "low": "number", "high": "number", "best": "number", "n": "number",
}  # fmt: skip


@dataclass(frozen=True)
class Stop:
    """A point stopped where it has used up a budget."""

    x: float
    steps: float
    mean: float
    std: float
    n: int
    best: bool = False


@dataclass(frozen=True)
class LevelCurve:
    """The stops of one budget, by x; the best of them is marked."""

    group: int
    metric: int
    budget: float
    stops: tuple[Stop, ...]


@dataclass(frozen=True)
class Level:
    """A chart of level curves, gathered: one row of panels for each group of runs."""

    title: str
    groups: tuple[str, ...]
    metrics: tuple[str, ...]
    curves: tuple[LevelCurve, ...]
    x_title: str
    x_scale: Scale
    y_scale: Scale
    notes: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to see."""
        return not self.curves


def gather_level(figure: Figure, runs: Sequence[RunCurves]) -> Level:
    """The level curves of a figure of kind `level`; x is a number such as the batch size or `parameters`."""
    x = "train.batch_size" if figure.x == "step" else figure.x
    check_dials(runs, (x, figure.column))
    drawn = [run for run in chosen(runs, figure) if run.counts]
    groups = values_of(drawn, figure.column)
    curves = []
    for group, value in enumerate(groups):
        inside = [run for run in drawn if figure.column is None or dial_of(run, figure.column) == value]
        for budget in _budgets(inside):
            for place, metric in enumerate(figure.metrics):
                curves += _curve(group, place, metric, budget, x, inside)
    return Level(
        title=figure.title or f"What a budget of C = P·B·T buys, against {dial_in_words(x)}",
        groups=tuple(said(figure.column, value) if figure.column else "" for value in groups),
        metrics=figure.metrics,
        curves=tuple(curves),
        x_title=dial_in_words(x),
        x_scale=figure.x_scale,
        y_scale=figure.y_scale,
        notes=_notes(drawn, runs),
    )


def _budgets(runs: Sequence[RunCurves]) -> list[float]:
    """Budgets in equal ratios: from what every point can spend in a tenth of its steps to the largest of all."""
    spent = [compute(run.run.settings, run.run.parameters) for run in runs]
    if not spent:
        return []
    low, high = max(spent) / 50, max(spent)
    return [float(f"{budget:.2g}") for budget in np.geomspace(low, high, N_BUDGETS)]


def _curve(group: int, place: int, metric: str, budget: float, x: str, runs: Sequence[RunCurves]) -> list[LevelCurve]:
    """The curve of one budget; none where fewer than two points can spend it."""
    found: dict[float, Stop] = {}
    kind = direction(metric) or "min"
    for members in by_point(runs):
        stop = _stop(members, metric, budget, x)
        if stop and (stop.x not in found or _better(stop, found[stop.x], kind)):
            found[stop.x] = stop
    if len(found) < 2:
        return []
    ordered = [found[x] for x in sorted(found)]
    best = (min if kind == "min" else max)(ordered, key=lambda stop: stop.mean)
    stops = tuple(Stop(s.x, s.steps, s.mean, s.std, s.n, s is best) for s in ordered)
    return [LevelCurve(group, place, budget, stops)]


def _better(one: Stop, other: Stop, kind: str) -> bool:
    return one.mean < other.mean if kind == "min" else one.mean > other.mean


def _stop(members: Sequence[RunCurves], metric: str, budget: float, x: str) -> Stop | None:
    """Where this point stops; None where its steps do not reach so far, or nothing is recorded before."""
    first = members[0].run
    each = compute(first.settings, first.parameters, 1)
    steps = budget / each
    if not 1 <= steps <= first.settings.n_steps() * 1.05:
        return None
    kind = direction(metric) or "min"
    best = {run.run.seed: extremum(curve_of(run, metric), kind, steps).value for run in members}
    spread = over_seeds(best)
    where: Value = dial_of(members[0], x)
    return Stop(float(where), steps, spread.mean, spread.std, spread.n) if isfinite(spread.mean) else None


def _notes(drawn: Sequence[RunCurves], runs: Sequence[RunCurves]) -> tuple[str, ...]:
    counts = sorted({len(members) for members in by_point(drawn)})
    n = f"n = {counts[0]} seed{'s' * (counts[0] != 1)} a point." if len(counts) == 1 else ""
    how = "Each run is taken as if stopped at T = C / (P·B); nothing is fitted. Rings: the best of each budget."
    return tuple(note for note in (n, how, *status_notes(runs)) if note)


def draw_level(level: Level) -> alt.ConcatChart:
    """The level curves over (T, x), and the metrics along them."""
    import altair as alt

    from seedbed.charts.specs import table_of, titled

    data, block = table_of(COLUMNS, _rows(level))
    panels: list[Any] = []
    for group, name in enumerate(level.groups):
        panels.append(_plane(alt.Chart(data), level, group, name))
        panels += [_profile(alt.Chart(data), level, group, place) for place in range(len(level.metrics))]
    chart = alt.concat(*panels, columns=1 + len(level.metrics), title=titled(level.title), datasets=block)
    return chart.resolve_scale(color="shared")


def _rows(level: Level) -> list[tuple[Any, ...]]:
    return [
        (curve.group, curve.metric, curve.budget, stop.x, stop.steps, stop.mean, stop.mean - stop.std,
         stop.mean + stop.std, int(stop.best), stop.n)
        for curve in level.curves for stop in curve.stops
    ]  # fmt: skip


def _marks(base: alt.Chart, encoded: dict[str, Any], legend: bool) -> alt.LayerChart:
    """Lines, their points, and rings around the best of each budget; one panel carries the legend of all."""
    import altair as alt

    def colour(shown: bool) -> alt.Color:
        bar = alt.Legend(title=dial_in_words("budget"), format=".1e", type="gradient", tickCount=4)
        return alt.Color("budget:Q", scale=alt.Scale(type="log"), legend=bar if shown else None)

    tooltip = [alt.Tooltip("budget:Q", format=".2e"), alt.Tooltip("x:Q"), alt.Tooltip("steps:Q", format=",.0f")]
    tooltip += [alt.Tooltip("y:Q", format=".4~g", title="value"), alt.Tooltip("n:Q")]
    marks = base.encode(detail="budget:N", tooltip=tooltip, **encoded)
    lines = marks.encode(color=colour(legend)).mark_line(strokeWidth=1.6)
    points = marks.encode(color=colour(False)).mark_point(filled=True, size=40, opacity=1)
    rings = points.transform_filter("datum.best == 1").mark_point(size=170, strokeWidth=2, filled=False, opacity=1)
    return alt.layer(lines, points, rings).resolve_legend(color="independent")


def _xs(level: Level) -> list[float]:
    return sorted({stop.x for stop in _stops(level)})


def _plane(base: alt.Chart, level: Level, group: int, name: str) -> alt.LayerChart:
    """The level curves themselves: steps across, x up."""
    import altair as alt

    from seedbed.charts.scales import axis_of, domain_of, scale_of

    steps, up = domain_of([stop.steps for stop in _stops(level)], "log"), domain_of(_xs(level), level.x_scale)
    encoded = {
        "x": alt.X("steps:Q", title="steps T", axis=axis_of(steps, "log"), scale=scale_of("log", steps, False)),
        "y": alt.Y("x:Q", title=level.x_title, axis=_ticks(level), scale=scale_of(level.x_scale, up, False)),
        "order": alt.Order("x:Q"),
    }
    inside = base.transform_filter(f"datum.group == {group} && datum.metric == 0")
    return _marks(inside, encoded, legend=False).properties(width=280, height=210, title=name)


def _stops(level: Level) -> list[Stop]:
    return [stop for curve in level.curves for stop in curve.stops]


def _ticks(level: Level, grid: bool = True) -> alt.Axis:
    from seedbed.charts.scales import axis_of, domain_of

    xs = _xs(level)
    return axis_of(domain_of(xs, level.x_scale), level.x_scale, xs if len(xs) <= 10 else None, grid)


def _profile(base: alt.Chart, level: Level, group: int, place: int) -> alt.LayerChart:
    """A metric along the level curves: x across, the value reached up."""
    import altair as alt

    from seedbed.charts.scales import axis_of, domain_of, scale_of

    metric = level.metrics[place]
    best = "highest" if direction(metric) == "max" else "lowest"
    title = with_unit(f"{best} {metric_in_words(metric)}", unit_of(metric))
    kind: Scale = "linear" if unit_of(metric) == "share" else level.y_scale
    heights = [stop.mean for curve in level.curves if curve.metric == place for stop in curve.stops]
    across, up = domain_of(_xs(level), level.x_scale), domain_of(heights, kind)
    encoded = {
        "x": alt.X("x:Q", title=level.x_title, axis=_ticks(level, False), scale=scale_of(level.x_scale, across, False)),
        "y": alt.Y("y:Q", title=title, axis=axis_of(up, kind), scale=scale_of(kind, up, False)),
    }
    inside = base.transform_filter(f"datum.group == {group} && datum.metric == {place}")
    corner = group == 0 and place == len(level.metrics) - 1
    return _marks(inside, encoded, legend=corner).properties(width=280, height=210)
