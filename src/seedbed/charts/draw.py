"""Lines as Altair panels: what curves, metrics against dials and budgets share. The look is theme.py's, set last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Final

import altair as alt
import numpy as np

from seedbed.charts.labels import isolated, spelled
from seedbed.charts.lines import Line, Lines, Panel
from seedbed.charts.scales import colour_of, dash_of, shape_of, x_of, y_domain, y_of
from seedbed.charts.specs import HOVER, Column, table_of, titled
from seedbed.charts.stops import WORDS as STOPS
from seedbed.settings import Value

FEW_BANDS: Final = 6  # more are fainter, since they lie upon each other
MOST_BANDS: Final = 40  # lines with bands; more of them only make fog
WIDTHS: Final = {1: 520, 2: 330, 3: 240}
STOP_SHAPES: Final = ("circle", "diamond", "triangle-up")
POINT_COLUMNS: Final[dict[str, Column]] = {
    "line": "number", "x": "number", "y": "number", "low": "number", "high": "number"
}  # fmt: skip
LINE_COLUMNS: Final[dict[str, Column]] = {
    "line": "number", "panel": "number", "colour": "number", "dash": "string", "name": "string", "n": "string"
}  # fmt: skip


def draw_lines(lines: Lines) -> alt.ConcatChart:
    """Every panel with its lines, bands and ends; panels of one metric have the same axis."""
    (points, rows), (named, names) = _tables(lines)
    told = alt.LookupData(data=named, key="line", fields=[name for name in LINE_COLUMNS if name != "line"])
    base = alt.Chart(points).transform_lookup(lookup="line", from_=told)
    width = WIDTHS.get(lines.columns, 190)
    panels = [_draw_panel(base, lines, place, panel, width) for place, panel in enumerate(lines.panels)]
    chart = alt.concat(
        *panels,
        columns=lines.columns,
        title=titled(lines.title),
        datasets=rows | names,
        spacing=_spacing(lines),
        bounds="flush",
    )
    return chart.resolve_scale(color="shared", strokeDash="shared", shape="shared")


def blocks_of(lines: Lines) -> dict[str, str]:
    """The data of a chart of lines alone: of all of it, what changes while runs train."""
    (_, rows), (_, names) = _tables(lines)
    return rows | names


def _tables(lines: Lines) -> tuple[tuple[alt.NamedData, dict[str, str]], tuple[alt.NamedData, dict[str, str]]]:
    """The points of all lines, and what is said once a line."""
    points = table_of({**POINT_COLUMNS, "x": "number" if lines.x.scale else "string"}, _points(lines))
    return points, table_of({**LINE_COLUMNS, "colour": _kind(lines)}, _names(lines), "lines")


def _spacing(lines: Lines) -> dict[str, float]:
    """Room for axes between panels, whose frames are what is aligned."""
    named = len({panel.y_title for panel in lines.panels[: lines.columns]}) > 1
    titled = len({panel.title for panel in lines.panels[:: lines.columns]}) > 1
    return {"row": 58 if titled else 40, "column": 72 if named else 52}


def _kind(lines: Lines) -> Column:
    return "number" if lines.colour and lines.colour.scale else "string"


def _names(lines: Lines) -> Iterable[tuple[Value, ...]]:
    """What is said once a line."""
    for number, line in enumerate(lines.lines):
        n = str(line.n) if line.n == line.of else f"{line.n}/{line.of}"
        yield number, line.panel, _colour_cell(lines, line), line.dash, line.name, n


def _colour_cell(lines: Lines, line: Line) -> Value:
    return line.colour if _kind(lines) == "number" else spelled(line.colour)


def _points(lines: Lines) -> Iterable[tuple[Value, ...]]:
    """Every point of every line; what has no place on a log axis is a gap, and spreads end where the axis does."""
    rooms = [y_domain(lines, panel) for panel in lines.panels]
    for number, line in enumerate(lines.lines):
        log, (bottom, top) = lines.panels[line.panel].scale == "log", rooms[line.panel]
        lows, highs = np.clip(line.low, bottom, top), np.clip(line.high, bottom, top)
        for x, y, low, high in zip(line.x, line.y, lows, highs, strict=True):
            ends = (low, high) if line.n > 1 else (np.nan, np.nan)
            yield number, _x_cell(lines, x), y if y > 0 or not log else np.nan, *ends


def _x_cell(lines: Lines, x: Value) -> Value:
    if lines.x.scale is None:
        return spelled(x)
    return float(x) if lines.x.scale == "linear" or x > 0 else np.nan


def _draw_panel(base: alt.Chart, lines: Lines, place: int, panel: Panel, width: int) -> alt.LayerChart:
    inside = base.transform_filter(f"datum.panel == {place}").encode(
        x=x_of(lines, place), y=y_of(lines, panel, place), detail="line:N"
    )
    mine = [line for line in lines.lines if line.panel == place]
    low = y_of(lines, panel, place, "low:Q")
    layers = [
        *_spread_marks(inside, lines, mine, low),
        *_line_marks(inside, lines, place),
        *_lone_marks(lines, mine, place),
        *_end_marks(lines, mine, place),
        *_stop_marks(lines, place),
    ]
    seen = [lines.panels[other].title for other in _before(lines, place)]
    title = alt.TitleParams("" if panel.title in seen else isolated(panel.title), fontSize=13, offset=8, frame="group")
    layers.append(_hover_marks(inside, lines, place))
    layered = alt.layer(*layers).resolve_legend(color="independent", strokeDash="independent", shape="independent")
    return layered.properties(width=width, height=190 if width < 500 else 260, title=title)


def _before(lines: Lines, place: int) -> list[int]:
    """The panels above and to the left, whose title need not be said again."""
    return [place - lines.columns] * (place >= lines.columns) + [place - 1] * (place % lines.columns > 0)


def _spread_marks(inside: alt.Chart, lines: Lines, mine: Sequence[Line], low: alt.Y) -> list[alt.Chart]:
    if not any(line.n > 1 for line in mine) or len(mine) > MOST_BANDS:
        return []
    spread = inside.encode(y=low, y2="high:Q", color=colour_of(lines, legend=False))
    if lines.marks == "point":
        return [spread.mark_rule(strokeWidth=1.2, opacity=0.8, clip=True)]
    return [spread.mark_area(fillOpacity=0.16 if len(mine) <= FEW_BANDS else 0.07, clip=True)]


def _line_marks(inside: alt.Chart, lines: Lines, place: int) -> list[alt.Chart]:
    """The lines and their points; those of the panel at the top right carry the legend of all.

    Through a legend shared with bands a colour bar would fall apart into symbols, and take the bands' faintness.
    """
    corner = place == min(lines.columns, len(lines.panels)) - 1
    pointed = lines.marks == "point"
    weight = 1.8 if len(lines.lines) < 80 else 0.9
    drawn = inside.encode(color=colour_of(lines, corner and not pointed), strokeDash=dash_of(lines, corner))
    points = inside.encode(color=colour_of(lines, corner), shape=shape_of(lines, corner))
    layers = [drawn.mark_line(strokeWidth=weight, strokeJoin="round", clip=True)] if lines.x.scale else []
    return layers + ([points.mark_point(filled=True, size=45, opacity=1)] if pointed else [])


def _lone_marks(lines: Lines, mine: Sequence[Line], place: int) -> list[alt.Chart]:
    """Dots for records without a neighbour, which a line does not show: a run of one record, a record between gaps."""
    lone = [(line, i) for line in mine for i in _lone(line)]
    if not lone or lines.marks == "point":
        return []
    rows = [{"x": float(line.x[i]), "y": float(line.y[i]), "colour": _colour_cell(lines, line)} for line, i in lone]
    dots = alt.Chart(alt.Data(values=rows)).mark_point(filled=True, size=30, opacity=1)
    return [dots.encode(x=x_of(lines, place), y=y_of(lines, lines.panels[place], place), color=colour_of(lines, False))]


def _lone(line: Line) -> list[int]:
    good = np.concatenate([[False], np.isfinite(line.y), [False]])
    return [int(i) for i in np.flatnonzero(good[1:-1] & ~good[:-2] & ~good[2:])]


def _hover_marks(inside: alt.Chart, lines: Lines, place: int) -> alt.Chart:
    """Unseen points that say what they are under a pointer, and zooming by wheel: a line alone tells only its start."""
    zoom = alt.selection_interval(name=f"zoom{place}", bind="scales")
    marks = inside.encode(tooltip=_tooltip(lines)).mark_point(opacity=0, size=60, style=HOVER, clip=True)
    named = marks.properties(name=f"panel{place}")  # names of its own: Altair's count on through a process
    return named.add_params(zoom) if lines.x.scale else named


def _end_marks(lines: Lines, mine: Sequence[Line], place: int) -> list[alt.Chart]:
    """A cross where a run diverged or failed."""
    rows = [
        {"x": x, "y": y, "what": f"{line.name}: ended here"}
        for line in mine
        if line.ended
        for x, y in _end(lines, line)
    ]
    if not rows:
        return []
    cross = alt.Chart(alt.Data(values=rows)).mark_point(shape="cross", angle=45, filled=True, size=90, color="#D55E00")
    return [cross.encode(x=x_of(lines, place), y=y_of(lines, lines.panels[place], place), tooltip="what:N")]


def _stop_marks(lines: Lines, place: int) -> list[alt.Chart]:
    """A sign for each way in which training could have stopped; the panel at the top right has their legend."""
    if not lines.stops:
        return []
    words = [word for word in STOPS.values() if any(stop.what == word for stop in lines.stops)]
    corner = place == min(lines.columns, len(lines.panels)) - 1
    legend = alt.Legend(title="training could stop") if corner else None
    rows = [
        {"x": stop.x, "y": stop.y, "stop": stop.what, "what": stop.name}
        for stop in lines.stops
        if stop.panel == place and _has_place(lines, place, stop.x, stop.y)
    ]
    marks = alt.Chart(alt.Data(values=rows)).mark_point(size=90, strokeWidth=1.8, opacity=1)
    return [
        marks.encode(
            x=x_of(lines, place),
            y=y_of(lines, lines.panels[place], place),
            shape=alt.Shape("stop:N", sort=words, scale=alt.Scale(domain=words, range=STOP_SHAPES), legend=legend),
            tooltip="what:N",
        )
    ]


def _has_place(lines: Lines, place: int, x: float, y: float) -> bool:
    """What is not positive has none on a log axis."""
    return (x > 0 or lines.x.scale == "linear") and (y > 0 or lines.panels[place].scale == "linear")


def _end(lines: Lines, line: Line) -> list[tuple[float, float]]:
    """The last point of a line that has a place on its axes; none where no point has."""
    seen = [
        (float(x), float(y))
        for x, y in zip(line.x, line.y, strict=True)
        if isfinite(y) and _has_place(lines, line.panel, x, y)
    ]
    return seen[-1:]


def _tooltip(lines: Lines) -> list[alt.Tooltip]:
    x = alt.Tooltip("x:Q", format=",.6~g") if lines.x.scale else alt.Tooltip("x:N")
    name, n = alt.Tooltip("name:N", title="line"), alt.Tooltip("n:N", title="n")
    return [name, x.title(lines.x.title), alt.Tooltip("y:Q", title="value", format=".4~g"), n]
