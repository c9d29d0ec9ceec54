"""Line charts as panels, for learning curves and sweeps. Colours and fonts come from `theme`, applied last.

Panels of one metric share a y axis, and ticks are round numbers. Lines are named at their ends where there is room,
else in one legend for all panels.

The spec is put together from dictionaries: Altair copies and validates the whole chart at every step, which took longer
than everything else that a chart needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, Final, TypeAlias

import altair as alt
import numpy as np

from seedbed.charts.axis_labels import isolate_direction, value_label
from seedbed.charts.learning_curves import STOPPING_RULES
from seedbed.charts.panel_layout import Line, LineChart, Panel
from seedbed.charts.theme import CATEGORY_COLOURS, DASH_PATTERNS, MARKER_SHAPES
from seedbed.charts.vega_lite import (
    CHARACTER_PIXELS,
    HOVER_STYLE,
    ColumnType,
    build_axis,
    build_scale,
    category_scale,
    compute_domain,
    csv_cells,
    csv_dataset,
    csv_numbers,
    is_short,
    legend_pixels,
    named_csv,
    number_tooltip,
    readable_ticks,
    room_beside_panels,
    wrap_words,
    wrapped_title,
)
from seedbed.format import format_part
from seedbed.settings import Value

MAX_OPAQUE_BANDS: Final = 6  # more bands overlap, and are drawn fainter
MAX_BANDS: Final = 40  # lines per panel; with more, bands are left out
MAX_DIRECT_LABELS: Final = 6
MAX_BAR_TICKS: Final = 10
LABEL_HEIGHT_PIXELS: Final = 13
MAX_COMPARED_LINES: Final = 6  # per panel, to find those that coincide; among more, wider lines hide others
WHISKER_MARGIN: Final = 0.04  # of an axis, beyond the ends of error bars
COINCIDENCE: Final = 0.01  # of the panel's height: as near as this, lines cover each other
MARK_SIZES: Final = {"line": (1.8, 2.4), "point": (45, 80)}  # of a mark, and what each one that covers it adds
MAX_COVERING: Final = 2
PANEL_PIXELS_BY_COLUMNS: Final = {1: 520, 2: 330, 3: 240}
STOP_SHAPES: Final = ("circle", "diamond", "triangle-up")
Layer: TypeAlias = Mapping[str, Any]  # of a panel, as Vega-Lite has it
POINT_COLUMNS: Final[dict[str, ColumnType]] = {
    "line": "number", "x": "number", "y": "number", "low": "number", "high": "number"
}  # fmt: skip
LINE_COLUMNS: Final[dict[str, ColumnType]] = {
    "line": "number", "panel": "number", "colour": "number", "dash": "string", "name": "string", "n": "string",
    "size": "number",
}  # fmt: skip


def draw_lines(chart: LineChart) -> dict[str, Any]:
    """Every panel with its lines, bands and marks, as a Vega-Lite spec; panels of one metric share their y axis."""
    return _LinePainter(chart).draw()


def line_datasets(chart: LineChart) -> dict[str, str]:
    """Only the data of a line chart: the part that changes while runs train."""
    (_, point_data), (_, line_data) = _LinePainter(chart).data_tables()
    return point_data | line_data


@dataclass(frozen=True)
class _LinePainter:
    """A line chart while it is drawn; what several panels need is computed once."""

    chart: LineChart

    def draw(self) -> dict[str, Any]:
        chart = self.chart
        (points, point_data), (lines, line_data) = self.data_tables()
        fields = [name for name in LINE_COLUMNS if name != "line"]
        lookup = {"lookup": "line", "from": {"data": _as_dict(lines), "key": "line", "fields": fields}}
        several_y_titles = len({panel.y_title for panel in chart.panels[: chart.n_columns]}) > 1
        several_titles = len({panel.title for panel in chart.panels[:: chart.n_columns]}) > 1
        column_pixels = 72 if several_y_titles else 52
        titles = [(panel.title, chart.x.title, panel.y_title) for panel in chart.panels]
        return {
            "title": _as_dict(wrapped_title(chart.title)),
            "concat": [
                self._draw_panel(
                    {"data": _as_dict(points), "transform": [lookup, {"filter": f"datum.panel == {index}"}]}, index
                )
                for index in range(len(chart.panels))
            ],
            "columns": chart.n_columns,
            "spacing": {"row": 58 if several_titles else 40, "column": column_pixels},
            "bounds": "flush",
            "resolve": {"scale": dict.fromkeys(("color", "strokeDash", "shape"), "shared")},
            "datasets": point_data | line_data,
            "usermeta": room_beside_panels(
                chart.n_columns, self._side_pixels() + 20, column_pixels, titles, keep_side=self.has_direct_labels
            ),
        } | ({"params": [self._zoom(index) for index in range(len(chart.panels))]} if chart.x.scale else {})

    # ---- sizes ----

    @cached_property
    def width(self) -> int:
        return PANEL_PIXELS_BY_COLUMNS.get(self.chart.n_columns, 190)

    @property
    def height(self) -> int:
        return 190 if self.width < 500 else 260

    def _side_pixels(self) -> float:
        chart = self.chart
        labels = [*chart.dash_labels, *(STOPPING_RULES.values() if chart.stopping_marks else ())]
        if chart.palette != "bar":
            labels += chart.colour_labels
        if self.has_direct_labels:
            return 10 + CHARACTER_PIXELS * max(map(len, chart.colour_labels))
        needs_legend = chart.palette != "single" or len(chart.dash_labels) > 1 or bool(chart.stopping_marks)
        return legend_pixels(chart.colour.title if chart.colour else None, labels) if needs_legend else 0

    # ---- data ----

    def data_tables(self) -> tuple[tuple[alt.NamedData, dict[str, str]], tuple[alt.NamedData, dict[str, str]]]:
        """The table of points, and the table of what is stored once per line."""
        point_columns: dict[str, ColumnType] = {**POINT_COLUMNS, "x": "number" if self.chart.x.scale else "string"}
        points = "\n".join([",".join(point_columns), *self._point_rows(), ""])
        colour: ColumnType = "number" if self.chart.palette == "bar" else "string"
        lines = csv_dataset({**LINE_COLUMNS, "colour": colour}, self._line_rows(), "lines")
        return (named_csv(point_columns, "rows"), {"rows": points}), lines

    def _line_rows(self) -> Iterator[tuple[Value, ...]]:
        """Panel, colour, dash, name, n and size of each line."""
        size, more = MARK_SIZES[self.chart.mark_type]
        covered = self._n_covering_lines()
        for index, line in enumerate(self.chart.lines):
            size_of_line = (size if len(self.chart.lines) < 80 else size / 2) + more * covered.get(index, 0)
            n = format_part(line.n, line.n_runs)
            yield index, line.panel, self._colour_cell(line), line.dash, line.name, n, round(size_of_line, 2)

    def _n_covering_lines(self) -> dict[int, int]:
        """How many later lines each line coincides with: it is drawn so much wider that it shows beneath them."""
        counts: dict[int, int] = {}
        for panel_index, panel in enumerate(self.chart.panels):
            shown = [(i, line) for i, line in enumerate(self.chart.lines) if line.panel == panel_index]
            if len(shown) > MAX_COMPARED_LINES or self.chart.palette == "bar":
                continue
            low, high = _scaled(np.array(self.y_domain(panel)), panel.scale)
            for at, (i, line) in enumerate(shown):
                y = _scaled(line.y, panel.scale)
                others = [
                    _scaled(other.y, panel.scale)
                    for _, other in shown[at + 1 :]
                    if other.x == line.x and (other.colour, other.dash) != (line.colour, line.dash)
                ]
                apart = [np.nanmean(np.abs(y - other) > COINCIDENCE * (high - low)) for other in others]
                counts[i] = min(MAX_COVERING, sum(share < 0.5 for share in apart))
        return counts

    def _colour_cell(self, line: Line) -> Value:
        return line.colour if self.chart.palette == "bar" else value_label(line.colour)

    def _point_rows(self) -> Iterator[str]:
        """Every point of every line; what a log axis cannot show is a gap, and bands are clipped to the axis."""
        domains = [self.y_domain(panel) for panel in self.chart.panels]
        x_cells: dict[tuple[Value, ...], list[str]] = {}  # most lines have the same steps
        for index, line in enumerate(self.chart.lines):
            if line.x not in x_cells:
                x_cells[line.x] = csv_cells(map(self._x_cell, line.x))
            is_log, (bottom, top) = self.chart.panels[line.panel].scale == "log", domains[line.panel]
            cells = [x_cells[line.x], csv_numbers(np.where(line.y > 0, line.y, np.nan) if is_log else line.y)]
            for end in (line.low, line.high):
                cells.append(csv_numbers(np.clip(end, bottom, top)) if line.n > 1 else [""] * len(line.x))
            for x, y, low, high in zip(*cells, strict=True):
                yield f"{index},{x},{y},{low},{high}"

    def _x_cell(self, x: Value) -> Value:
        if self.chart.x.scale is None:
            return value_label(x)
        return float(x) if self.chart.x.scale == "linear" or x > 0 else np.nan

    # ---- axes ----

    @cached_property
    def _x_axis(self) -> dict[str, Any]:
        """The x encoding of every panel but for its title."""
        chart = self.chart
        if chart.x.scale is None:
            categories = list(dict.fromkeys(value_label(x) for line in chart.lines for x in line.x))
            max_chars = max(8, int(self.width / max(1, len(categories)) / CHARACTER_PIXELS))
            broken = {label: wrap_words(label, max_chars) for label in categories}
            axis = alt.Axis(
                labelAngle=0, labelExpr=f"({json.dumps(broken)})[datum.label]", labelLimit=0, labelOverlap=False
            )
            return _as_dict(alt.X("x:N", sort=categories, axis=axis))
        numbers = [float(x) for line in chart.lines for x in line.x if chart.x.scale == "linear" or x > 0]
        numbers = [x for x in numbers if isfinite(x)]
        domain = compute_domain(numbers, chart.x.scale)
        ticks = readable_ticks(numbers, domain, chart.x.scale, self.width) if chart.mark_type == "point" else None
        scale = build_scale(chart.x.scale, domain, nice=False, padding=12 if ticks else 6)
        return _as_dict(alt.X("x:Q", axis=build_axis(domain, chart.x.scale, ticks, grid=False), scale=scale))

    def x(self, panel_index: int) -> dict[str, Any]:
        is_last_row = panel_index >= len(self.chart.panels) - self.chart.n_columns
        return self._x_axis | {"title": self.chart.x.title if is_last_row else None}

    def y(self, panel_index: int, field: str = "y") -> dict[str, Any]:
        return self._y_axes[panel_index] | {"field": field}

    @cached_property
    def _y_axes(self) -> list[dict[str, Any]]:
        return [self._y_axis(index, panel) for index, panel in enumerate(self.chart.panels)]

    def _y_axis(self, panel_index: int, panel: Panel) -> dict[str, Any]:
        """The y encoding of a panel but for its field."""
        chart = self.chart
        show_title = not panel_index % chart.n_columns or chart.panels[panel_index - 1].y_title != panel.y_title
        domain = self.y_domain(panel)
        title = isolate_direction(panel.y_title) if show_title else None
        scale = build_scale(panel.scale, domain, nice=chart.mark_type == "line")  # else room for whole symbols
        return _as_dict(alt.Y(type="quantitative", title=title, axis=build_axis(domain, panel.scale), scale=scale))

    def y_domain(self, panel: Panel) -> tuple[float, float]:
        """The domain of a panel's y axis, shared by all panels of its metric."""
        return (0.0, 1.0) if panel.is_fraction else self._domains[panel.y_title]

    @cached_property
    def _domains(self) -> dict[str, tuple[float, float]]:
        return {panel.y_title: compute_domain(self._y_values(panel), panel.scale) for panel in self.chart.panels}

    def _y_values(self, panel: Panel) -> list[float]:
        """The smallest and largest of the means, and of the ends of bands, in the panels that share this y axis."""
        sharing = {index for index, other in enumerate(self.chart.panels) if other.y_title == panel.y_title}
        shown = [line for line in self.chart.lines if line.panel in sharing]
        means = np.concatenate([[], *(line.y for line in shown)])
        ends = np.concatenate([[], *(end for line in shown if line.n > 1 for end in (line.low, line.high))])
        means, ends = means[np.isfinite(means)], ends[np.isfinite(ends)]
        if panel.scale == "linear":
            if ends.size and self.chart.mark_type == "point":
                margin = WHISKER_MARGIN * float(np.ptp(np.concatenate([means, ends])))
                ends = np.concatenate([ends - margin, ends + margin])
            values = np.concatenate([means, np.maximum(ends, 0.0) if panel.non_negative else ends])
        else:  # a std larger than its mean would end at or below 0, where a log axis has nothing
            positive, values = means[means > 0], np.concatenate([means, ends])
            values = np.maximum(values[values > 0], (positive.min() if positive.size else 1.0) / 2)
        return [float(values.min()), float(values.max())] if values.size else []

    # ---- colours, dashes, shapes ----

    def colour(self, legend: bool) -> Any:
        """A palette for categories and for a few numbers, a colour bar for many; one fixed colour if there is one."""
        chart = self.chart
        if chart.palette == "single":
            return alt.value(CATEGORY_COLOURS[0])
        assert chart.colour  # for mypy: without it the palette is single
        if chart.palette == "bar":
            domain = list(compute_domain([float(line.colour) for line in chart.lines], chart.colour.scale))
            is_linear, title = chart.colour.scale == "linear", isolate_direction(chart.colour.title)
            scale: Any = {} if is_linear else {"type": "log", "base": 2 if chart.colour.scale == "log2" else 10}
            values = sorted({float(line.colour) for line in chart.lines})
            axis = build_axis((domain[0], domain[1]), chart.colour.scale)
            ticks = values if len(values) <= MAX_BAR_TICKS and all(map(is_short, values)) else axis.values
            bar = alt.Legend(title=title, values=ticks, format=axis.format, type="gradient")
            return alt.Color("colour:Q", legend=bar if legend else None, scale=alt.Scale(domain=domain, **scale))
        if chart.palette == "ordinal":  # colours from the theme's ramp
            scale = alt.Scale(domain=chart.colour_labels)
            return alt.Color("colour:O", legend=self._legend(legend), sort=chart.colour_labels, scale=scale)
        scale = category_scale(chart.colour_labels, CATEGORY_COLOURS)
        return alt.Color("colour:N", legend=self._legend(legend), sort=chart.colour_labels, scale=scale)

    def dash(self, legend: bool) -> Any:
        """Dashes for the second setting; without one, colour categories are dashed too, for readers without colour."""
        chart = self.chart
        if len(chart.dash_labels) > 1:
            title = isolate_direction(chart.dash_title or "")
            field, labels, shown = "dash:N", chart.dash_labels, alt.Legend(title=title) if legend else None
        elif chart.palette == "category":
            field, labels, shown = "colour:N", chart.colour_labels, self._legend(legend and chart.mark_type == "line")
        else:
            return alt.Undefined
        scale = category_scale(labels, list(map(list, DASH_PATTERNS)), shift=True)
        return alt.StrokeDash(field, sort=labels, scale=scale, legend=shown)

    def shape(self, legend: bool) -> Any:
        labels = self.chart.colour_labels
        if self.chart.palette != "category":
            return alt.Undefined
        scale = category_scale(labels, MARKER_SHAPES, shift=True)
        return alt.Shape("colour:N", legend=self._legend(legend), sort=labels, scale=scale)

    def _legend(self, legend: bool) -> alt.Legend | None:
        if not legend or not self.chart.colour or self.has_direct_labels:
            return None
        return alt.Legend(title=isolate_direction(self.chart.colour.title))

    # ---- marks ----

    def _draw_panel(self, base: Layer, panel_index: int) -> dict[str, Any]:
        """A panel; `base` has the data and the transforms of the layers that draw lines."""
        chart, panel = self.chart, self.chart.panels[panel_index]
        panel_lines = [line for line in chart.lines if line.panel == panel_index]
        rule, rule_name = self._chance_marks(panel_index)
        layers = [
            *rule,
            *self._spread_marks(base, panel_index, panel_lines),
            *self._line_marks(base, panel_index),
            *self._isolated_point_marks(panel_index, panel_lines),
            *self._divergence_marks(panel_index, panel_lines),
            *self._stopping_marks(panel_index),
            *self._direct_labels(base, panel_index),
            *rule_name,
            self._hover_marks(base, panel_index),
        ]
        n = chart.n_columns
        neighbours = [panel_index - n] * (panel_index >= n) + [panel_index - 1] * (panel_index % n > 0)
        is_repeated = panel.title in [chart.panels[other].title for other in neighbours]
        text = "" if is_repeated else isolate_direction(panel.title)
        return {
            "layer": layers, "width": self.width, "height": self.height,
            "title": {"text": text, "fontSize": 13, "offset": 8, "frame": "group"},
            "resolve": {"legend": dict.fromkeys(("color", "strokeDash", "shape"), "independent")},
        }  # fmt: skip

    def _layer(self, base: Layer, panel_index: int, mark: str, options: Mapping[str, Any], **channels: Any) -> Layer:
        """Marks of the lines of a panel at their x and y."""
        position = {"x": self.x(panel_index), "y": self.y(panel_index), "detail": alt.Detail("line:N")}
        return _layer(base, mark, options, **position | channels)

    def _is_corner(self, panel_index: int) -> bool:
        """Is it the top right panel, which carries the legend for all?"""
        return panel_index == min(self.chart.n_columns, len(self.chart.panels)) - 1

    def _spread_marks(self, base: Layer, panel_index: int, panel_lines: Sequence[Line]) -> list[Layer]:
        if not any(line.n > 1 for line in panel_lines) or len(panel_lines) > MAX_BANDS:
            return []
        ends = {"y": self.y(panel_index, "low"), "y2": alt.Y2("high"), "color": self.colour(legend=False)}
        if self.chart.mark_type == "point":
            return [self._layer(base, panel_index, "rule", {"strokeWidth": 1.2, "opacity": 0.8, "clip": True}, **ends)]
        opacity = 0.16 if len(panel_lines) <= MAX_OPAQUE_BANDS else 0.07
        return [self._layer(base, panel_index, "area", {"fillOpacity": opacity, "clip": True}, **ends)]

    def _line_marks(self, base: Layer, panel_index: int) -> list[Layer]:
        """The lines and their points. Bands have no legend: it would turn a colour bar into faint symbols."""
        is_corner, has_points = self._is_corner(panel_index), self.chart.mark_type == "point"
        width = alt.value(1.8) if has_points else alt.StrokeWidth("size:Q", scale=None, legend=None)
        stroke = {"color": self.colour(is_corner and not has_points), "strokeDash": self.dash(is_corner)}
        line = {"strokeJoin": "round", "clip": True}
        lines = [self._layer(base, panel_index, "line", line, strokeWidth=width, **stroke)]
        layers = lines if self.chart.x.scale else []
        if has_points:
            size = alt.Size("size:Q", scale=None, legend=None)
            symbol = {"color": self.colour(is_corner), "shape": self.shape(is_corner), "size": size}
            layers.append(self._layer(base, panel_index, "point", {"filled": True, "opacity": 1}, **symbol))
        return layers

    def _isolated_point_marks(self, panel_index: int, panel_lines: Sequence[Line]) -> list[Layer]:
        """Dots for values without a neighbour, which a line cannot show: a single evaluation, or one between gaps."""
        rows = [
            {"x": float(line.x[i]), "y": float(line.y[i]), "colour": self._colour_cell(line)}
            for line in panel_lines if self.chart.mark_type == "line" for i in _isolated_points(line)
        ]  # fmt: skip
        if not rows:
            return []
        position = {"x": self.x(panel_index), "y": self.y(panel_index)}
        dot = {"filled": True, "size": 30, "opacity": 1}
        return [_layer(_inline(rows), "point", dot, **position, color=self.colour(False))]

    def _divergence_marks(self, panel_index: int, panel_lines: Sequence[Line]) -> list[Layer]:
        """A cross at the end of each run that diverged or failed."""
        rows = [
            {"x": x, "y": y, "what": f"{line.name}: ended here"}
            for line in panel_lines if line.diverged for x, y in self._visible_points(line)[-1:]
        ]  # fmt: skip
        if not rows:
            return []
        position = {"x": self.x(panel_index), "y": self.y(panel_index)}
        cross = {"shape": "cross", "angle": 45, "filled": True, "size": 90, "color": "#D55E00"}
        return [_layer(_inline(rows), "point", cross, **position, tooltip=alt.Tooltip("what:N"))]

    def _chance_marks(self, panel_index: int) -> tuple[list[Layer], list[Layer]]:
        """A thin line at what guessing achieves, if that lies within the axis, and its name; or that all is empty."""
        panel = self.chart.panels[panel_index]
        if not any(line.panel == panel_index and np.isfinite(line.y).any() for line in self.chart.lines):
            centre = {"x": alt.value(self.width / 2), "y": alt.value(self.height / 2), "text": alt.Text("text:N")}
            return [], [
                _layer(_inline([{"text": "no run has a value"}]), "text", {"fontSize": 11, "opacity": 0.75}, **centre)
            ]
        low, high = self.y_domain(panel)
        if panel.chance is None or not low <= panel.chance <= high:
            return [], []
        chance, y = _inline([{"y": panel.chance, "text": "chance"}]), self.y(panel_index)
        is_low = panel.scale == "linear" and panel.chance - low < 0.1 * (high - low)
        position = {"x": alt.value("width"), "y": y, "text": alt.Text("text:N")}
        style: dict[str, Any] = {"align": "right", "dx": -2, "dy": -7 if is_low else 7, "fontSize": 10, "aria": False}
        styles: list[dict[str, Any]] = [{"style": "halo"}, {}]
        texts = [_layer(chance, "text", style | more, **position) for more in styles]
        return [_layer(chance, "rule", {"strokeDash": [2, 3], "strokeWidth": 1, "aria": False}, y=y)], texts

    def _stopping_marks(self, panel_index: int) -> list[Layer]:
        """A symbol per stopping rule where it would have stopped; the top right panel has their legend."""
        marks = self.chart.stopping_marks
        if not marks:
            return []
        rules = [rule for rule in STOPPING_RULES.values() if any(mark.rule == rule for mark in marks)]
        legend = alt.Legend(title="training could stop") if self._is_corner(panel_index) else None
        rows = [
            {"x": mark.x, "y": mark.y, "stop": mark.rule, "what": mark.name}
            for mark in marks
            if mark.panel == panel_index and self._is_on_axes(panel_index, mark.x, mark.y)
        ]
        position = {"x": self.x(panel_index), "y": self.y(panel_index)}
        shape = alt.Shape("stop:N", sort=rules, scale=alt.Scale(domain=rules, range=STOP_SHAPES), legend=legend)
        symbol = {"size": 90, "strokeWidth": 1.8, "opacity": 1}
        return [_layer(_inline(rows), "point", symbol, **position, shape=shape, tooltip=alt.Tooltip("what:N"))]

    def _hover_marks(self, base: Layer, panel_index: int) -> Layer:
        """Invisible points with tooltips, to which zooming is bound: a line's own would show only its first point."""
        chart = self.chart
        x = alt.Tooltip("x:Q", format=",.6~r") if chart.x.scale else alt.Tooltip("x:N")
        tooltip = [alt.Tooltip("name:N", title="line"), x.title(chart.x.title), number_tooltip("y", "value")]
        hidden = {"opacity": 0, "size": 60, "style": HOVER_STYLE, "clip": True}
        marks = self._layer(base, panel_index, "point", hidden, tooltip=[*tooltip, alt.Tooltip("n:N", title="n")])
        return {**marks, "name": f"panel{panel_index}"}

    def _zoom(self, panel_index: int) -> dict[str, Any]:
        """Zooming with Ctrl: the wheel alone scrolls the page."""
        select = {"type": "interval", "zoom": "wheel![event.ctrlKey]"}
        return {
            "name": f"zoom{panel_index}", "select": select, "bind": "scales", "views": [f"panel{panel_index}"]
        }  # fmt: skip

    # ---- names at the ends of lines ----

    @cached_property
    def has_direct_labels(self) -> bool:
        """Whether the top right panel has room for a name at the end of every line, instead of a legend."""
        chart = self.chart
        corner = min(chart.n_columns, len(chart.panels)) - 1
        lines = [line for line in chart.lines if line.panel == corner and np.isfinite(line.y).any()]
        is_plain = chart.mark_type == "line" and chart.palette in ("category", "ordinal") and not chart.stopping_marks
        if not is_plain or len(chart.dash_labels) > 1 or len(lines) > MAX_DIRECT_LABELS:
            return False
        if sorted(value_label(line.colour) for line in lines) != sorted(chart.colour_labels):
            return False
        if not all(isinstance(line.colour, str) for line in lines):  # a number says little without its setting's name
            return False
        panel = chart.panels[corner]
        low, high = _scaled(np.array(self.y_domain(panel)), panel.scale)
        ends = [self._visible_points(line)[-1:] for line in lines]
        if not all(ends) or not all(end[0][0] == ends[0][0][0] for end in ends):  # all at the right edge
            return False
        at = np.sort([_scaled(np.array([end[0][1]]), panel.scale)[0] for end in ends])
        return bool((np.diff(at) >= LABEL_HEIGHT_PIXELS / self.height * (high - low)).all())

    def _direct_labels(self, base: Layer, panel_index: int) -> list[Layer]:
        if not self.has_direct_labels or not self._is_corner(panel_index):
            return []
        last = {"joinaggregate": [{"op": "max", "field": "x", "as": "last"}], "groupby": ["line"]}
        steps = [*base["transform"], {"filter": "isValid(datum.y)"}, last, {"filter": "datum.x == datum.last"}]
        text = {"align": "left", "dx": 3, "fontSize": 11, "aria": False, "clip": False}
        label = {"x": alt.value("width"), "text": alt.Text("colour:N"), "color": self.colour(legend=False)}
        return [self._layer({**base, "transform": steps}, panel_index, "text", text, **label)]

    # ---- points ----

    def _is_on_axes(self, panel_index: int, x: float, y: float) -> bool:
        """Whether the axes can show this point: a log axis shows only what is positive."""
        return (x > 0 or self.chart.x.scale == "linear") and (y > 0 or self.chart.panels[panel_index].scale == "linear")

    def _visible_points(self, line: Line) -> list[tuple[float, float]]:
        """The points of a line that its axes can show."""
        points = zip(line.x, line.y, strict=True)
        return [(float(x), float(y)) for x, y in points if isfinite(y) and self._is_on_axes(line.panel, x, y)]


# ---- layers as dictionaries ----


def _layer(base: Layer, mark: str, options: Mapping[str, Any], **channels: Any) -> Layer:
    """Marks of this data with these channels; those that are undefined are left out."""
    encoding = {name: _as_dict(one) for name, one in channels.items() if one is not alt.Undefined}
    return {**base, "mark": {"type": mark, **options}, "encoding": encoding}


def _inline(rows: Sequence[Mapping[str, Value]]) -> Layer:
    """The data of a few marks of their own, such as a line at chance."""
    return {"data": {"values": list(rows)}}


def _as_dict(part: Any) -> Any:
    """A part of a chart as Vega-Lite has it."""
    if isinstance(part, list):
        return [_as_dict(one) for one in part]
    return part if isinstance(part, dict) else part.to_dict(validate=False)


def _scaled(values: np.ndarray, scale: str) -> np.ndarray:
    """The values as an axis of this scale places them."""
    return values if scale == "linear" else np.log(np.where(values > 0, values, np.nan))


def _isolated_points(line: Line) -> list[int]:
    finite = np.concatenate([[False], np.isfinite(line.y), [False]])
    return [int(i) for i in np.flatnonzero(finite[1:-1] & ~finite[:-2] & ~finite[2:])]
