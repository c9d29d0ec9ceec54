"""Parallel coordinates: every point of a study as one line across its dials, ending in and coloured by a metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log
from typing import TYPE_CHECKING, Any, Final

from seedbed.charts.labels import (
    capitalize_first,
    label_with_unit,
    metric_label,
    metric_unit,
    setting_label,
    value_label,
)
from seedbed.charts.line_data import status_notes
from seedbed.charts.panel_layout import PanelSpec, config_label
from seedbed.charts.run_selection import distinct_values, group_by_config, is_number
from seedbed.charts.sweep import UNIT_BY_STATISTIC, axis_title_template, spread_over_seeds
from seedbed.settings import Value
from seedbed.specs import FigureSpec
from seedbed.stats.comparison import SeedSummary
from seedbed.stats.groups import filter_runs, setting_value
from seedbed.stats.summary import RunCurves

if TYPE_CHECKING:
    import altair as alt

MIN_LOG_SCALE_RATIO: Final = (
    16  # a dial whose largest value is this many times its smallest is laid out by its logarithm
)
PANEL_HEIGHT_PIXELS, MARGIN_X_PIXELS, MARGIN_Y_PIXELS = (
    260,
    45,
    20,
)  # pixels: of the rails' panel, and from its edges to the first rail and label
LABEL_HEIGHT: Final = 0.06  # the height of a label, as a share of a rail
BRUSH_REACH_PIXELS: Final = 24  # pixels from a rail at which a pointer takes hold of it
COLUMNS: Final[dict[str, Any]] = {
    "line": "number", "axis": "number", "height": "number", "value": "number", "name": "string", "n": "string"
}  # fmt: skip


@dataclass(frozen=True)
class ParallelAxis:
    """One vertical axis: its words, and labels with their heights from 0 to 1."""

    title: str
    labels: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class ConfigLine:
    """One point: its height on every rail, the last being the metric's, and that metric's mean over seeds."""

    name: str
    heights: tuple[float, ...]
    value: float
    n: int
    n_runs: int


@dataclass(frozen=True)
class ParallelCoordinates:
    """A chart of parallel coordinates, gathered."""

    title: str
    axes: tuple[ParallelAxis, ...]
    lines: tuple[ConfigLine, ...]
    value_title: str
    notes: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to see."""
        return not self.lines


def gather_parallel_coordinates(figure: FigureSpec, runs: Sequence[RunCurves]) -> ParallelCoordinates:
    """The tracks of a figure of kind `parallel`: dials that vary, then the first metric."""
    drawn, metric = filter_runs(runs, figure.only), figure.metrics[0]
    names = dict.fromkeys(name for run in drawn for name in run.config)
    dials = {name: _AxisScale.fit(values) for name in names if len(values := distinct_values(drawn, name)) > 1}
    points = [(members, spread_over_seeds(members, metric, figure)) for members in group_by_config(drawn)]
    shown = [(members, spread) for members, spread in points if isfinite(spread.mean)]
    last = _AxisScale.fit([spread.mean for _, spread in shown])
    tracks = tuple(_config_line(members, spread, dials, last) for members, spread in shown)
    words = axis_title_template(figure, PanelSpec((metric,), None, None)).format(metric_label(metric))
    title = label_with_unit(words, UNIT_BY_STATISTIC.get(figure.value, metric_unit(metric)))
    rails = [ParallelAxis(setting_label(name), scale.labels()) for name, scale in dials.items()]
    return ParallelCoordinates(
        title=figure.title or capitalize_first(f"{title} across all dials"),
        axes=(*rails, ParallelAxis(title, last.labels())) if tracks else (),
        lines=tracks,
        value_title=title,
        notes=_notes(drawn, tracks, len(points) - len(shown)),
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


def _notes(runs: Sequence[RunCurves], lines: Sequence[ConfigLine], n_missing: int) -> tuple[str, ...]:
    n = sorted({track.n for track in lines})
    count = f"n = {n[0] if len(n) == 1 else f'{n[0]} to {n[-1]}'} seeds a line." if n else ""
    missing = f"{n_missing} points have no finite mean and no line." if n_missing else ""
    return tuple(note for note in (count, missing, *status_notes(runs)) if note)


@dataclass(frozen=True)
class _AxisScale:
    """Where values stand between 0 and 1: numbers by size or by logarithm, words at equal distances."""

    values: tuple[Value, ...]
    kind: str  # number, log, word

    @classmethod
    def fit(cls, values: Sequence[Value]) -> _AxisScale:
        if not values or not all(is_number(value) for value in values):
            return cls(tuple(values), "word")
        positive = min(values) > 0 and max(values) >= MIN_LOG_SCALE_RATIO * min(values)
        return cls(tuple(sorted(set(values))), "log" if positive else "number")

    def height(self, value: Value) -> float:
        if self.kind == "word":
            return self.values.index(value) / max(1, len(self.values) - 1)
        low, high = self.values[0], self.values[-1]
        if low == high:
            return 0.5
        return log(value / low) / log(high / low) if self.kind == "log" else (value - low) / (high - low)

    def labels(self) -> tuple[tuple[float, str], ...]:
        """All values while they are few, else five in equal distances."""
        if self.kind == "word" or len(self.values) <= 6:
            return tuple(_non_overlapping([(self.height(value), _short_label(value)) for value in self.values]))
        low, high = self.values[0], self.values[-1]
        shares = (0.0, 0.25, 0.5, 0.75, 1.0)
        between = [low * (high / low) ** s if self.kind == "log" else low + s * (high - low) for s in shares]
        return tuple((share, _short_label(value)) for share, value in zip(shares, between, strict=True))


def _non_overlapping(labels: Sequence[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """The labels that do not lie upon each other, from the first up; the last one always."""
    free = -1.0
    for place, (height, text) in enumerate(labels):
        if place == len(labels) - 1 or (height >= free and labels[-1][0] - height >= LABEL_HEIGHT):
            yield height, text
            free = height + LABEL_HEIGHT


def _short_label(value: Value) -> str:
    return (
        f"{value:.3g}"
        if is_number(value) and abs(value) < 1e5
        else f"{value:.2e}"
        if is_number(value)
        else value_label(value)
    )


def draw_parallel_coordinates(parallel: ParallelCoordinates, brushable: bool = False) -> alt.ConcatChart:
    """The tracks over labelled rails; brushed, dragging along a rail fades the tracks that do not pass there."""
    import altair as alt

    from seedbed.charts.vega_lite import csv_dataset, wrapped_title

    columns = COLUMNS | {f"h{place}": "number" for place in range(len(parallel.axes)) if brushable}
    data, block = csv_dataset(columns, _rows(parallel, brushable))
    last = len(parallel.axes) - 1
    width = max(360, 170 * max(1, last))
    x = alt.X("axis:Q", axis=None, scale=alt.Scale(domain=[0, max(1, last)], padding=MARGIN_X_PIXELS))
    tooltip = [alt.Tooltip("name:N", title="point"), alt.Tooltip("value:Q", format=".4~g"), alt.Tooltip("n:N")]
    colour = alt.Color("value:Q", title=parallel.value_title, scale=alt.Scale(), legend=alt.Legend(format=".3~g"))
    lines = alt.Chart(data).encode(x=x, y=_height_encoding(), detail="line:N", tooltip=tooltip, color=colour)
    weight = 1.8 if len(parallel.lines) < 60 else 0.8
    tracks = lines.mark_line(strokeWidth=weight, opacity=0.85)
    rails = alt.Chart(alt.Data(values=[{"axis": place, "foot": 0, "head": 1} for place in range(last + 1)]))
    brushes = _brushes(data, x, last, width) if brushable else []
    if brushable:
        inside: Any = {"and": [{"param": f"rail{place}"} for place in range(last + 1)]}
        kept: Any = {"condition": {"test": inside, "value": 0.9}, "value": 0.06}
        tracks = tracks.encode(opacity=alt.Opacity(**kept))
    drawn = [
        rails.mark_rule(strokeWidth=1.2).encode(x=x, y=_height_encoding("foot:Q"), y2="head:Q"),
        tracks,
        *brushes,
        *_axis_labels(parallel, x),
    ]
    layered = alt.layer(*drawn).properties(width=width, height=PANEL_HEIGHT_PIXELS)
    return alt.concat(layered, title=wrapped_title(parallel.title), datasets=block)


def _brushes(data: alt.NamedData, x: alt.X, last: int, width: int) -> list[alt.Chart]:
    """One selection a rail, which begins near it only and shows itself as a bar upon it."""
    import altair as alt

    found = []
    for place in range(last + 1):
        near = f"abs(x() - {MARGIN_X_PIXELS + place * (width - 2 * MARGIN_X_PIXELS) / max(1, last):.1f}) < {BRUSH_REACH_PIXELS}"
        select = alt.selection_interval(
            name=f"rail{place}", encodings=["y"], translate=False, zoom=False, clear=f"dblclick[{near}]",
            on=f"[pointerdown[{near}], window:pointerup] > window:pointermove!",
            mark=alt.BrushConfig(fillOpacity=0, strokeOpacity=0, cursor="ns-resize"),  # as wide as the panel: unseen
        )  # fmt: skip
        ends = alt.Chart(data).transform_filter(f"datum.axis == {place}").mark_point(size=30, filled=True, opacity=0.9)
        named = ends.properties(name=f"ends{place}")  # names of its own: Altair's count on through a process
        found += [
            named.encode(x=x, y=_height_encoding(f"h{place}:Q"), color=alt.value("#8A8A8A")).add_params(select),
            _brush_bar(place, x),
        ]
    return found


def _brush_bar(axis_index: int, x: alt.X) -> alt.Chart:
    """What is selected on a rail, in pixels: an expression knows the selection but not the scale."""
    import altair as alt

    chosen = f"rail{axis_index}.h{axis_index}"
    known = f"isDefined(rail{axis_index}) && isDefined({chosen})"
    ends = [
        f"{MARGIN_Y_PIXELS} + (1 - {chosen}[{end}]) * {PANEL_HEIGHT_PIXELS - 2 * MARGIN_Y_PIXELS}" for end in (1, 0)
    ]
    top, bottom = ({"expr": f"{known} ? {one} : 0"} for one in ends)
    bar = alt.Chart(alt.Data(values=[{"axis": axis_index}])).mark_rect(width=14, opacity=0.35)
    return bar.encode(x=x, y=alt.YValue(top), y2=alt.Y2Value(bottom), color=alt.value("#0072B2"))


def _height_encoding(field: str = "height:Q") -> alt.Y:
    import altair as alt

    return alt.Y(field, axis=None, scale=alt.Scale(domain=[0, 1], padding=MARGIN_Y_PIXELS))


def _rows(parallel: ParallelCoordinates, wide: bool) -> list[tuple[Any, ...]]:
    """A row where a track crosses a rail; wide, with its heights on all of them."""
    counts = [str(track.n) if track.n == track.n_runs else f"{track.n}/{track.n_runs}" for track in parallel.lines]
    return [
        (number, axis, height, track.value, track.name, counts[number], *(track.heights if wide else ()))
        for number, track in enumerate(parallel.lines)
        for axis, height in enumerate(track.heights)
    ]


def _axis_labels(parallel: ParallelCoordinates, x: alt.X) -> list[alt.Chart]:
    """The labels of the rails, and their titles above."""
    import altair as alt

    labels = [
        {"axis": place, "height": height, "text": text}
        for place, rail in enumerate(parallel.axes) for height, text in rail.labels
    ]  # fmt: skip
    titles = [{"axis": place, "height": 1, "text": rail.title} for place, rail in enumerate(parallel.axes)]
    text = alt.Chart(alt.Data(values=labels)).mark_text(align="right", dx=-8, fontSize=11)
    heads = alt.Chart(alt.Data(values=titles)).mark_text(dy=-20, fontSize=12, limit=165)
    halo = text.encode(x=x, y=_height_encoding(), text="text:N").mark_text(
        align="right", dx=-8, fontSize=11, style="halo"
    )
    return [
        halo,
        text.encode(x=x, y=_height_encoding(), text="text:N"),
        heads.encode(x=x, y=_height_encoding(), text="text:N"),
    ]
