"""Axes, scales and legends of lines: domains that equal panels share, ticks where a reader expects them."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, isfinite, log
from typing import Any

import altair as alt

from seedbed.charts.labels import isolated, spelled
from seedbed.charts.lines import Lines, Panel
from seedbed.charts.theme import CATEGORIES, DASHES, SHAPES

# ---- axes ----


def x_of(lines: Lines, place: int) -> alt.X:
    last_row = place >= len(lines.panels) - lines.columns
    title = lines.x.title if last_row else None
    if lines.x.scale is None:
        words = list(dict.fromkeys(spelled(x) for line in lines.lines for x in line.x))
        return alt.X("x:N", title=title, sort=words, axis=alt.Axis(labelAngle=0))
    numbers = [float(x) for line in lines.lines for x in line.x if isfinite(x) and (lines.x.scale == "linear" or x > 0)]
    different = sorted(set(numbers))
    domain = domain_of(numbers, lines.x.scale)
    few = lines.marks == "point" and len(different) <= 10
    axis = axis_of(domain, lines.x.scale, different if few else None, grid=False)
    return alt.X(
        "x:Q", title=title, axis=axis, scale=scale_of(lines.x.scale, domain, nice=False, room=12 if few else 6)
    )


def y_of(lines: Lines, panel: Panel, place: int, field: str = "y:Q") -> alt.Y:
    first = not place % lines.columns or lines.panels[place - 1].y_title != panel.y_title
    domain = y_domain(lines, panel)
    title = isolated(panel.y_title) if first else None
    return alt.Y(field, title=title, axis=axis_of(domain, panel.scale), scale=scale_of(panel.scale, domain, nice=True))


def y_domain(lines: Lines, panel: Panel) -> tuple[float, float]:
    """What a panel's y axis shows, the same for all panels of its metric."""
    return (0.0, 1.0) if panel.share else domain_of(_heights(lines, panel), panel.scale)


def _heights(lines: Lines, panel: Panel) -> list[float]:
    """Every y, and every end of a spread, of the panels with the same y axis."""
    alike = {place for place, other in enumerate(lines.panels) if other.y_title == panel.y_title}
    shown = [line for line in lines.lines if line.panel in alike]
    means = [float(y) for line in shown for y in line.y if isfinite(y)]
    ends = [
        float(end) for line in shown if line.n > 1 for part in (line.low, line.high) for end in part if isfinite(end)
    ]
    if panel.scale == "linear":
        return means + [max(end, 0.0) if panel.positive else end for end in ends]
    least = min((y for y in means if y > 0), default=1.0) / 2  # a std larger than its mean ends below the axis
    return [max(y, least) for y in means + ends if y > 0]


def axis_of(
    domain: tuple[float, float], scale: str | None, values: Sequence[float] | None = None, grid: bool = True
) -> alt.Axis:
    """Ticks at these values, or where a reader expects them."""
    if values is None and scale in ("log", "log2"):
        values = log_ticks(*domain, 2 if scale == "log2" else 10)
    form = "~e" if scale == "log" and domain[0] < 1e-2 else number_format(domain)
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
    return inside if len(inside) >= 3 else _even_ticks(low, high)


def _even_ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 4
    size = 10.0 ** floor(log(rough, 10))
    step = size * next((factor for factor in (1, 2, 5) if factor * size >= rough), 10)
    return [round(step * place, 12) for place in range(ceil(low / step), floor(high / step) + 1)]


def number_format(domain: tuple[float, float]) -> str:
    return "~s" if domain[1] >= 10_000 else ".12~g"


def domain_of(numbers: Sequence[float], scale: str | None) -> tuple[float, float]:
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


def scale_of(kind: str | None, domain: tuple[float, float], nice: bool, room: int = 8) -> alt.Scale:
    if kind in ("log", "log2"):
        return alt.Scale(type="log", base=2 if kind == "log2" else 10, domain=list(domain), nice=False, padding=room)
    return alt.Scale(domain=list(domain), nice=nice, zero=False, padding=0 if nice else room)


# ---- colours, dashes, shapes ----


def colour_of(lines: Lines, legend: bool) -> Any:
    """Colour by number or by word; one colour where there is nothing to tell apart."""
    words = _words_of(lines)
    if lines.colour and lines.colour.scale:
        return alt.Color("colour:Q", legend=_bar(lines) if legend else None, scale=_colour_scale(lines))
    if lines.colour and len(words) > 1:
        return alt.Color("colour:N", legend=_key(lines, legend), sort=words, scale=signs(words, CATEGORIES))
    return alt.value(CATEGORIES[0])


def dash_of(lines: Lines, legend: bool) -> Any:
    """Dashes for the second dial; where there is none, words have dashes too, for readers without colour."""
    words, dashes = _words_of(lines), list(dict.fromkeys(line.dash for line in lines.lines if line.dash))
    if len(dashes) > 1:
        return _dashed("dash:N", dashes, alt.Legend(title=isolated(lines.dash or "")) if legend else None)
    if lines.colour and not lines.colour.scale and len(words) > 1:
        return _dashed("colour:N", words, _key(lines, legend and lines.marks == "line"))
    return alt.Undefined


def shape_of(lines: Lines, legend: bool) -> Any:
    words = _words_of(lines)
    if lines.colour and not lines.colour.scale and len(words) > 1:
        return alt.Shape("colour:N", legend=_key(lines, legend), sort=words, scale=signs(words, SHAPES, shift=True))
    return alt.Undefined


def _key(lines: Lines, legend: bool) -> alt.Legend | None:
    return alt.Legend(title=isolated(lines.colour.title)) if legend and lines.colour else None


def signs(words: Sequence[str], signs: Sequence[Any], shift: bool = False) -> alt.Scale:
    """One sign a word; where words are more than signs, a shifted second row keeps pairs of signs different."""
    n = len(signs)
    return alt.Scale(domain=list(words), range=[signs[(i + (i // n if shift else 0)) % n] for i in range(len(words))])


def _words_of(lines: Lines) -> list[str]:
    return list(dict.fromkeys(spelled(line.colour) for line in lines.lines))


def _dashed(field: str, words: Sequence[str], legend: alt.Legend | None) -> alt.StrokeDash:
    return alt.StrokeDash(
        field, sort=list(words), scale=signs(words, list(map(list, DASHES)), shift=True), legend=legend
    )


def _bar(lines: Lines) -> alt.Legend:
    """A colour bar with the values that occur, while they can be read."""
    assert lines.colour  # for mypy: only a chart with a colour has a bar
    values = sorted({float(line.colour) for line in lines.lines})
    shown = values if len(values) <= 10 else alt.Undefined
    return alt.Legend(
        title=isolated(lines.colour.title),
        values=shown,
        format=number_format((0, max(values, default=0))),
        type="gradient",
    )


def _colour_scale(lines: Lines) -> alt.Scale:
    assert lines.colour  # for mypy
    domain = domain_of([float(line.colour) for line in lines.lines], lines.colour.scale)
    if lines.colour.scale == "linear":
        return alt.Scale(domain=list(domain))
    return alt.Scale(type="log", base=2 if lines.colour.scale == "log2" else 10, domain=list(domain))
