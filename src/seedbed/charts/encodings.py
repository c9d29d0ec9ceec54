"""Axes, scales and legends of line charts: panels of one metric share a domain, and ticks are round numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, isfinite, log
from typing import Any

import altair as alt

from seedbed.charts.axis_labels import isolate_direction, value_label
from seedbed.charts.line_data import LineChart, Panel
from seedbed.charts.theme import CATEGORY_COLOURS, DASH_PATTERNS, MARKER_SHAPES

# ---- axes ----


def x_encoding(chart: LineChart, panel_index: int) -> alt.X:
    last_row = panel_index >= len(chart.panels) - chart.n_columns
    title = chart.x.title if last_row else None
    if chart.x.scale is None:
        categories = list(dict.fromkeys(value_label(x) for line in chart.lines for x in line.x))
        return alt.X("x:N", title=title, sort=categories, axis=alt.Axis(labelAngle=0))
    numbers = [float(x) for line in chart.lines for x in line.x if isfinite(x) and (chart.x.scale == "linear" or x > 0)]
    distinct = sorted(set(numbers))
    domain = compute_domain(numbers, chart.x.scale)
    tick_all = chart.mark_type == "point" and len(distinct) <= 10
    axis = build_axis(domain, chart.x.scale, distinct if tick_all else None, grid=False)
    return alt.X(
        "x:Q",
        title=title,
        axis=axis,
        scale=build_scale(chart.x.scale, domain, nice=False, padding=12 if tick_all else 6),
    )


def y_encoding(chart: LineChart, panel: Panel, panel_index: int, field: str = "y:Q") -> alt.Y:
    show_title = not panel_index % chart.n_columns or chart.panels[panel_index - 1].y_title != panel.y_title
    domain = y_domain(chart, panel)
    title = isolate_direction(panel.y_title) if show_title else None
    return alt.Y(
        field, title=title, axis=build_axis(domain, panel.scale), scale=build_scale(panel.scale, domain, nice=True)
    )


def y_domain(chart: LineChart, panel: Panel) -> tuple[float, float]:
    """The domain of a panel's y axis, shared by all panels of its metric."""
    return (0.0, 1.0) if panel.is_fraction else compute_domain(_y_values(chart, panel), panel.scale)


def _y_values(chart: LineChart, panel: Panel) -> list[float]:
    """Every mean and every end of a band in the panels that share this y axis."""
    sharing = {index for index, other in enumerate(chart.panels) if other.y_title == panel.y_title}
    shown = [line for line in chart.lines if line.panel in sharing]
    means = [float(y) for line in shown for y in line.y if isfinite(y)]
    ends = [
        float(end) for line in shown if line.n > 1 for bound in (line.low, line.high) for end in bound if isfinite(end)
    ]
    if panel.scale == "linear":
        return means + [max(end, 0.0) if panel.non_negative else end for end in ends]
    # A std larger than its mean would end at or below 0, where a log axis has nothing.
    floor_value = min((y for y in means if y > 0), default=1.0) / 2
    return [max(y, floor_value) for y in means + ends if y > 0]


def build_axis(
    domain: tuple[float, float], scale: str | None, values: Sequence[float] | None = None, grid: bool = True
) -> alt.Axis:
    """An axis with ticks at these values, or at round numbers."""
    if values is None and scale in ("log", "log2"):
        values = log_ticks(*domain, 2 if scale == "log2" else 10)
    number_format = "~e" if scale == "log" and domain[0] < 1e-2 else tick_format(domain)
    return alt.Axis(format=number_format, values=values or alt.Undefined, tickCount=5, grid=grid)


def log_ticks(low: float, high: float, base: int) -> list[float]:
    """Powers of the base; 2 and 5 as well over less than three decades; linear ticks if fewer than three remain.

    >>> log_ticks(0.0005, 3.0, 10), log_ticks(8, 512, 2), log_ticks(1.2, 2.9, 10)
    ([0.001, 0.01, 0.1, 1.0], [8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0], [1.5, 2.0, 2.5])
    """
    powers = range(floor(log(low, base)), ceil(log(high, base)) + 1)
    factors = (1, 2, 5) if base == 10 and high < 1000 * low else (1,)
    ticks = [factor * float(base) ** power for power in powers[:: max(1, len(powers) // 8)] for factor in factors]
    visible = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
    return visible if len(visible) >= 3 else _linear_ticks(low, high)


def _linear_ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 4
    size = 10.0 ** floor(log(rough, 10))
    step = size * next((factor for factor in (1, 2, 5) if factor * size >= rough), 10)
    return [round(step * index, 12) for index in range(ceil(low / step), floor(high / step) + 1)]


def tick_format(domain: tuple[float, float]) -> str:
    return "~s" if domain[1] >= 10_000 else ".12~g"


def compute_domain(numbers: Sequence[float], scale: str | None) -> tuple[float, float]:
    """From the smallest to the largest; a single value gets a margin on both sides."""
    if not numbers:
        return (1.0, 10.0) if scale in ("log", "log2") else (0.0, 1.0)
    low, high = min(numbers), max(numbers)
    if low < high:
        return low, high
    if scale in ("log", "log2"):
        return low / 2, high * 2
    margin = 0.1 * (abs(low) or 1)
    return low - margin, high + margin


def build_scale(kind: str | None, domain: tuple[float, float], nice: bool, padding: int = 8) -> alt.Scale:
    if kind in ("log", "log2"):
        return alt.Scale(type="log", base=2 if kind == "log2" else 10, domain=list(domain), nice=False, padding=padding)
    return alt.Scale(domain=list(domain), nice=nice, zero=False, padding=0 if nice else padding)


# ---- colours, dashes, shapes ----


def colour_encoding(chart: LineChart, legend: bool) -> Any:
    """A colour gradient for numbers, a palette for categories; one fixed colour if there is only one."""
    categories = _colour_categories(chart)
    if chart.colour and chart.colour.scale:
        return alt.Color("colour:Q", legend=_gradient_legend(chart) if legend else None, scale=_colour_scale(chart))
    if chart.colour and len(categories) > 1:
        return alt.Color(
            "colour:N",
            legend=_colour_legend(chart, legend),
            sort=categories,
            scale=category_scale(categories, CATEGORY_COLOURS),
        )
    return alt.value(CATEGORY_COLOURS[0])


def dash_encoding(chart: LineChart, legend: bool) -> Any:
    """Dashes for the second setting; without one, colour categories are dashed too, for readers without colour."""
    categories, dashes = _colour_categories(chart), list(dict.fromkeys(line.dash for line in chart.lines if line.dash))
    if len(dashes) > 1:
        return _stroke_dash(
            "dash:N", dashes, alt.Legend(title=isolate_direction(chart.dash_title or "")) if legend else None
        )
    if chart.colour and not chart.colour.scale and len(categories) > 1:
        return _stroke_dash("colour:N", categories, _colour_legend(chart, legend and chart.mark_type == "line"))
    return alt.Undefined


def shape_encoding(chart: LineChart, legend: bool) -> Any:
    categories = _colour_categories(chart)
    if chart.colour and not chart.colour.scale and len(categories) > 1:
        return alt.Shape(
            "colour:N",
            legend=_colour_legend(chart, legend),
            sort=categories,
            scale=category_scale(categories, MARKER_SHAPES, shift=True),
        )
    return alt.Undefined


def _colour_legend(chart: LineChart, legend: bool) -> alt.Legend | None:
    return alt.Legend(title=isolate_direction(chart.colour.title)) if legend and chart.colour else None


def category_scale(categories: Sequence[str], symbols: Sequence[Any], shift: bool = False) -> alt.Scale:
    """One symbol per category; with `shift` each further cycle starts one later, so colour and symbol pair anew."""
    n = len(symbols)
    return alt.Scale(
        domain=list(categories), range=[symbols[(i + (i // n if shift else 0)) % n] for i in range(len(categories))]
    )


def _colour_categories(chart: LineChart) -> list[str]:
    return list(dict.fromkeys(value_label(line.colour) for line in chart.lines))


def _stroke_dash(field: str, categories: Sequence[str], legend: alt.Legend | None) -> alt.StrokeDash:
    return alt.StrokeDash(
        field,
        sort=list(categories),
        scale=category_scale(categories, list(map(list, DASH_PATTERNS)), shift=True),
        legend=legend,
    )


def _gradient_legend(chart: LineChart) -> alt.Legend:
    """A colour bar with ticks at the values that occur, if they are few enough to read."""
    assert chart.colour  # for mypy: only a chart with a colour has a colour bar
    values = sorted({float(line.colour) for line in chart.lines})
    ticks = values if len(values) <= 10 else alt.Undefined
    return alt.Legend(
        title=isolate_direction(chart.colour.title),
        values=ticks,
        format=tick_format((0, max(values, default=0))),
        type="gradient",
    )


def _colour_scale(chart: LineChart) -> alt.Scale:
    assert chart.colour  # for mypy
    domain = compute_domain([float(line.colour) for line in chart.lines], chart.colour.scale)
    if chart.colour.scale == "linear":
        return alt.Scale(domain=list(domain))
    return alt.Scale(type="log", base=2 if chart.colour.scale == "log2" else 10, domain=list(domain))
