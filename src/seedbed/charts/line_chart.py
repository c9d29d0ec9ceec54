"""Line charts as Altair panels, for learning curves and sweeps. Colours and fonts come from `theme`, applied last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Final

import altair as alt
import numpy as np

from seedbed.charts.axis_labels import isolate_direction, value_label
from seedbed.charts.encodings import colour_encoding, dash_encoding, shape_encoding, x_encoding, y_domain, y_encoding
from seedbed.charts.line_data import Line, LineChart, Panel
from seedbed.charts.stopping_marks import STOPPING_RULES
from seedbed.charts.vega_lite import HOVER_STYLE, ColumnType, csv_dataset, wrapped_title
from seedbed.settings import Value

MAX_OPAQUE_BANDS: Final = 6  # more bands overlap, and are drawn fainter
MAX_BANDS: Final = 40  # lines per panel; with more, bands are left out
PANEL_PIXELS_BY_COLUMNS: Final = {1: 520, 2: 330, 3: 240}
STOP_SHAPES: Final = ("circle", "diamond", "triangle-up")
POINT_COLUMNS: Final[dict[str, ColumnType]] = {
    "line": "number", "x": "number", "y": "number", "low": "number", "high": "number"
}  # fmt: skip
LINE_COLUMNS: Final[dict[str, ColumnType]] = {
    "line": "number", "panel": "number", "colour": "number", "dash": "string", "name": "string", "n": "string"
}  # fmt: skip


def draw_lines(chart: LineChart) -> alt.ConcatChart:
    """Every panel with its lines, bands and marks; panels of one metric share their y axis."""
    (points, point_data), (lines, line_data) = _data_tables(chart)
    line_fields = alt.LookupData(data=lines, key="line", fields=[name for name in LINE_COLUMNS if name != "line"])
    base = alt.Chart(points).transform_lookup(lookup="line", from_=line_fields)
    width = PANEL_PIXELS_BY_COLUMNS.get(chart.n_columns, 190)
    panels = [_draw_panel(base, chart, index, panel, width) for index, panel in enumerate(chart.panels)]
    panels_chart = alt.concat(
        *panels,
        columns=chart.n_columns,
        title=wrapped_title(chart.title),
        datasets=point_data | line_data,
        spacing=_panel_spacing(chart),
        bounds="flush",
    )
    return panels_chart.resolve_scale(color="shared", strokeDash="shared", shape="shared")


def line_datasets(chart: LineChart) -> dict[str, str]:
    """Only the data of a line chart: the part that changes while runs train."""
    (_, point_data), (_, line_data) = _data_tables(chart)
    return point_data | line_data


def _data_tables(chart: LineChart) -> tuple[tuple[alt.NamedData, dict[str, str]], tuple[alt.NamedData, dict[str, str]]]:
    """The table of points, and the table of what is stored once per line."""
    points = csv_dataset({**POINT_COLUMNS, "x": "number" if chart.x.scale else "string"}, _point_rows(chart))
    return points, csv_dataset({**LINE_COLUMNS, "colour": _colour_column_type(chart)}, _line_rows(chart), "lines")


def _panel_spacing(chart: LineChart) -> dict[str, float]:
    """Space for axis titles between panels, which are aligned by their frames."""
    several_y_titles = len({panel.y_title for panel in chart.panels[: chart.n_columns]}) > 1
    several_titles = len({panel.title for panel in chart.panels[:: chart.n_columns]}) > 1
    return {"row": 58 if several_titles else 40, "column": 72 if several_y_titles else 52}


def _colour_column_type(chart: LineChart) -> ColumnType:
    return "number" if chart.colour and chart.colour.scale else "string"


def _line_rows(chart: LineChart) -> Iterable[tuple[Value, ...]]:
    """Panel, colour, dash, name and n of each line."""
    for index, line in enumerate(chart.lines):
        n = str(line.n) if line.n == line.n_runs else f"{line.n}/{line.n_runs}"
        yield index, line.panel, _colour_cell(chart, line), line.dash, line.name, n


def _colour_cell(chart: LineChart, line: Line) -> Value:
    return line.colour if _colour_column_type(chart) == "number" else value_label(line.colour)


def _point_rows(chart: LineChart) -> Iterable[tuple[Value, ...]]:
    """Every point of every line; a value that a log axis cannot show is a gap, and bands are clipped to the axis."""
    domains = [y_domain(chart, panel) for panel in chart.panels]
    for index, line in enumerate(chart.lines):
        is_log, (bottom, top) = chart.panels[line.panel].scale == "log", domains[line.panel]
        lows, highs = np.clip(line.low, bottom, top), np.clip(line.high, bottom, top)
        for x, y, low, high in zip(line.x, line.y, lows, highs, strict=True):
            ends = (low, high) if line.n > 1 else (np.nan, np.nan)
            yield index, _x_cell(chart, x), y if y > 0 or not is_log else np.nan, *ends


def _x_cell(chart: LineChart, x: Value) -> Value:
    if chart.x.scale is None:
        return value_label(x)
    return float(x) if chart.x.scale == "linear" or x > 0 else np.nan


def _draw_panel(base: alt.Chart, chart: LineChart, panel_index: int, panel: Panel, width: int) -> alt.LayerChart:
    panel_base = base.transform_filter(f"datum.panel == {panel_index}").encode(
        x=x_encoding(chart, panel_index), y=y_encoding(chart, panel, panel_index), detail="line:N"
    )
    panel_lines = [line for line in chart.lines if line.panel == panel_index]
    low = y_encoding(chart, panel, panel_index, "low:Q")
    layers = [
        *_spread_marks(panel_base, chart, panel_lines, low),
        *_line_marks(panel_base, chart, panel_index),
        *_isolated_point_marks(chart, panel_lines, panel_index),
        *_divergence_marks(chart, panel_lines, panel_index),
        *_stopping_marks(chart, panel_index),
    ]
    neighbour_titles = [chart.panels[other].title for other in _neighbour_panels(chart, panel_index)]
    title = alt.TitleParams(
        "" if panel.title in neighbour_titles else isolate_direction(panel.title), fontSize=13, offset=8, frame="group"
    )
    layers.append(_hover_marks(panel_base, chart, panel_index))
    layered = alt.layer(*layers).resolve_legend(color="independent", strokeDash="independent", shape="independent")
    return layered.properties(width=width, height=190 if width < 500 else 260, title=title)


def _neighbour_panels(chart: LineChart, panel_index: int) -> list[int]:
    """The panels above and to the left, whose title is not repeated."""
    return [panel_index - chart.n_columns] * (panel_index >= chart.n_columns) + [panel_index - 1] * (
        panel_index % chart.n_columns > 0
    )


def _spread_marks(base: alt.Chart, chart: LineChart, panel_lines: Sequence[Line], low: alt.Y) -> list[alt.Chart]:
    if not any(line.n > 1 for line in panel_lines) or len(panel_lines) > MAX_BANDS:
        return []
    spread = base.encode(y=low, y2="high:Q", color=colour_encoding(chart, legend=False))
    if chart.mark_type == "point":
        return [spread.mark_rule(strokeWidth=1.2, opacity=0.8, clip=True)]
    return [spread.mark_area(fillOpacity=0.16 if len(panel_lines) <= MAX_OPAQUE_BANDS else 0.07, clip=True)]


def _line_marks(base: alt.Chart, chart: LineChart, panel_index: int) -> list[alt.Chart]:
    """The lines and their points; those of the top right panel carry the legend for all.

    Bands have no legend: sharing theirs would turn a colour bar into symbols as faint as the bands.
    """
    is_corner = panel_index == min(chart.n_columns, len(chart.panels)) - 1
    has_points = chart.mark_type == "point"
    line_width = 1.8 if len(chart.lines) < 80 else 0.9
    lines = base.encode(
        color=colour_encoding(chart, is_corner and not has_points), strokeDash=dash_encoding(chart, is_corner)
    )
    points = base.encode(color=colour_encoding(chart, is_corner), shape=shape_encoding(chart, is_corner))
    layers = [lines.mark_line(strokeWidth=line_width, strokeJoin="round", clip=True)] if chart.x.scale else []
    return layers + ([points.mark_point(filled=True, size=45, opacity=1)] if has_points else [])


def _isolated_point_marks(chart: LineChart, panel_lines: Sequence[Line], panel_index: int) -> list[alt.Chart]:
    """Dots for values without a neighbour, which a line cannot show: a single evaluation, or one between gaps."""
    isolated = [(line, i) for line in panel_lines for i in _isolated_points(line)]
    if not isolated or chart.mark_type == "point":
        return []
    rows = [{"x": float(line.x[i]), "y": float(line.y[i]), "colour": _colour_cell(chart, line)} for line, i in isolated]
    dots = alt.Chart(alt.Data(values=rows)).mark_point(filled=True, size=30, opacity=1)
    return [
        dots.encode(
            x=x_encoding(chart, panel_index),
            y=y_encoding(chart, chart.panels[panel_index], panel_index),
            color=colour_encoding(chart, False),
        )
    ]


def _isolated_points(line: Line) -> list[int]:
    finite = np.concatenate([[False], np.isfinite(line.y), [False]])
    return [int(i) for i in np.flatnonzero(finite[1:-1] & ~finite[:-2] & ~finite[2:])]


def _hover_marks(base: alt.Chart, chart: LineChart, panel_index: int) -> alt.Chart:
    """Invisible points with tooltips, and zooming by wheel: the tooltip of a line would show only its first point."""
    zoom = alt.selection_interval(name=f"zoom{panel_index}", bind="scales")
    marks = base.encode(tooltip=_tooltip(chart)).mark_point(opacity=0, size=60, style=HOVER_STYLE, clip=True)
    named = marks.properties(name=f"panel{panel_index}")  # Altair's own names count up through a process
    return named.add_params(zoom) if chart.x.scale else named


def _divergence_marks(chart: LineChart, panel_lines: Sequence[Line], panel_index: int) -> list[alt.Chart]:
    """A cross at the end of each run that diverged or failed."""
    rows = [
        {"x": x, "y": y, "what": f"{line.name}: ended here"}
        for line in panel_lines
        if line.diverged
        for x, y in _last_visible_point(chart, line)
    ]
    if not rows:
        return []
    cross = alt.Chart(alt.Data(values=rows)).mark_point(shape="cross", angle=45, filled=True, size=90, color="#D55E00")
    return [
        cross.encode(
            x=x_encoding(chart, panel_index),
            y=y_encoding(chart, chart.panels[panel_index], panel_index),
            tooltip="what:N",
        )
    ]


def _stopping_marks(chart: LineChart, panel_index: int) -> list[alt.Chart]:
    """A symbol per stopping rule where it would have stopped; the top right panel has their legend."""
    if not chart.stopping_marks:
        return []
    rules = [rule for rule in STOPPING_RULES.values() if any(mark.rule == rule for mark in chart.stopping_marks)]
    is_corner = panel_index == min(chart.n_columns, len(chart.panels)) - 1
    legend = alt.Legend(title="training could stop") if is_corner else None
    rows = [
        {"x": mark.x, "y": mark.y, "stop": mark.rule, "what": mark.name}
        for mark in chart.stopping_marks
        if mark.panel == panel_index and _is_on_axes(chart, panel_index, mark.x, mark.y)
    ]
    marks = alt.Chart(alt.Data(values=rows)).mark_point(size=90, strokeWidth=1.8, opacity=1)
    return [
        marks.encode(
            x=x_encoding(chart, panel_index),
            y=y_encoding(chart, chart.panels[panel_index], panel_index),
            shape=alt.Shape("stop:N", sort=rules, scale=alt.Scale(domain=rules, range=STOP_SHAPES), legend=legend),
            tooltip="what:N",
        )
    ]


def _is_on_axes(chart: LineChart, panel_index: int, x: float, y: float) -> bool:
    """Whether the axes can show this point: a log axis shows only what is positive."""
    return (x > 0 or chart.x.scale == "linear") and (y > 0 or chart.panels[panel_index].scale == "linear")


def _last_visible_point(chart: LineChart, line: Line) -> list[tuple[float, float]]:
    """The last point of a line that its axes can show, if any."""
    visible = [
        (float(x), float(y))
        for x, y in zip(line.x, line.y, strict=True)
        if isfinite(y) and _is_on_axes(chart, line.panel, x, y)
    ]
    return visible[-1:]


def _tooltip(chart: LineChart) -> list[alt.Tooltip]:
    x = alt.Tooltip("x:Q", format=",.6~g") if chart.x.scale else alt.Tooltip("x:N")
    name, n = alt.Tooltip("name:N", title="line"), alt.Tooltip("n:N", title="n")
    return [name, x.title(chart.x.title), alt.Tooltip("y:Q", title="value", format=".4~g"), n]
