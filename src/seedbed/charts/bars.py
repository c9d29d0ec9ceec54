"""One statistic per run as bars: the mean of every category with its 95 % interval, and every seed as a dot.

Suits compute time, memory, and any metric per category. A log scale has no zero to start a bar from, so means are dots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan, nan
from typing import TYPE_CHECKING, Any, Final

from seedbed.charts.axis_labels import capitalize_first, isolate_direction, metric_quantity, setting_label, value_label
from seedbed.charts.line_data import Panel, status_notes
from seedbed.charts.panel_layout import PanelSpec, build_panel, config_label, n_panel_columns, panel_specs
from seedbed.charts.run_selection import check_setting_names, group_by_config
from seedbed.charts.sweep import truncate_at_alphas
from seedbed.charts.theme import CATEGORY_COLOURS
from seedbed.specs import FigureSpec
from seedbed.stats.groups import filter_runs, setting_value
from seedbed.stats.run_statistics import Statistic, compute_statistic, find_statistic, summarise_values
from seedbed.stats.summary import RunCurves, select_for_mean

if TYPE_CHECKING:
    import altair as alt

DATASET_COLUMNS: Final[dict[str, Any]] = {
    "panel": "number", "x": "string", "colour": "string", "mean": "number", "low": "number", "high": "number",
    "value": "number", "seed": "string", "n": "string",
}  # fmt: skip


@dataclass(frozen=True)
class Bar:
    """One category: the mean with its 95 % interval (NaN with fewer than two runs) and each seed's value."""

    panel: int
    x: str
    colour: str
    mean: float
    low: float
    high: float
    values: tuple[tuple[int, float], ...]
    n_runs: int  # including runs left out of the mean


@dataclass(frozen=True)
class Bars:
    """The data of a bar chart."""

    title: str
    panels: tuple[Panel, ...]
    n_columns: int
    bars: tuple[Bar, ...]
    x_title: str
    colour_title: str | None
    notes: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(isfinite(bar.mean) for bar in self.bars)


def gather_bars(figure: FigureSpec, runs: Sequence[RunCurves]) -> Bars:
    """The data of a `bars` figure; x is a setting, or `step` (its default) for one bar per config."""
    check_setting_names(runs, (figure.x, figure.colour, figure.row, figure.column))
    selected = truncate_at_alphas(figure, filter_runs(runs, figure.only))
    statistic = find_statistic(figure.value)
    metrics_by_panel = [(metric,) for metric in (figure.metrics if statistic.uses_metric else figure.metrics[:1])]
    specs = list(panel_specs(figure, selected, metrics_by_panel))
    bars = [bar for index, spec in enumerate(specs) for bar in _bars_in_panel(figure, index, spec, selected)]
    return Bars(
        title=figure.title or _default_title(figure, statistic),
        panels=tuple(build_panel(figure, spec, statistic) for spec in specs),
        n_columns=n_panel_columns(figure, selected, metrics_by_panel),
        bars=tuple(bars),
        x_title="" if figure.x == "step" else setting_label(figure.x),
        colour_title=setting_label(figure.colour) if figure.colour else None,
        notes=_chart_notes(figure, statistic, selected, bars),
    )


def _bars_in_panel(figure: FigureSpec, panel_index: int, spec: PanelSpec, runs: Sequence[RunCurves]) -> Iterator[Bar]:
    """One bar per config; configs that share a category are named in full."""
    configs = group_by_config(spec.select(figure, runs))
    names = [_category_names(figure, seed_runs[0]) for seed_runs in configs]
    for seed_runs, name in zip(configs, names, strict=True):
        unique_name = name if names.count(name) == 1 else (config_label(seed_runs[0]) or name[0], name[1])
        included, so_far = select_for_mean(seed_runs)
        computed = [(run.run.seed, compute_statistic(run, spec.metrics[0], figure.value, so_far)) for run in included]
        values = tuple((seed, value) for seed, value in computed if not isnan(value))
        interval = summarise_values(figure.value, dict(values))
        ends = (interval.low, interval.high) if isfinite(interval.low) else (nan, nan)
        yield Bar(panel_index, *unique_name, interval.mean, *ends, values, len(seed_runs))


def _category_names(figure: FigureSpec, run: RunCurves) -> tuple[str, str]:
    x = (
        config_label(run) or run.run.settings.model.kind
        if figure.x == "step"
        else value_label(setting_value(run, figure.x))
    )
    return x, value_label(setting_value(run, figure.colour)) if figure.colour else ""


def _default_title(figure: FigureSpec, statistic: Statistic) -> str:
    quantities = " and ".join(dict.fromkeys(map(metric_quantity, figure.metrics)))
    x = "config" if figure.x == "step" else setting_label(figure.x)
    return capitalize_first(f"{statistic.title.format(quantities)} for each {x}")


def _chart_notes(
    figure: FigureSpec, statistic: Statistic, runs: Sequence[RunCurves], bars: Sequence[Bar]
) -> tuple[str, ...]:
    counts = sorted({len(bar.values) for bar in bars if bar.values})
    n = f"n = {counts[0] if len(set(counts)) == 1 else f'{counts[0]} to {counts[-1]}'} runs per bar." if counts else ""
    several = any(isfinite(bar.low) for bar in bars)
    of_what = (
        "the mean (Student's t, for values that are roughly normal)"
        if statistic.threshold is None
        else "the median (sign test)"
    )
    intervals = (
        f"Lines are 95 % intervals of {of_what}, cut at the panel's edge; dots are runs."
        if several
        else ""
        if not counts
        else "A single run has no interval."
        if statistic.threshold is None
        else "Fewer than six runs have no interval."
    )
    times = [value for bar in bars for _, value in bar.values] if statistic.threshold is not None else []
    never = f"{times.count(inf)} of {len(times)} runs never get there." if inf in times else ""
    chart_note = statistic.chart_note(runs, figure.metrics)
    return tuple(note for note in (n, intervals, never, chart_note, *status_notes(runs, of_means=True)) if note)


def draw_bars(bars: Bars) -> alt.ConcatChart:
    """The bars as Altair panels; a second setting colours bars side by side within a category."""
    import altair as alt

    from seedbed.charts.vega_lite import csv_dataset, wrapped_title

    data, block = csv_dataset(DATASET_COLUMNS, _dataset_rows(bars))
    panels = [_draw_panel(alt.Chart(data), bars, index, panel) for index, panel in enumerate(bars.panels)]
    return alt.concat(*panels, columns=bars.n_columns, title=wrapped_title(bars.title), datasets=block, spacing=24)


def _dataset_rows(bars: Bars) -> Iterator[tuple[Any, ...]]:
    for bar in bars.bars:
        n = str(len(bar.values)) if len(bar.values) == bar.n_runs else f"{len(bar.values)}/{bar.n_runs}"
        bottom, top = _y_domain(bars, bars.panels[bar.panel], bar.panel)
        ends = (max(bar.low, bottom), min(bar.high, top)) if isfinite(bar.low) else (nan, nan)
        yield (bar.panel, bar.x, bar.colour, bar.mean, *ends, nan, "", n)
        for seed, value in bar.values:
            if isfinite(value):
                yield (bar.panel, bar.x, bar.colour, nan, nan, nan, value, str(seed), n)


def _y_domain(bars: Bars, panel: Panel, panel_index: int) -> tuple[float, float]:
    """The y domain: 0, every run, and intervals up to a limit that keeps the runs readable."""
    panel_bars = [bar for bar in bars.bars if bar.panel == panel_index]
    values = [value for bar in panel_bars for _, value in bar.values if isfinite(value)] or [0.0, 1.0]
    ends = [end for bar in panel_bars for end in (bar.low, bar.high) if isfinite(end)]
    low, high = min(0.0, *values), max(0.0, *values)
    limit = 1.0 if panel.is_fraction else high + 0.6 * (high - low)
    return low, min(limit, max([high, *ends])) or 1.0


def _draw_panel(base: alt.Chart, bars: Bars, panel_index: int, panel: Panel) -> alt.LayerChart | alt.FacetChart:
    import altair as alt

    from seedbed.charts.encodings import category_scale, tick_format

    categories = list(dict.fromkeys(bar.x for bar in bars.bars))
    colours = list(dict.fromkeys(bar.colour for bar in bars.bars))
    width = max(180, min(620, 46 * len(categories) * len(colours)))
    angle = 0 if 7 * sum(map(len, categories)) < width else -40
    position: dict[str, Any] = {"x": alt.X("x:N", sort=categories, title=bars.x_title, axis=alt.Axis(labelAngle=angle))}
    colour: Any = alt.value(CATEGORY_COLOURS[0])
    if bars.colour_title:
        position["xOffset"] = alt.XOffset("colour:N", sort=colours)
        colour = alt.Color(
            "colour:N",
            sort=colours,
            scale=category_scale(colours, CATEGORY_COLOURS),
            title=isolate_direction(bars.colour_title),
        )
    panel_base = base.transform_filter(f"datum.panel == {panel_index}").encode(**position)
    domain = _y_domain(bars, panel, panel_index)
    scale = alt.Scale(type="log") if panel.scale == "log" else alt.Scale(domain=list(domain), nice=True)
    axis = alt.Axis(tickCount=5, format=tick_format(domain))
    y = alt.Y("mean:Q", title=isolate_direction(panel.y_title), scale=scale, axis=axis)
    means = _mean_marks(panel_base, panel).encode(y=y, color=colour)
    layered = alt.layer(means, *_interval_and_seed_marks(panel_base))
    return layered.properties(width=width, height=220, title=isolate_direction(panel.title))


def _mean_marks(base: alt.Chart, panel: Panel) -> alt.Chart:
    import altair as alt

    tooltip = [
        alt.Tooltip("x:N", title="category"),
        alt.Tooltip("mean:Q", format=".4~g"),
        alt.Tooltip("n:N", title="n"),
    ]
    means = base.transform_filter("isValid(datum.mean)").encode(tooltip=tooltip)
    return means.mark_point(size=90, filled=True) if panel.scale == "log" else means.mark_bar(opacity=0.8)


def _interval_and_seed_marks(base: alt.Chart) -> list[alt.Chart]:
    """The interval of each mean, and a dot for each run."""
    import altair as alt

    lines = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.6)
    dots = base.mark_point(size=22, filled=True, opacity=0.9, color="#8A8A8A", stroke="white", strokeWidth=0.5)
    tooltip = [alt.Tooltip("seed:N"), alt.Tooltip("value:Q", format=".4~g")]
    return [lines.encode(y="low:Q", y2="high:Q"), dots.encode(y="value:Q", tooltip=tooltip)]
