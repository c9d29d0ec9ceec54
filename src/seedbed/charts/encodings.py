"""Axes, scales and legends of lines: domains that equal panels share, ticks where a reader expects them."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, isfinite, log
from typing import Any

import altair as alt

from seedbed.charts.labels import isolate_direction, value_label
from seedbed.charts.line_data import LineChart, Panel
from seedbed.charts.theme import CATEGORY_COLOURS, DASH_PATTERNS, MARKER_SHAPES

# ---- axes ----


def x_encoding(lines: LineChart, panel_index: int) -> alt.X:
    last_row = panel_index >= len(lines.panels) - lines.n_columns
    title = lines.x.title if last_row else None
    if lines.x.scale is None:
        words = list(dict.fromkeys(value_label(x) for line in lines.lines for x in line.x))
        return alt.X("x:N", title=title, sort=words, axis=alt.Axis(labelAngle=0))
    numbers = [float(x) for line in lines.lines for x in line.x if isfinite(x) and (lines.x.scale == "linear" or x > 0)]
    different = sorted(set(numbers))
    domain = compute_domain(numbers, lines.x.scale)
    few = lines.mark_type == "point" and len(different) <= 10
    axis = build_axis(domain, lines.x.scale, different if few else None, grid=False)
    return alt.X(
        "x:Q", title=title, axis=axis, scale=build_scale(lines.x.scale, domain, nice=False, padding=12 if few else 6)
    )


def y_encoding(lines: LineChart, panel: Panel, panel_index: int, field: str = "y:Q") -> alt.Y:
    first = not panel_index % lines.n_columns or lines.panels[panel_index - 1].y_title != panel.y_title
    domain = y_domain(lines, panel)
    title = isolate_direction(panel.y_title) if first else None
    return alt.Y(
        field, title=title, axis=build_axis(domain, panel.scale), scale=build_scale(panel.scale, domain, nice=True)
    )


def y_domain(lines: LineChart, panel: Panel) -> tuple[float, float]:
    """What a panel's y axis shows, the same for all panels of its metric."""
    return (0.0, 1.0) if panel.is_fraction else compute_domain(_y_values(lines, panel), panel.scale)


def _y_values(lines: LineChart, panel: Panel) -> list[float]:
    """Every y, and every end of a spread, of the panels with the same y axis."""
    alike = {place for place, other in enumerate(lines.panels) if other.y_title == panel.y_title}
    shown = [line for line in lines.lines if line.panel in alike]
    means = [float(y) for line in shown for y in line.y if isfinite(y)]
    ends = [
        float(end) for line in shown if line.n > 1 for part in (line.low, line.high) for end in part if isfinite(end)
    ]
    if panel.scale == "linear":
        return means + [max(end, 0.0) if panel.non_negative else end for end in ends]
    least = min((y for y in means if y > 0), default=1.0) / 2  # a std larger than its mean ends below the axis
    return [max(y, least) for y in means + ends if y > 0]


def build_axis(
    domain: tuple[float, float], scale: str | None, values: Sequence[float] | None = None, grid: bool = True
) -> alt.Axis:
    """Ticks at these values, or where a reader expects them."""
    if values is None and scale in ("log", "log2"):
        values = log_ticks(*domain, 2 if scale == "log2" else 10)
    form = "~e" if scale == "log" and domain[0] < 1e-2 else tick_format(domain)
    return alt.Axis(format=form, values=values or alt.Undefined, tickCount=5, grid=grid)


def log_ticks(low: float, high: float, base: int) -> list[float]:
    """Powers of the base; over less than three decades 2 and 5 as well; over less than one, equal steps.

    >>> log_ticks(0.0005, 3.0, 10), log_ticks(8, 512, 2), log_ticks(1.2, 2.9, 10)
    ([0.001, 0.01, 0.1, 1.0], [8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0], [1.5, 2.0, 2.5])
    """
    powers = range(floor(log(low, base)), ceil(log(high, base)) + 1)
    factors = (1, 2, 5) if base == 10 and high < 1000 * low else (1,)
    ticks = [factor * float(base) ** power for power in powers[:: max(1, len(powers) // 8)] for factor in factors]
    inside = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
    return inside if len(inside) >= 3 else _linear_ticks(low, high)


def _linear_ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 4
    size = 10.0 ** floor(log(rough, 10))
    step = size * next((factor for factor in (1, 2, 5) if factor * size >= rough), 10)
    return [round(step * place, 12) for place in range(ceil(low / step), floor(high / step) + 1)]


def tick_format(domain: tuple[float, float]) -> str:
    return "~s" if domain[1] >= 10_000 else ".12~g"


def compute_domain(numbers: Sequence[float], scale: str | None) -> tuple[float, float]:
    """From the smallest to the largest; a single value gets room on both sides."""
    if not numbers:
        return (1.0, 10.0) if scale in ("log", "log2") else (0.0, 1.0)
    low, high = min(numbers), max(numbers)
    if low < high:
        return low, high
    if scale in ("log", "log2"):
        return low / 2, high * 2
    room = 0.1 * (abs(low) or 1)
    return low - room, high + room


def build_scale(kind: str | None, domain: tuple[float, float], nice: bool, padding: int = 8) -> alt.Scale:
    if kind in ("log", "log2"):
        return alt.Scale(type="log", base=2 if kind == "log2" else 10, domain=list(domain), nice=False, padding=padding)
    return alt.Scale(domain=list(domain), nice=nice, zero=False, padding=0 if nice else padding)


# ---- colours, dashes, shapes ----


def colour_encoding(lines: LineChart, legend: bool) -> Any:
    """Colour by number or by word; one colour where there is nothing to tell apart."""
    words = _colour_categories(lines)
    if lines.colour and lines.colour.scale:
        return alt.Color("colour:Q", legend=_gradient_legend(lines) if legend else None, scale=_colour_scale(lines))
    if lines.colour and len(words) > 1:
        return alt.Color(
            "colour:N", legend=_colour_legend(lines, legend), sort=words, scale=category_scale(words, CATEGORY_COLOURS)
        )
    return alt.value(CATEGORY_COLOURS[0])


def dash_encoding(lines: LineChart, legend: bool) -> Any:
    """Dashes for the second dial; where there is none, words have dashes too, for readers without colour."""
    words, dashes = _colour_categories(lines), list(dict.fromkeys(line.dash for line in lines.lines if line.dash))
    if len(dashes) > 1:
        return _stroke_dash(
            "dash:N", dashes, alt.Legend(title=isolate_direction(lines.dash_title or "")) if legend else None
        )
    if lines.colour and not lines.colour.scale and len(words) > 1:
        return _stroke_dash("colour:N", words, _colour_legend(lines, legend and lines.mark_type == "line"))
    return alt.Undefined


def shape_encoding(lines: LineChart, legend: bool) -> Any:
    words = _colour_categories(lines)
    if lines.colour and not lines.colour.scale and len(words) > 1:
        return alt.Shape(
            "colour:N",
            legend=_colour_legend(lines, legend),
            sort=words,
            scale=category_scale(words, MARKER_SHAPES, shift=True),
        )
    return alt.Undefined


def _colour_legend(lines: LineChart, legend: bool) -> alt.Legend | None:
    return alt.Legend(title=isolate_direction(lines.colour.title)) if legend and lines.colour else None


def category_scale(categories: Sequence[str], symbols: Sequence[Any], shift: bool = False) -> alt.Scale:
    """One sign a word; where words are more than signs, a shifted second row keeps pairs of signs different."""
    n = len(symbols)
    return alt.Scale(
        domain=list(categories), range=[symbols[(i + (i // n if shift else 0)) % n] for i in range(len(categories))]
    )


def _colour_categories(lines: LineChart) -> list[str]:
    return list(dict.fromkeys(value_label(line.colour) for line in lines.lines))


def _stroke_dash(field: str, categories: Sequence[str], legend: alt.Legend | None) -> alt.StrokeDash:
    return alt.StrokeDash(
        field,
        sort=list(categories),
        scale=category_scale(categories, list(map(list, DASH_PATTERNS)), shift=True),
        legend=legend,
    )


def _gradient_legend(lines: LineChart) -> alt.Legend:
    """A colour bar with the values that occur, while they can be read."""
    assert lines.colour  # for mypy: only a chart with a colour has a bar
    values = sorted({float(line.colour) for line in lines.lines})
    shown = values if len(values) <= 10 else alt.Undefined
    return alt.Legend(
        title=isolate_direction(lines.colour.title),
        values=shown,
        format=tick_format((0, max(values, default=0))),
        type="gradient",
    )


def _colour_scale(lines: LineChart) -> alt.Scale:
    assert lines.colour  # for mypy
    domain = compute_domain([float(line.colour) for line in lines.lines], lines.colour.scale)
    if lines.colour.scale == "linear":
        return alt.Scale(domain=list(domain))
    return alt.Scale(type="log", base=2 if lines.colour.scale == "log2" else 10, domain=list(domain))
