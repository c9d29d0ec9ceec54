"""Parallel coordinates: each config as a line across the varied settings, ending at and coloured by a metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log
from typing import TYPE_CHECKING, Any, Final

from seedbed.charts.axis_labels import (
    label_with_unit,
    metric_label,
    metric_unit,
    setting_label,
    value_label,
)
from seedbed.charts.panel_layout import config_label, distinct_values, status_notes
from seedbed.charts.sweep import spread_over_seeds
from seedbed.format import capitalise, format_number, format_part, format_range
from seedbed.settings import Value
from seedbed.specs import FigureSpec
from seedbed.stats.comparison import SeedSummary
from seedbed.stats.groups import filter_runs, is_number, is_numeric, setting_value
from seedbed.stats.run_statistics import find_statistic
from seedbed.stats.summary import RunCurves, group_by_config

if TYPE_CHECKING:
    import altair as alt

MIN_LOG_SCALE_RATIO: Final = 16  # of the largest value to the smallest, from which an axis is logarithmic
PANEL_HEIGHT_PIXELS: Final = 260
AXIS_DISTANCE_PIXELS: Final = 170
MAX_TITLE_CHARS: Final = 22
MARGIN_X_PIXELS, MARGIN_Y_PIXELS = 45, 20  # from the panel's edges to the first axis and label
LABEL_HEIGHT: Final = 0.06  # as a share of an axis
BRUSH_REACH_PIXELS: Final = 24  # distance from an axis within which a drag starts its brush
DATASET_COLUMNS: Final[dict[str, Any]] = {
    "line": "number", "axis": "number", "height": "number", "value": "number", "name": "string", "n": "string"
}  # fmt: skip


@dataclass(frozen=True)
class ParallelAxis:
    """One vertical axis: its title, and tick labels with their heights from 0 to 1."""

    title: str
    labels: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class ConfigLine:
    """One config: its height on every axis, the metric's last, and the mean of the metric over seeds."""

    name: str
    heights: tuple[float, ...]
    value: float
    n: int
    n_runs: int


@dataclass(frozen=True)
class ParallelCoordinates:
    """The data of a parallel coordinates chart."""

    title: str
    axes: tuple[ParallelAxis, ...]
    lines: tuple[ConfigLine, ...]
    value_title: str
    notes: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.lines


def gather_parallel_coordinates(figure: FigureSpec, runs: Sequence[RunCurves]) -> ParallelCoordinates:
    """The data of a `parallel` figure: an axis per varied setting, then one of the first metric."""
    selected, metric = filter_runs(runs, figure.only), figure.metrics[0]
    names = dict.fromkeys(name for run in selected for name in run.config)
    setting_scales = {
        name: _AxisScale.fit(values) for name in names if len(values := distinct_values(selected, name)) > 1
    }
    summaries = [(seed_runs, spread_over_seeds(seed_runs, metric, figure)) for seed_runs in group_by_config(selected)]
    shown = [(seed_runs, spread) for seed_runs, spread in summaries if isfinite(spread.mean)]
    metric_scale = _AxisScale.fit([spread.mean for _, spread in shown])
    lines = tuple(_config_line(seed_runs, spread, setting_scales, metric_scale) for seed_runs, spread in shown)
    statistic = find_statistic(figure.value)
    label = statistic.axis_title_template(metric).format(metric_label(metric))
    title = label_with_unit(label, statistic.axis_unit(metric_unit(metric)))
    axes = [ParallelAxis(setting_label(name), scale.labels()) for name, scale in setting_scales.items()]
    return ParallelCoordinates(
        title=figure.title or capitalise(f"{title} across all settings"),
        axes=(*axes, ParallelAxis(title, metric_scale.labels())) if lines else (),
        lines=lines,
        value_title=title,
        notes=_chart_notes(selected, lines, len(summaries) - len(shown)),
    )


def _config_line(
    seed_runs: Sequence[RunCurves],
    spread: SeedSummary,
    setting_scales: Mapping[str, _AxisScale],
    metric_scale: _AxisScale,
) -> ConfigLine:
    heights = [scale.height(setting_value(seed_runs[0], name)) for name, scale in setting_scales.items()]
    return ConfigLine(
        config_label(seed_runs[0]), (*heights, metric_scale.height(spread.mean)), spread.mean, spread.n, len(seed_runs)
    )


def _chart_notes(runs: Sequence[RunCurves], lines: Sequence[ConfigLine], n_missing: int) -> tuple[str, ...]:
    count = f"n = {format_range(line.n for line in lines)} seeds per line." if lines else ""
    missing = f"{n_missing} configs have no finite mean and no line." if n_missing else ""
    return tuple(note for note in (count, missing, *status_notes(runs, of_means=True)) if note)


@dataclass(frozen=True)
class _AxisScale:
    """Maps values to heights from 0 to 1: numbers linearly or by logarithm, categories at equal distances."""

    values: tuple[Value, ...]
    kind: str  # linear, log, category

    @classmethod
    def fit(cls, values: Sequence[Value]) -> _AxisScale:
        if not values or not is_numeric(values):
            return cls(tuple(values), "category")
        use_log = min(values) > 0 and max(values) >= MIN_LOG_SCALE_RATIO * min(values)
        return cls(tuple(sorted(set(values))), "log" if use_log else "linear")

    def height(self, value: Value) -> float:
        if self.kind == "category":
            return self.values.index(value) / max(1, len(self.values) - 1)
        low, high = self.values[0], self.values[-1]
        if low == high:
            return 0.5
        return log(value / low) / log(high / low) if self.kind == "log" else (value - low) / (high - low)

    def labels(self) -> tuple[tuple[float, str], ...]:
        """All values if they are few, else five at equal distances."""
        if self.kind == "category" or len(self.values) <= 6:
            return tuple(_non_overlapping([(self.height(value), _short_label(value)) for value in self.values]))
        low, high = self.values[0], self.values[-1]
        shares = (0.0, 0.25, 0.5, 0.75, 1.0)
        values = [low * (high / low) ** s if self.kind == "log" else low + s * (high - low) for s in shares]
        return tuple((share, _short_label(value)) for share, value in zip(shares, values, strict=True))


def _non_overlapping(labels: Sequence[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """The labels that do not overlap, from the first up; always including the last."""
    next_free = -1.0
    for index, (height, text) in enumerate(labels):
        if index == len(labels) - 1 or (height >= next_free and labels[-1][0] - height >= LABEL_HEIGHT):
            yield height, text
            next_free = height + LABEL_HEIGHT


def _short_label(value: Value) -> str:
    return format_number(value) if is_number(value) else value_label(value)


def draw_parallel_coordinates(parallel: ParallelCoordinates, brushable: bool = False) -> alt.ConcatChart:
    """The lines across labelled axes; if brushable, dragging along an axis fades the lines that do not pass there."""
    import altair as alt

    from seedbed.charts.vega_lite import csv_dataset, inline_chart, number_tooltip, panel_grid

    columns = DATASET_COLUMNS | {f"h{index}": "number" for index in range(len(parallel.axes)) if brushable}
    data, block = csv_dataset(columns, _dataset_rows(parallel, brushable))
    last = len(parallel.axes) - 1
    width = max(360, AXIS_DISTANCE_PIXELS * max(1, last))
    x = alt.X("axis:Q", axis=None, scale=alt.Scale(domain=[0, max(1, last)], padding=MARGIN_X_PIXELS))
    tooltip = [alt.Tooltip("name:N", title="config"), number_tooltip("value"), alt.Tooltip("n:N")]
    colour = alt.Color("value:Q", scale=alt.Scale(), legend=None)  # the last axis says what the colours mean
    lines = alt.Chart(data).encode(x=x, y=_height_encoding(), detail="line:N", tooltip=tooltip, color=colour)
    config_lines = lines.mark_line(strokeWidth=1.8 if len(parallel.lines) < 60 else 0.8, opacity=0.85)
    if brushable:
        selected: Any = {"and": [{"param": f"brush{index}"} for index in range(last + 1)]}
        opacity: Any = {"condition": {"test": selected, "value": 0.9}, "value": 0.06}
        config_lines = config_lines.encode(opacity=alt.Opacity(**opacity))
    axes = inline_chart([{"axis": index, "foot": 0, "head": 1} for index in range(last + 1)])
    layers = [
        axes.mark_rule(strokeWidth=1.2).encode(x=x, y=_height_encoding("foot:Q"), y2="head:Q"),
        config_lines,
        *(_brushes(data, x, last, width) if brushable else []),
        *_axis_labels(parallel, x),
    ]
    layered = alt.layer(*layers).properties(width=width, height=PANEL_HEIGHT_PIXELS)
    if brushable:  # its axes lie at fixed pixels
        return alt.concat(layered, title=parallel.title, datasets=block)
    return panel_grid([layered], 1, parallel.title, block)


def _brushes(data: alt.NamedData, x: alt.X, last: int, width: int) -> list[alt.Chart]:
    """One selection per axis, which starts only near it and is shown as a bar on it."""
    import altair as alt

    charts = []
    for index in range(last + 1):
        axis_x = MARGIN_X_PIXELS + index * (width - 2 * MARGIN_X_PIXELS) / max(1, last)
        near = f"abs(x() - {axis_x:.1f}) < {BRUSH_REACH_PIXELS}"
        select = alt.selection_interval(
            name=f"brush{index}", encodings=["y"], translate=False, zoom=False, clear=f"dblclick[{near}]",
            on=f"[pointerdown[{near}], window:pointerup] > window:pointermove!",
            mark=alt.BrushConfig(fillOpacity=0, strokeOpacity=0, cursor="ns-resize"),  # would span the panel
        )  # fmt: skip
        ends = alt.Chart(data).transform_filter(f"datum.axis == {index}").mark_point(size=30, filled=True, opacity=0.9)
        named = ends.properties(name=f"ends{index}")  # Altair's own names count up through a process
        charts += [
            named.encode(x=x, y=_height_encoding(f"h{index}:Q"), color=alt.value("#8A8A8A")).add_params(select),
            _brush_bar(index, x),
        ]
    return charts


def _brush_bar(axis_index: int, x: alt.X) -> alt.Chart:
    """The selected part of an axis, in pixels: a Vega expression knows the selection but not the scale."""
    import altair as alt

    selection = f"brush{axis_index}.h{axis_index}"
    is_set = f"isDefined(brush{axis_index}) && isDefined({selection})"
    inside = PANEL_HEIGHT_PIXELS - 2 * MARGIN_Y_PIXELS
    top, bottom = (
        {"expr": f"{is_set} ? {MARGIN_Y_PIXELS} + (1 - {selection}[{end}]) * {inside} : 0"} for end in (1, 0)
    )
    bar = alt.Chart(alt.Data(values=[{"axis": axis_index}])).mark_rect(width=14, opacity=0.35)
    return bar.encode(x=x, y=alt.YValue(top), y2=alt.Y2Value(bottom), color=alt.value("#0072B2"))


def _height_encoding(field: str = "height:Q") -> alt.Y:
    import altair as alt

    return alt.Y(field, axis=None, scale=alt.Scale(domain=[0, 1], padding=MARGIN_Y_PIXELS))


def _dataset_rows(parallel: ParallelCoordinates, wide: bool) -> list[tuple[Any, ...]]:
    """One row per line and axis; `wide` adds the line's heights on all axes."""
    counts = [format_part(line.n, line.n_runs) for line in parallel.lines]
    return [
        (index, axis, height, line.value, line.name, counts[index], *(line.heights if wide else ()))
        for index, line in enumerate(parallel.lines)
        for axis, height in enumerate(line.heights)
    ]


def _axis_labels(parallel: ParallelCoordinates, x: alt.X) -> list[alt.Chart]:
    """The tick labels of the axes on a halo, which keeps lines off them, and the axis titles above."""
    from seedbed.charts.vega_lite import inline_chart, wrap_words

    labels = [
        {"axis": index, "height": height, "text": text}
        for index, axis in enumerate(parallel.axes) for height, text in axis.labels
    ]  # fmt: skip
    titles = [wrap_words(axis.title, MAX_TITLE_CHARS) for axis in parallel.axes]
    n_lines = max(map(len, titles), default=1)
    padded = ["\n".join([*[""] * (n_lines - len(title)), *title]) for title in titles]
    title_rows = [{"axis": index, "height": 1, "text": text} for index, text in enumerate(padded)]
    title_text = inline_chart(title_rows).mark_text(dy=-10 - 14 * n_lines, fontSize=12, lineBreak="\n", lineHeight=14)
    position = {"x": x, "y": _height_encoding(), "text": "text:N"}
    styles: list[dict[str, Any]] = [{"style": "halo"}, {}]
    halo, tick_text = (inline_chart(labels).mark_text(align="right", dx=-8, fontSize=11, **style) for style in styles)
    return [halo.encode(**position), tick_text.encode(**position), title_text.encode(**position)]
