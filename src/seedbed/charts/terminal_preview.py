"""Gathered charts as text for a terminal: lines in Braille dots, bars in blocks; no colour is needed to read them.

>>> print(bar_rows([("gpt", 2.0), ("lstm", 1.0)], 8))
gpt   ████████  2
lstm  ████      1
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, log
from typing import Any, Final

import numpy as np

from seedbed.charts.attention_maps import AttentionMaps, preview_attention
from seedbed.charts.bars import Bars
from seedbed.charts.budget import BudgetChart
from seedbed.charts.fourier_plane import FourierPlanes, preview_fourier_planes
from seedbed.charts.line_data import Line, LineChart, Panel
from seedbed.charts.parallel_coordinates import ParallelCoordinates

PANEL_WIDTH_CELLS: Final = 64  # cells of a panel; each holds 2 × 4 dots
PANEL_HEIGHT_CELLS: Final = 12
LINE_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_BRAILLE_DOT_BITS: Final = np.array(
    [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]]
)  # Unicode 15, Braille patterns
_BRAILLE_BASE: Final = 0x2800


def preview_chart(chart: Any) -> str:
    """The chart in plain text; one that has no such form says how to see it."""
    if chart.is_empty:
        return "\n".join([chart.title, "nothing is recorded yet", *chart.notes])
    if isinstance(chart, LineChart):
        body = [_line_panel(chart, place, panel) for place, panel in enumerate(chart.panels)]
    elif isinstance(chart, Bars):
        body = [_bar_panel(chart, place, panel) for place, panel in enumerate(chart.panels)]
    elif isinstance(chart, ParallelCoordinates):
        ranked = sorted(chart.lines, key=lambda track: track.value)
        body = [f"{chart.value_title}\n" + format_bars([(track.name, track.value) for track in ranked], 40)]
    elif isinstance(chart, FourierPlanes):
        body = [preview_fourier_planes(chart)]
    elif isinstance(chart, AttentionMaps):
        return "\n\n".join([preview_attention(chart), *chart.notes])
    else:
        body = [_budget_summary(chart)]
    return "\n\n".join([chart.title, *body, "\n".join(chart.notes)])


# ---- lines ----


def _line_panel(lines: LineChart, panel_index: int, panel: Panel) -> str:
    mine = [line for line in lines.lines if line.panel == panel_index and np.isfinite(line.y).any()]
    head = f"{panel.y_title}{', ' * bool(panel.title)}{panel.title}"
    if not mine:
        return f"{head}\nnothing is recorded"
    xs = [_x_values(lines, line) for line in mine]
    ys = [_apply_scale(line.y, panel.scale) for line in mine]
    box = _PlotArea.from_data(xs, ys)
    canvas = np.zeros((PANEL_HEIGHT_CELLS, PANEL_WIDTH_CELLS), dtype=np.int64)
    for x, y in zip(xs, ys, strict=True):
        _draw_polyline(canvas, box.dot_columns(x), box.dot_rows(y))
    rows = ["".join(chr(_BRAILLE_BASE + cell) for cell in row) for row in canvas]
    rows = _with_end_letters(rows, mine, [box.dot_rows(y) for y in ys])
    return "\n".join([head, *_with_y_axis(rows, panel, box), _x_axis_line(lines, mine, box), *_legend(mine)])


def _x_values(lines: LineChart, line: Line) -> Any:
    if lines.x.scale is None:
        return np.arange(len(line.x), dtype=float)
    return _apply_scale(np.array(line.x, dtype=float), lines.x.scale)


def _apply_scale(values: Any, scale: str | None) -> Any:
    if scale not in ("log", "log2"):
        return np.asarray(values, dtype=float)
    numbers = np.asarray(values, dtype=float)
    return np.log10(np.where(numbers > 0, numbers, np.nan))


class _PlotArea:
    """The rectangle of numbers that a panel shows, and its dots."""

    def __init__(self, left: float, right: float, bottom: float, top: float) -> None:
        self.left, self.right, self.bottom, self.top = left, right, bottom, top

    @classmethod
    def from_data(cls, xs: Sequence[Any], ys: Sequence[Any]) -> _PlotArea:
        x, y = np.concatenate(xs), np.concatenate(ys)
        x, y = x[np.isfinite(x)], y[np.isfinite(y)]
        if not x.size or not y.size:
            return cls(0.0, 1.0, 0.0, 1.0)
        return cls(float(x.min()), float(x.max()), float(y.min()), float(y.max()))

    def dot_columns(self, x: Any) -> Any:
        return (x - self.left) / ((self.right - self.left) or 1.0) * (2 * PANEL_WIDTH_CELLS - 1)

    def dot_rows(self, y: Any) -> Any:
        return (self.top - y) / ((self.top - self.bottom) or 1.0) * (4 * PANEL_HEIGHT_CELLS - 1)


def _draw_polyline(canvas: Any, columns: Any, rows: Any) -> None:
    """Dots along the line from each point to the next; where one is missing there is a gap."""
    good = np.isfinite(columns) & np.isfinite(rows)
    if good.sum() == 1:
        _set_dots(canvas, columns[good], rows[good])
    for i in np.flatnonzero(good[:-1] & good[1:]):
        n = int(max(abs(columns[i + 1] - columns[i]), abs(rows[i + 1] - rows[i]))) + 2
        _set_dots(canvas, np.linspace(columns[i], columns[i + 1], n), np.linspace(rows[i], rows[i + 1], n))


def _set_dots(canvas: Any, columns: Any, rows: Any) -> None:
    x, y = np.rint(columns).astype(int), np.rint(rows).astype(int)
    np.bitwise_or.at(canvas, (y // 4, x // 2), _BRAILLE_DOT_BITS[y % 4, x % 2])


def _with_end_letters(rows: Sequence[str], panel_lines: Sequence[Line], dot_rows: Sequence[Any]) -> list[str]:
    """A letter at the right of each line's end, while there are letters."""
    ends = [""] * PANEL_HEIGHT_CELLS
    if 1 < len(panel_lines) <= len(LINE_LETTERS):
        for mark, dot in zip(LINE_LETTERS, dot_rows, strict=False):
            last = dot[np.isfinite(dot)][-1]
            ends[round(float(last)) // 4] += mark
    return [f"{row} {end}".rstrip(" ") for row, end in zip(rows, ends, strict=True)]


def _with_y_axis(rows: Sequence[str], panel: Panel, area: _PlotArea) -> list[str]:
    power = panel.scale in ("log", "log2")
    top, bottom = (_short_number(10**end if power else end) for end in (area.top, area.bottom))
    width = max(len(top), len(bottom))
    names = [top, *[""] * (PANEL_HEIGHT_CELLS - 2), bottom]
    return [f"{name:>{width}} ┤{row}" for name, row in zip(names, rows, strict=True)]


def _x_axis_line(lines: LineChart, panel_lines: Sequence[Line], area: _PlotArea) -> str:
    if lines.x.scale is None:
        return f"  {lines.x.title}: {', '.join(str(x) for x in panel_lines[0].x)}"
    power = lines.x.scale in ("log", "log2")
    left, right = (_short_number(10**end if power else end) for end in (area.left, area.right))
    return f"  {lines.x.title}: {left} to {right}"


def _legend(panel_lines: Sequence[Line]) -> list[str]:
    if len(panel_lines) == 1:
        return [f"  {panel_lines[0].name}"]
    named = [f"  {mark} {line.name}" for mark, line in zip(LINE_LETTERS, panel_lines, strict=False)]
    return named + [f"  and {len(panel_lines) - len(LINE_LETTERS)} more lines"] * (len(panel_lines) > len(LINE_LETTERS))


# ---- bars and levels ----


def _bar_panel(bars: Bars, panel_index: int, panel: Panel) -> str:
    rows = [(f"{bar.x} {bar.colour}".strip(), bar.mean) for bar in bars.bars if bar.panel == panel_index]
    head = f"{panel.y_title}{', ' * bool(panel.title)}{panel.title}"
    return f"{head}\n{format_bars(rows, 40)}"


def format_bars(rows: Sequence[tuple[str, float]], width: int) -> str:
    """One line a bar, the longest as wide as the panel; what is not finite has none."""
    longest = max((abs(value) for _, value in rows if isfinite(value)), default=1.0) or 1.0
    names = max((len(name) for name, _ in rows), default=0)
    return "\n".join(_format_bar(name.ljust(names), value, longest, width) for name, value in rows)


def _format_bar(name: str, value: float, longest: float, width: int) -> str:
    if not isfinite(value):
        return f"{name}  no finite mean"
    n = round(abs(value) / longest * width * 8)
    block = "█" * (n // 8) + (" ▏▎▍▌▋▊▉"[n % 8] if n % 8 else "")
    return f"{name}  {block:<{width}}  {_short_number(value)}"


def _budget_summary(chart: BudgetChart) -> str:
    lines = []
    for curve in chart.curves:
        best = next(stop for stop in curve.points if stop.is_best)
        group = f"{chart.groups[curve.group]}: " if chart.groups[curve.group] else ""
        lines.append(
            f"{group}C = {curve.budget:.2g}: best {chart.metrics[curve.metric]} {_short_number(best.mean)} "
            f"at {chart.x_title} {_short_number(best.x)}, T = {best.steps:,.0f}"
        )
    return "\n".join(lines)


def _short_number(number: float) -> str:
    size = abs(number)
    return f"{number:,.0f}" if size >= 1000 and log(size, 10) < 7 else f"{number:.3g}"
