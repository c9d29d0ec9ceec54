"""Parallel coordinates: every point of a study as one line across its dials, ending in and coloured by a metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log
from typing import TYPE_CHECKING, Any, Final

from seedbed.charts.against import UNITS, spread_of, value_in_words
from seedbed.charts.axes import by_point, chosen, dial_of, is_number, values_of
from seedbed.charts.labels import dial_in_words, metric_in_words, sentence, spelled, unit_of, with_unit
from seedbed.charts.lines import status_notes
from seedbed.charts.panels import Cell, point_in_words
from seedbed.measures.compare import Spread
from seedbed.measures.summary import RunCurves
from seedbed.settings import Value
from seedbed.shown import Figure

if TYPE_CHECKING:
    import altair as alt

LOG_FROM: Final = 16  # a dial whose largest value is this many times its smallest is laid out by its logarithm
HEIGHT, SIDE, SIDE_Y = 260, 45, 20  # pixels: of the rails' panel, and from its edges to the first rail and label
LINE: Final = 0.06  # the height of a label, as a share of a rail
REACH: Final = 24  # pixels from a rail at which a pointer takes hold of it
COLUMNS: Final[dict[str, Any]] = {
    "line": "number", "axis": "number", "height": "number", "value": "number", "name": "string", "n": "string"
}  # fmt: skip


@dataclass(frozen=True)
class Rail:
    """One vertical axis: its words, and labels with their heights from 0 to 1."""

    title: str
    labels: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class Track:
    """One point: its height on every rail, the last being the metric's, and that metric's mean over seeds."""

    name: str
    heights: tuple[float, ...]
    value: float
    n: int
    of: int


@dataclass(frozen=True)
class Parallel:
    """A chart of parallel coordinates, gathered."""

    title: str
    rails: tuple[Rail, ...]
    tracks: tuple[Track, ...]
    value_title: str
    notes: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to see."""
        return not self.tracks


def gather_parallel(figure: Figure, runs: Sequence[RunCurves]) -> Parallel:
    """The tracks of a figure of kind `parallel`: dials that vary, then the first metric."""
    drawn, metric = chosen(runs, figure), figure.metrics[0]
    names = dict.fromkeys(name for run in drawn for name in run.point)
    dials = {name: _Heights.of(values) for name in names if len(values := values_of(drawn, name)) > 1}
    points = [(members, spread_of(members, metric, figure)) for members in by_point(drawn)]
    shown = [(members, spread) for members, spread in points if isfinite(spread.mean)]
    last = _Heights.of([spread.mean for _, spread in shown])
    tracks = tuple(_track(members, spread, dials, last) for members, spread in shown)
    words = value_in_words(figure, Cell((metric,), None, None)).format(metric_in_words(metric))
    title = with_unit(words, UNITS.get(figure.value, unit_of(metric)))
    rails = [Rail(dial_in_words(name), scale.labels()) for name, scale in dials.items()]
    return Parallel(
        title=figure.title or sentence(f"{title} across all dials"),
        rails=(*rails, Rail(title, last.labels())) if tracks else (),
        tracks=tracks,
        value_title=title,
        notes=_notes(drawn, tracks, len(points) - len(shown)),
    )


def _track(members: Sequence[RunCurves], spread: Spread, dials: Mapping[str, _Heights], last: _Heights) -> Track:
    heights = [scale.height(dial_of(members[0], name)) for name, scale in dials.items()]
    return Track(point_in_words(members[0]), (*heights, last.height(spread.mean)), spread.mean, spread.n, len(members))


def _notes(runs: Sequence[RunCurves], tracks: Sequence[Track], n_missing: int) -> tuple[str, ...]:
    n = sorted({track.n for track in tracks})
    count = f"n = {n[0] if len(n) == 1 else f'{n[0]} to {n[-1]}'} seeds a line." if n else ""
    missing = f"{n_missing} points have no finite mean and no line." if n_missing else ""
    return tuple(note for note in (count, missing, *status_notes(runs)) if note)


@dataclass(frozen=True)
class _Heights:
    """Where values stand between 0 and 1: numbers by size or by logarithm, words at equal distances."""

    values: tuple[Value, ...]
    kind: str  # number, log, word

    @classmethod
    def of(cls, values: Sequence[Value]) -> _Heights:
        if not values or not all(is_number(value) for value in values):
            return cls(tuple(values), "word")
        positive = min(values) > 0 and max(values) >= LOG_FROM * min(values)
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
            return tuple(_apart([(self.height(value), _short(value)) for value in self.values]))
        low, high = self.values[0], self.values[-1]
        shares = (0.0, 0.25, 0.5, 0.75, 1.0)
        between = [low * (high / low) ** s if self.kind == "log" else low + s * (high - low) for s in shares]
        return tuple((share, _short(value)) for share, value in zip(shares, between, strict=True))


def _apart(labels: Sequence[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """The labels that do not lie upon each other, from the first up; the last one always."""
    free = -1.0
    for place, (height, text) in enumerate(labels):
        if place == len(labels) - 1 or (height >= free and labels[-1][0] - height >= LINE):
            yield height, text
            free = height + LINE


def _short(value: Value) -> str:
    return (
        f"{value:.3g}"
        if is_number(value) and abs(value) < 1e5
        else f"{value:.2e}"
        if is_number(value)
        else spelled(value)
    )


def draw_parallel(parallel: Parallel, brushed: bool = False) -> alt.ConcatChart:
    """The tracks over labelled rails; brushed, dragging along a rail fades the tracks that do not pass there."""
    import altair as alt

    from seedbed.charts.specs import table_of, titled

    columns = COLUMNS | {f"h{place}": "number" for place in range(len(parallel.rails)) if brushed}
    data, block = table_of(columns, _rows(parallel, brushed))
    last = len(parallel.rails) - 1
    width = max(360, 170 * max(1, last))
    x = alt.X("axis:Q", axis=None, scale=alt.Scale(domain=[0, max(1, last)], padding=SIDE))
    tooltip = [alt.Tooltip("name:N", title="point"), alt.Tooltip("value:Q", format=".4~g"), alt.Tooltip("n:N")]
    colour = alt.Color("value:Q", title=parallel.value_title, scale=alt.Scale(), legend=alt.Legend(format=".3~g"))
    lines = alt.Chart(data).encode(x=x, y=_height(), detail="line:N", tooltip=tooltip, color=colour)
    weight = 1.8 if len(parallel.tracks) < 60 else 0.8
    tracks = lines.mark_line(strokeWidth=weight, opacity=0.85)
    rails = alt.Chart(alt.Data(values=[{"axis": place, "foot": 0, "head": 1} for place in range(last + 1)]))
    brushes = _brushes(data, x, last, width) if brushed else []
    if brushed:
        inside: Any = {"and": [{"param": f"rail{place}"} for place in range(last + 1)]}
        kept: Any = {"condition": {"test": inside, "value": 0.9}, "value": 0.06}
        tracks = tracks.encode(opacity=alt.Opacity(**kept))
    drawn = [
        rails.mark_rule(strokeWidth=1.2).encode(x=x, y=_height("foot:Q"), y2="head:Q"),
        tracks,
        *brushes,
        *_words(parallel, x),
    ]
    layered = alt.layer(*drawn).properties(width=width, height=HEIGHT)
    return alt.concat(layered, title=titled(parallel.title), datasets=block)


def _brushes(data: alt.NamedData, x: alt.X, last: int, width: int) -> list[alt.Chart]:
    """One selection a rail, which begins near it only and shows itself as a bar upon it."""
    import altair as alt

    found = []
    for place in range(last + 1):
        near = f"abs(x() - {SIDE + place * (width - 2 * SIDE) / max(1, last):.1f}) < {REACH}"
        select = alt.selection_interval(
            name=f"rail{place}", encodings=["y"], translate=False, zoom=False, clear=f"dblclick[{near}]",
            on=f"[pointerdown[{near}], window:pointerup] > window:pointermove!",
            mark=alt.BrushConfig(fillOpacity=0, strokeOpacity=0, cursor="ns-resize"),  # as wide as the panel: unseen
        )  # fmt: skip
        ends = alt.Chart(data).transform_filter(f"datum.axis == {place}").mark_point(size=30, filled=True, opacity=0.9)
        named = ends.properties(name=f"ends{place}")  # names of its own: Altair's count on through a process
        found += [
            named.encode(x=x, y=_height(f"h{place}:Q"), color=alt.value("#8A8A8A")).add_params(select),
            _bar(place, x),
        ]
    return found


def _bar(place: int, x: alt.X) -> alt.Chart:
    """What is selected on a rail, in pixels: an expression knows the selection but not the scale."""
    import altair as alt

    chosen = f"rail{place}.h{place}"
    known = f"isDefined(rail{place}) && isDefined({chosen})"
    ends = [f"{SIDE_Y} + (1 - {chosen}[{end}]) * {HEIGHT - 2 * SIDE_Y}" for end in (1, 0)]
    top, bottom = ({"expr": f"{known} ? {one} : 0"} for one in ends)
    bar = alt.Chart(alt.Data(values=[{"axis": place}])).mark_rect(width=14, opacity=0.35)
    return bar.encode(x=x, y=alt.YValue(top), y2=alt.Y2Value(bottom), color=alt.value("#0072B2"))


def _height(field: str = "height:Q") -> alt.Y:
    import altair as alt

    return alt.Y(field, axis=None, scale=alt.Scale(domain=[0, 1], padding=SIDE_Y))


def _rows(parallel: Parallel, wide: bool) -> list[tuple[Any, ...]]:
    """A row where a track crosses a rail; wide, with its heights on all of them."""
    counts = [str(track.n) if track.n == track.of else f"{track.n}/{track.of}" for track in parallel.tracks]
    return [
        (number, axis, height, track.value, track.name, counts[number], *(track.heights if wide else ()))
        for number, track in enumerate(parallel.tracks)
        for axis, height in enumerate(track.heights)
    ]


def _words(parallel: Parallel, x: alt.X) -> list[alt.Chart]:
    """The labels of the rails, and their titles above."""
    import altair as alt

    labels = [
        {"axis": place, "height": height, "text": text}
        for place, rail in enumerate(parallel.rails) for height, text in rail.labels
    ]  # fmt: skip
    titles = [{"axis": place, "height": 1, "text": rail.title} for place, rail in enumerate(parallel.rails)]
    text = alt.Chart(alt.Data(values=labels)).mark_text(align="right", dx=-8, fontSize=11)
    heads = alt.Chart(alt.Data(values=titles)).mark_text(dy=-20, fontSize=12, limit=165)
    halo = text.encode(x=x, y=_height(), text="text:N").mark_text(align="right", dx=-8, fontSize=11, style="halo")
    return [halo, text.encode(x=x, y=_height(), text="text:N"), heads.encode(x=x, y=_height(), text="text:N")]
