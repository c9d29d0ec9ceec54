"""Lines as Altair panels: what curves, metrics against dials and budgets share. The look is theme.py's, set last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Final

import altair as alt
import numpy as np

from seedbed.charts.encodings import colour_encoding, dash_encoding, shape_encoding, x_encoding, y_domain, y_encoding
from seedbed.charts.labels import isolate_direction, value_label
from seedbed.charts.line_data import Line, LineChart, Panel
from seedbed.charts.stopping_marks import STOPPING_RULES as STOPS
from seedbed.charts.vega_lite import HOVER_STYLE, ColumnType, csv_dataset, wrapped_title
from seedbed.settings import Value

MAX_OPAQUE_BANDS: Final = 6  # more are fainter, since they lie upon each other
MAX_BANDS: Final = 40  # lines with bands; more of them only make fog
PANEL_PIXELS_BY_COLUMNS: Final = {1: 520, 2: 330, 3: 240}
STOP_SHAPES: Final = ("circle", "diamond", "triangle-up")
POINT_COLUMNS: Final[dict[str, ColumnType]] = {
    "line": "number", "x": "number", "y": "number", "low": "number", "high": "number"
}  # fmt: skip
LINE_COLUMNS: Final[dict[str, ColumnType]] = {
    "line": "number", "panel": "number", "colour": "number", "dash": "string", "name": "string", "n": "string"
}  # fmt: skip


def draw_lines(lines: LineChart) -> alt.ConcatChart:
    """Every panel with its lines, bands and ends; panels of one metric have the same axis."""
    (points, rows), (named, names) = _data_tables(lines)
    told = alt.LookupData(data=named, key="line", fields=[name for name in LINE_COLUMNS if name != "line"])
    base = alt.Chart(points).transform_lookup(lookup="line", from_=told)
    width = PANEL_PIXELS_BY_COLUMNS.get(lines.n_columns, 190)
    panels = [_draw_panel(base, lines, place, panel, width) for place, panel in enumerate(lines.panels)]
    chart = alt.concat(
        *panels,
        columns=lines.n_columns,
        title=wrapped_title(lines.title),
        datasets=rows | names,
        spacing=_panel_spacing(lines),
        bounds="flush",
    )
    return chart.resolve_scale(color="shared", strokeDash="shared", shape="shared")


def line_datasets(lines: LineChart) -> dict[str, str]:
    """The data of a chart of lines alone: of all of it, what changes while runs train."""
    (_, rows), (_, names) = _data_tables(lines)
    return rows | names


def _data_tables(lines: LineChart) -> tuple[tuple[alt.NamedData, dict[str, str]], tuple[alt.NamedData, dict[str, str]]]:
    """The points of all lines, and what is said once a line."""
    points = csv_dataset({**POINT_COLUMNS, "x": "number" if lines.x.scale else "string"}, _point_rows(lines))
    return points, csv_dataset({**LINE_COLUMNS, "colour": _colour_column_type(lines)}, _line_rows(lines), "lines")


def _panel_spacing(lines: LineChart) -> dict[str, float]:
    """Room for axes between panels, whose frames are what is aligned."""
    named = len({panel.y_title for panel in lines.panels[: lines.n_columns]}) > 1
    titled = len({panel.title for panel in lines.panels[:: lines.n_columns]}) > 1
    return {"row": 58 if titled else 40, "column": 72 if named else 52}


def _colour_column_type(lines: LineChart) -> ColumnType:
    return "number" if lines.colour and lines.colour.scale else "string"


def _line_rows(lines: LineChart) -> Iterable[tuple[Value, ...]]:
    """What is said once a line."""
    for number, line in enumerate(lines.lines):
        n = str(line.n) if line.n == line.n_runs else f"{line.n}/{line.n_runs}"
        yield number, line.panel, _colour_cell(lines, line), line.dash, line.name, n


def _colour_cell(lines: LineChart, line: Line) -> Value:
    return line.colour if _colour_column_type(lines) == "number" else value_label(line.colour)


def _point_rows(lines: LineChart) -> Iterable[tuple[Value, ...]]:
    """Every point of every line; what has no place on a log axis is a gap, and spreads end where the axis does."""
    rooms = [y_domain(lines, panel) for panel in lines.panels]
    for number, line in enumerate(lines.lines):
        log, (bottom, top) = lines.panels[line.panel].scale == "log", rooms[line.panel]
        lows, highs = np.clip(line.low, bottom, top), np.clip(line.high, bottom, top)
        for x, y, low, high in zip(line.x, line.y, lows, highs, strict=True):
            ends = (low, high) if line.n > 1 else (np.nan, np.nan)
            yield number, _x_cell(lines, x), y if y > 0 or not log else np.nan, *ends


def _x_cell(lines: LineChart, x: Value) -> Value:
    if lines.x.scale is None:
        return value_label(x)
    return float(x) if lines.x.scale == "linear" or x > 0 else np.nan


def _draw_panel(base: alt.Chart, lines: LineChart, panel_index: int, panel: Panel, width: int) -> alt.LayerChart:
    inside = base.transform_filter(f"datum.panel == {panel_index}").encode(
        x=x_encoding(lines, panel_index), y=y_encoding(lines, panel, panel_index), detail="line:N"
    )
    mine = [line for line in lines.lines if line.panel == panel_index]
    low = y_encoding(lines, panel, panel_index, "low:Q")
    layers = [
        *_spread_marks(inside, lines, mine, low),
        *_line_marks(inside, lines, panel_index),
        *_isolated_point_marks(lines, mine, panel_index),
        *_divergence_marks(lines, mine, panel_index),
        *_stopping_marks(lines, panel_index),
    ]
    seen = [lines.panels[other].title for other in _neighbour_panels(lines, panel_index)]
    title = alt.TitleParams(
        "" if panel.title in seen else isolate_direction(panel.title), fontSize=13, offset=8, frame="group"
    )
    layers.append(_hover_marks(inside, lines, panel_index))
    layered = alt.layer(*layers).resolve_legend(color="independent", strokeDash="independent", shape="independent")
    return layered.properties(width=width, height=190 if width < 500 else 260, title=title)


def _neighbour_panels(lines: LineChart, panel_index: int) -> list[int]:
    """The panels above and to the left, whose title need not be said again."""
    return [panel_index - lines.n_columns] * (panel_index >= lines.n_columns) + [panel_index - 1] * (
        panel_index % lines.n_columns > 0
    )


def _spread_marks(base: alt.Chart, lines: LineChart, panel_lines: Sequence[Line], low: alt.Y) -> list[alt.Chart]:
    if not any(line.n > 1 for line in panel_lines) or len(panel_lines) > MAX_BANDS:
        return []
    spread = base.encode(y=low, y2="high:Q", color=colour_encoding(lines, legend=False))
    if lines.mark_type == "point":
        return [spread.mark_rule(strokeWidth=1.2, opacity=0.8, clip=True)]
    return [spread.mark_area(fillOpacity=0.16 if len(panel_lines) <= MAX_OPAQUE_BANDS else 0.07, clip=True)]


def _line_marks(base: alt.Chart, lines: LineChart, panel_index: int) -> list[alt.Chart]:
    """The lines and their points; those of the panel at the top right carry the legend of all.

    Through a legend shared with bands a colour bar would fall apart into symbols, and take the bands' faintness.
    """
    corner = panel_index == min(lines.n_columns, len(lines.panels)) - 1
    pointed = lines.mark_type == "point"
    weight = 1.8 if len(lines.lines) < 80 else 0.9
    drawn = base.encode(color=colour_encoding(lines, corner and not pointed), strokeDash=dash_encoding(lines, corner))
    points = base.encode(color=colour_encoding(lines, corner), shape=shape_encoding(lines, corner))
    layers = [drawn.mark_line(strokeWidth=weight, strokeJoin="round", clip=True)] if lines.x.scale else []
    return layers + ([points.mark_point(filled=True, size=45, opacity=1)] if pointed else [])


def _isolated_point_marks(lines: LineChart, panel_lines: Sequence[Line], panel_index: int) -> list[alt.Chart]:
    """Dots for records without a neighbour, which a line does not show: a run of one record, a record between gaps."""
    lone = [(line, i) for line in panel_lines for i in _isolated_points(line)]
    if not lone or lines.mark_type == "point":
        return []
    rows = [{"x": float(line.x[i]), "y": float(line.y[i]), "colour": _colour_cell(lines, line)} for line, i in lone]
    dots = alt.Chart(alt.Data(values=rows)).mark_point(filled=True, size=30, opacity=1)
    return [
        dots.encode(
            x=x_encoding(lines, panel_index),
            y=y_encoding(lines, lines.panels[panel_index], panel_index),
            color=colour_encoding(lines, False),
        )
    ]


def _isolated_points(line: Line) -> list[int]:
    good = np.concatenate([[False], np.isfinite(line.y), [False]])
    return [int(i) for i in np.flatnonzero(good[1:-1] & ~good[:-2] & ~good[2:])]


def _hover_marks(base: alt.Chart, lines: LineChart, panel_index: int) -> alt.Chart:
    """Unseen points that say what they are under a pointer, and zooming by wheel: a line alone tells only its start."""
    zoom = alt.selection_interval(name=f"zoom{panel_index}", bind="scales")
    marks = base.encode(tooltip=_tooltip(lines)).mark_point(opacity=0, size=60, style=HOVER_STYLE, clip=True)
    named = marks.properties(name=f"panel{panel_index}")  # names of its own: Altair's count on through a process
    return named.add_params(zoom) if lines.x.scale else named


def _divergence_marks(lines: LineChart, panel_lines: Sequence[Line], panel_index: int) -> list[alt.Chart]:
    """A cross where a run diverged or failed."""
    rows = [
        {"x": x, "y": y, "what": f"{line.name}: ended here"}
        for line in panel_lines
        if line.diverged
        for x, y in _last_visible_point(lines, line)
    ]
    if not rows:
        return []
    cross = alt.Chart(alt.Data(values=rows)).mark_point(shape="cross", angle=45, filled=True, size=90, color="#D55E00")
    return [
        cross.encode(
            x=x_encoding(lines, panel_index),
            y=y_encoding(lines, lines.panels[panel_index], panel_index),
            tooltip="what:N",
        )
    ]


def _stopping_marks(lines: LineChart, panel_index: int) -> list[alt.Chart]:
    """A sign for each way in which training could have stopped; the panel at the top right has their legend."""
    if not lines.stopping_marks:
        return []
    words = [word for word in STOPS.values() if any(stop.rule == word for stop in lines.stopping_marks)]
    corner = panel_index == min(lines.n_columns, len(lines.panels)) - 1
    legend = alt.Legend(title="training could stop") if corner else None
    rows = [
        {"x": stop.x, "y": stop.y, "stop": stop.rule, "what": stop.name}
        for stop in lines.stopping_marks
        if stop.panel == panel_index and _is_on_axes(lines, panel_index, stop.x, stop.y)
    ]
    marks = alt.Chart(alt.Data(values=rows)).mark_point(size=90, strokeWidth=1.8, opacity=1)
    return [
        marks.encode(
            x=x_encoding(lines, panel_index),
            y=y_encoding(lines, lines.panels[panel_index], panel_index),
            shape=alt.Shape("stop:N", sort=words, scale=alt.Scale(domain=words, range=STOP_SHAPES), legend=legend),
            tooltip="what:N",
        )
    ]


def _is_on_axes(lines: LineChart, panel_index: int, x: float, y: float) -> bool:
    """What is not positive has none on a log axis."""
    return (x > 0 or lines.x.scale == "linear") and (y > 0 or lines.panels[panel_index].scale == "linear")


def _last_visible_point(lines: LineChart, line: Line) -> list[tuple[float, float]]:
    """The last point of a line that has a place on its axes; none where no point has."""
    seen = [
        (float(x), float(y))
        for x, y in zip(line.x, line.y, strict=True)
        if isfinite(y) and _is_on_axes(lines, line.panel, x, y)
    ]
    return seen[-1:]


def _tooltip(lines: LineChart) -> list[alt.Tooltip]:
    x = alt.Tooltip("x:Q", format=",.6~g") if lines.x.scale else alt.Tooltip("x:N")
    name, n = alt.Tooltip("name:N", title="line"), alt.Tooltip("n:N", title="n")
    return [name, x.title(lines.x.title), alt.Tooltip("y:Q", title="value", format=".4~g"), n]
