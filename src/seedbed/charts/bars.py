"""One statistic per run as bars: the mean of every category with its 95 % interval, and every seed as a dot.

Suits compute time, memory, and any metric per category. A log scale has no zero to start a bar from, so means are dots.
Categories with long names are rows, so that every name can be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan, nan
from typing import TYPE_CHECKING, Any, Final, Literal

from seedbed.charts.axis_labels import isolate_direction, setting_label, setting_words, value_label
from seedbed.charts.panel_layout import (
    Panel,
    PanelSpec,
    build_panel,
    channel_value,
    check_setting_names,
    config_label,
    panel_specs,
    status_notes,
)
from seedbed.charts.sweep import default_title, truncate_at_alphas
from seedbed.charts.theme import CATEGORY_COLOURS
from seedbed.format import format_part, format_range
from seedbed.specs import FigureSpec
from seedbed.stats.groups import filter_runs
from seedbed.stats.run_statistics import Statistic, compute_statistic, find_statistic, summarise_values
from seedbed.stats.summary import RunCurves, group_by_config, select_for_mean

if TYPE_CHECKING:
    import altair as alt

DATASET_COLUMNS: Final[dict[str, Any]] = {
    "panel": "number", "x": "string", "colour": "string", "mean": "number", "low": "number", "high": "number",
    "value": "number", "seed": "string", "n": "string", "beyond": "number",
}  # fmt: skip
MAX_LINE_CHARS: Final = 40  # of a category's name
BASE_LABEL: Final = "base"
MAX_INTERVAL_SHARE: Final = 1.0  # of the range of the runs: what an interval may add to an axis before it is cut
BAR_PIXELS: Final = {"x": 46, "y": 24}  # across a bar, upright and lying
PANEL_PIXELS: Final = {"x": 220, "y": 330}  # along the values


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
    figure = figure.model_copy(update={"metrics": statistic.distinct_metrics(figure.metrics)})
    specs, n_columns = panel_specs(figure, selected, [(metric,) for metric in figure.metrics])
    bars = [bar for index, spec in enumerate(specs) for bar in _bars_in_panel(figure, index, spec, selected)]
    each = "for each config" if figure.x == "step" else f"by {setting_words(figure.x)}"
    return Bars(
        title=figure.title or default_title(figure, statistic, each).replace(", by ", " and "),
        panels=tuple(build_panel(figure, spec, selected, statistic) for spec in specs),
        n_columns=n_columns,
        bars=tuple(bars),
        x_title="" if figure.x == "step" else setting_label(figure.x),
        colour_title=setting_label(figure.colour) if figure.colour else None,
        notes=_chart_notes(figure, statistic, selected, bars),
    )


def _bars_in_panel(figure: FigureSpec, panel_index: int, spec: PanelSpec, runs: Sequence[RunCurves]) -> Iterator[Bar]:
    """One bar per config; configs that share a category are named by what varies."""
    configs = group_by_config(spec.select(figure, runs))
    names = [_category_names(figure, seed_runs[0], configs) for seed_runs in configs]
    for seed_runs, name in zip(configs, names, strict=True):
        unique_name = name if names.count(name) == 1 else (_short_label(seed_runs[0], configs), name[1])
        included, so_far = select_for_mean(seed_runs)
        computed = [(run.run.seed, compute_statistic(run, spec.metrics[0], figure.value, so_far)) for run in included]
        values = tuple((seed, value) for seed, value in computed if not isnan(value))
        interval = summarise_values(figure.value, dict(values))
        ends = (interval.low, interval.high) if isfinite(interval.low) else (nan, nan)
        yield Bar(panel_index, *unique_name, interval.mean, *ends, values, len(seed_runs))


def _category_names(figure: FigureSpec, run: RunCurves, configs: Sequence[Sequence[RunCurves]]) -> tuple[str, str]:
    colour = value_label(channel_value(run, figure.colour)) if figure.colour else ""
    return _short_label(run, configs) if figure.x == "step" else value_label(channel_value(run, figure.x)), colour


def _short_label(run: RunCurves, configs: Sequence[Sequence[RunCurves]]) -> str:
    """A config's varied settings; of more than two, those unlike the first config's, which is the base."""
    base = configs[0][0].config
    changed = {name: value for name, value in run.config.items() if value != base.get(name)}
    if len(run.config) <= 2:
        return config_label(run) or value_label(run.run.settings.model.kind)
    return config_label(replace(run, config=changed)) if changed else BASE_LABEL


def _chart_notes(
    figure: FigureSpec, statistic: Statistic, runs: Sequence[RunCurves], bars: Sequence[Bar]
) -> tuple[str, ...]:
    counts = {len(bar.values) for bar in bars if bar.values}
    n = f"n = {format_range(counts)} runs per bar." if counts else ""
    is_time = statistic.threshold is not None
    of_what = "the median (sign test)" if is_time else "the mean (Student's t, for values that are roughly normal)"
    intervals = f"Lines are 95 % intervals of {of_what}, cut with an arrow where they are long; dots are runs."
    if not any(isfinite(bar.low) for bar in bars):
        none = "Fewer than six runs have no interval." if is_time else "A single run has no interval."
        intervals = none if counts else ""
    times = [value for bar in bars for _, value in bar.values] if is_time else []
    never = f"{times.count(inf)} of {len(times)} runs never get there." if inf in times else ""
    chart_note = statistic.chart_note(runs, figure.metrics)
    names_base = BASE_LABEL in (bar.x for bar in bars)
    base = f"{BASE_LABEL}: {config_label(runs[0])}; the others are named by what they change." if names_base else ""
    return tuple(note for note in (base, n, intervals, never, chart_note, *status_notes(runs, of_means=True)) if note)


def draw_bars(bars: Bars) -> alt.ConcatChart:
    """The bars as Altair panels; a second setting colours bars side by side within a category."""
    import altair as alt

    from seedbed.charts.vega_lite import CHARACTER_PIXELS, csv_dataset, legend_pixels, panel_grid

    data, block = csv_dataset(DATASET_COLUMNS, _dataset_rows(bars))
    categories, colours = (list(dict.fromkeys(one)) for one in zip(*((b.x, b.colour) for b in bars.bars), strict=True))
    widest = CHARACTER_PIXELS * min(MAX_LINE_CHARS, max(map(len, categories)))
    across: Literal["x", "y"] = "x" if widest < BAR_PIXELS["x"] * len(colours) and len(categories) <= 14 else "y"
    panels = [_draw_panel(alt.Chart(data), bars, index, across) for index in range(len(bars.panels))]
    side = legend_pixels(bars.colour_title, colours) if bars.colour_title else 0
    return panel_grid(
        panels, bars.n_columns if across == "x" else 1, bars.title, block, side_pixels=side,
        axis_pixels=80 if across == "x" else widest + 60, keep_height=across == "y", spacing=24,
    )  # fmt: skip


def _dataset_rows(bars: Bars) -> Iterator[tuple[Any, ...]]:
    for bar in bars.bars:
        n = format_part(len(bar.values), bar.n_runs)
        bottom, top = _value_domain(bars, bar.panel)
        ends = (max(bar.low, bottom), min(bar.high, top)) if isfinite(bar.low) else (nan, nan)
        is_cut = bar.high > top and not bars.panels[bar.panel].is_fraction
        yield (bar.panel, bar.x, bar.colour, bar.mean, *ends, nan, "", n, top if is_cut else nan)
        for seed, value in bar.values:
            if isfinite(value):
                yield (bar.panel, bar.x, bar.colour, nan, nan, nan, value, str(seed), n, nan)


def _value_domain(bars: Bars, panel_index: int) -> tuple[float, float]:
    """The domain of the values: 0, every run, and intervals up to a limit that keeps the runs readable."""
    panel_bars = [bar for bar in bars.bars if bar.panel == panel_index]
    values = [value for bar in panel_bars for _, value in bar.values if isfinite(value)] or [0.0, 1.0]
    ends = [end for bar in panel_bars for end in (bar.low, bar.high) if isfinite(end)]
    low, high = min(0.0, *values), max(0.0, *values)
    limit = 1.0 if bars.panels[panel_index].is_fraction else high + MAX_INTERVAL_SHARE * (high - low)
    return low, min(limit, max([high, *ends])) or 1.0


def _draw_panel(base: alt.Chart, bars: Bars, panel_index: int, across: Literal["x", "y"]) -> Any:
    """One panel; categories stand along `across`, and their values along the other axis."""
    import altair as alt

    from seedbed.charts.vega_lite import category_scale, number_tooltip, tick_format, wrap_words

    along: Literal["x", "y"] = "y" if across == "x" else "x"
    panel, positions, values = bars.panels[panel_index], {"x": alt.X, "y": alt.Y}, {"x": alt.X2, "y": alt.Y2}
    categories = list(dict.fromkeys(bar.x for bar in bars.bars if bar.panel == panel_index))
    colours = list(dict.fromkeys(bar.colour for bar in bars.bars))
    broken = {label: wrap_words(label, MAX_LINE_CHARS) for label in categories}
    n_lines = max(map(len, broken.values()))
    axis: Any = alt.Axis(
        labelAngle=0, labelLimit=0, labelOverlap=False, labelExpr=f"({json.dumps(broken)})[datum.label]"
    )
    position: dict[str, Any] = {
        across: positions[across]("x:N", sort=categories, title=bars.x_title or None, axis=axis)
    }
    colour: Any = alt.value(CATEGORY_COLOURS[0])
    if bars.colour_title:
        offset = alt.XOffset if across == "x" else alt.YOffset
        position[f"{across}Offset"] = offset("colour:N", sort=colours)
        scale = category_scale(colours, CATEGORY_COLOURS)
        colour = alt.Color("colour:N", sort=colours, scale=scale, title=isolate_direction(bars.colour_title))
    panel_base = base.transform_filter(f"datum.panel == {panel_index}").encode(**position)
    domain = _value_domain(bars, panel_index)
    scale = alt.Scale(type="log") if panel.scale == "log" else alt.Scale(domain=list(domain), nice=True)
    value_axis = alt.Axis(tickCount=5, format=tick_format(domain))
    value: Any = positions[along]("mean:Q", title=isolate_direction(panel.y_title), scale=scale, axis=value_axis)
    tooltip = [alt.Tooltip("x:N", title="category"), number_tooltip("mean"), alt.Tooltip("n:N", title="n")]
    means = panel_base.transform_filter("isValid(datum.mean)").encode(tooltip=tooltip, color=colour, **{along: value})
    dots = panel_base.mark_point(size=28, filled=True, opacity=1, color="white", stroke="#444444", strokeWidth=1)
    intervals = panel_base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.6)
    cut = panel_base.transform_filter("isValid(datum.beyond)").mark_point(
        shape="triangle-up" if across == "x" else "triangle-right", size=50, filled=True, opacity=1
    )
    layers = [
        means.mark_point(size=90, filled=True) if panel.scale == "log" else means.mark_bar(opacity=0.8),
        intervals.encode(**{along: positions[along]("low:Q"), f"{along}2": values[along]("high:Q")}),
        cut.encode(**{along: positions[along]("beyond:Q")}),
        dots.encode(tooltip=[alt.Tooltip("seed:N"), number_tooltip("value")], **{along: positions[along]("value:Q")}),
    ]
    layers += _chance_marks(panel, domain, across)
    size = max(
        180 if across == "x" else 60,
        max(BAR_PIXELS[across], 13 * n_lines + 4 if across == "y" else 0) * len(categories) * len(colours),
    )
    sizes = (
        {"width": size, "height": PANEL_PIXELS["x"]} if across == "x" else {"width": PANEL_PIXELS["y"], "height": size}
    )
    return alt.layer(*layers).properties(title=isolate_direction(panel.title), **sizes)


def _chance_marks(panel: Panel, domain: tuple[float, float], across: Literal["x", "y"]) -> list[Any]:
    """A line at what guessing achieves, and its name."""
    import altair as alt

    from seedbed.charts.vega_lite import inline_chart

    if panel.chance is None or not domain[0] <= panel.chance <= domain[1]:
        return []
    chart = inline_chart([{"chance": panel.chance, "text": "chance"}])
    upright = across == "x"
    style: Any = {"align": "right", "dx": -2} if upright else {"align": "left", "dx": 3}
    text = chart.mark_text(dy=-6, fontSize=10, **style)
    at: Any = {"y": alt.Y("chance:Q")} if upright else {"x": alt.X("chance:Q")}
    end: Any = {"x": alt.value("width")} if upright else {"y": alt.value(0)}
    return [chart.mark_rule(strokeDash=[2, 3]).encode(**at), text.encode(text="text:N", **at, **end)]
