"""Charts as plain text for a terminal: lines in Braille dots, bars in block characters, no colour.

The record of each chart kind names its preview; attention maps and Fourier planes have theirs in their own files.

>>> print(format_bars([("gpt", 2.0), ("lstm", 1.0)], 8))
gpt   ████████  2
lstm  ████      1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, Final

import numpy as np

from seedbed.charts.bars import Bars
from seedbed.charts.budget import BudgetChart
from seedbed.charts.panel_layout import Line, LineChart, Panel
from seedbed.charts.parallel_coordinates import ParallelCoordinates
from seedbed.format import format_number

PANEL_WIDTH_CELLS: Final = 64  # characters, each of 2 × 4 dots
PANEL_HEIGHT_CELLS: Final = 12
LINE_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
# Unicode 15, Braille patterns
_BRAILLE_DOT_BITS: Final = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
_BRAILLE_BASE: Final = 0x2800


def preview_chart(chart: Any, preview: Callable[[Any], str] | None) -> str:
    """The data of any chart kind as plain text: its title, what the kind's own preview makes of it, and its notes."""
    if chart.is_empty:
        return "\n".join([chart.title, "nothing is recorded yet", *chart.notes])
    body = preview(chart) if preview else "There is no preview of this kind of chart; `--out FILE.svg` draws it."
    return "\n\n".join([chart.title, body, "\n".join(chart.notes)])


# ---- lines ----


def preview_lines(chart: LineChart) -> str:
    return "\n\n".join(_line_panel(chart, index, panel) for index, panel in enumerate(chart.panels))


def _line_panel(chart: LineChart, panel_index: int, panel: Panel) -> str:
    panel_lines = [line for line in chart.lines if line.panel == panel_index and np.isfinite(line.y).any()]
    if not panel_lines:
        return f"{_panel_title(panel)}\nnothing is recorded"
    xs = [_x_values(chart, line) for line in panel_lines]
    ys = [_apply_scale(line.y, panel.scale) for line in panel_lines]
    area = _PlotArea.from_data(xs, ys)
    canvas = np.zeros((PANEL_HEIGHT_CELLS, PANEL_WIDTH_CELLS), dtype=np.int64)
    for x, y in zip(xs, ys, strict=True):
        _draw_polyline(canvas, area.dot_columns(x), area.dot_rows(y))
    rows = ["".join(chr(_BRAILLE_BASE + cell) for cell in row) for row in canvas]
    rows = _with_end_letters(rows, panel_lines, [area.dot_rows(y) for y in ys])
    axes = [*_with_y_axis(rows, panel, area), _x_axis_line(chart, panel_lines, area)]
    return "\n".join([_panel_title(panel), *axes, *_legend(panel_lines)])


def _panel_title(panel: Panel) -> str:
    return ", ".join(filter(None, (panel.y_title, panel.title)))


def _x_values(chart: LineChart, line: Line) -> Any:
    if chart.x.scale is None:
        return np.arange(len(line.x), dtype=float)
    return _apply_scale(np.array(line.x, dtype=float), chart.x.scale)


def _apply_scale(values: Any, scale: str | None) -> Any:
    if scale not in ("log", "log2"):
        return np.asarray(values, dtype=float)
    numbers = np.asarray(values, dtype=float)
    return np.log10(np.where(numbers > 0, numbers, np.nan))


class _PlotArea:
    """The data limits of a panel, mapped to its dots."""

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
    """Sets the dots between successive points; a point that is not finite leaves a gap."""
    finite = np.isfinite(columns) & np.isfinite(rows)
    if finite.sum() == 1:
        _set_dots(canvas, columns[finite], rows[finite])
    for i in np.flatnonzero(finite[:-1] & finite[1:]):
        n = int(max(abs(columns[i + 1] - columns[i]), abs(rows[i + 1] - rows[i]))) + 2
        _set_dots(canvas, np.linspace(columns[i], columns[i + 1], n), np.linspace(rows[i], rows[i + 1], n))


def _set_dots(canvas: Any, columns: Any, rows: Any) -> None:
    x, y = np.rint(columns).astype(int), np.rint(rows).astype(int)
    np.bitwise_or.at(canvas, (y // 4, x // 2), _BRAILLE_DOT_BITS[y % 4, x % 2])


def _with_end_letters(rows: Sequence[str], panel_lines: Sequence[Line], dot_rows: Sequence[Any]) -> list[str]:
    """The rows with a letter at the end of each line, if there are enough letters."""
    ends = [""] * PANEL_HEIGHT_CELLS
    if 1 < len(panel_lines) <= len(LINE_LETTERS):
        for letter, rows_of_line in zip(LINE_LETTERS, dot_rows, strict=False):
            last = rows_of_line[np.isfinite(rows_of_line)][-1]
            ends[round(float(last)) // 4] += letter
    return [f"{row} {end}".rstrip(" ") for row, end in zip(rows, ends, strict=True)]


def _with_y_axis(rows: Sequence[str], panel: Panel, area: _PlotArea) -> list[str]:
    is_log = panel.scale in ("log", "log2")
    top, bottom = (format_number(10**end if is_log else end) for end in (area.top, area.bottom))
    width = max(len(top), len(bottom))
    tick_labels = [top, *[""] * (PANEL_HEIGHT_CELLS - 2), bottom]
    return [f"{label:>{width}} ┤{row}" for label, row in zip(tick_labels, rows, strict=True)]


def _x_axis_line(chart: LineChart, panel_lines: Sequence[Line], area: _PlotArea) -> str:
    if chart.x.scale is None:
        return f"  {chart.x.title}: {', '.join(str(x) for x in panel_lines[0].x)}"
    is_log = chart.x.scale in ("log", "log2")
    left, right = (format_number(10**end if is_log else end) for end in (area.left, area.right))
    return f"  {chart.x.title}: {left} to {right}"


def _legend(panel_lines: Sequence[Line]) -> list[str]:
    if len(panel_lines) == 1:
        return [f"  {panel_lines[0].name}"]
    entries = [f"  {letter} {line.name}" for letter, line in zip(LINE_LETTERS, panel_lines, strict=False)]
    return entries + [f"  and {len(panel_lines) - len(LINE_LETTERS)} more lines"] * (
        len(panel_lines) > len(LINE_LETTERS)
    )


# ---- bars and budgets ----


def preview_bars(chart: Bars) -> str:
    return "\n\n".join(_bar_panel(chart, index, panel) for index, panel in enumerate(chart.panels))


def preview_parallel_coordinates(chart: ParallelCoordinates) -> str:
    """The configs as bars, the lowest value first."""
    ranked = sorted(chart.lines, key=lambda line: line.value)
    return f"{chart.value_title}\n" + format_bars([(line.name, line.value) for line in ranked], 40)


def _bar_panel(bars: Bars, panel_index: int, panel: Panel) -> str:
    rows = [(f"{bar.x} {bar.colour}".strip(), bar.mean) for bar in bars.bars if bar.panel == panel_index]
    return f"{_panel_title(panel)}\n{format_bars(rows, 40)}"


def format_bars(rows: Sequence[tuple[str, float]], width: int) -> str:
    """One line of text per bar, the longest `width` wide; a value that is not finite has no bar."""
    longest = max((abs(value) for _, value in rows if isfinite(value)), default=1.0) or 1.0
    name_width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(_format_bar(name.ljust(name_width), value, longest, width) for name, value in rows)


def _format_bar(name: str, value: float, longest: float, width: int) -> str:
    if not isfinite(value):
        return f"{name}  no finite mean"
    n = round(abs(value) / longest * width * 8)
    block = "█" * (n // 8) + (" ▏▎▍▌▋▊▉"[n % 8] if n % 8 else "")
    return f"{name}  {block:<{width}}  {format_number(value)}"


def preview_budget(chart: BudgetChart) -> str:
    """The best config of each budget."""
    rows = []
    for curve in chart.curves:
        best = next(point for point in curve.points if point.is_best)
        group = f"{chart.groups[curve.group]}: " if chart.groups[curve.group] else ""
        rows.append(
            f"{group}C = {format_number(curve.budget, 2)}: best {chart.metrics[curve.metric]} "
            f"{format_number(best.mean)} at {chart.x_title} {format_number(best.x)}, T = {best.steps:,.0f}"
        )
    return "\n".join(rows)
