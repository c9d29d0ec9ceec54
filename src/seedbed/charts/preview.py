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

from seedbed.charts.attention import AttentionMaps, preview_attention
from seedbed.charts.bars import Bars
from seedbed.charts.circle import Rings, preview_circle
from seedbed.charts.level import Level
from seedbed.charts.lines import Line, Lines, Panel
from seedbed.charts.parallel import Parallel

WIDTH: Final = 64  # cells of a panel; each holds 2 × 4 dots
HEIGHT: Final = 12
MARKS: Final = "abcdefghijklmnopqrstuvwxyz"
_DOTS: Final = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])  # Unicode 15, Braille patterns
_BRAILLE: Final = 0x2800


def preview(gathered: Any) -> str:
    """The chart in plain text; one that has no such form says how to see it."""
    if gathered.empty:
        return "\n".join([gathered.title, "nothing is recorded yet", *gathered.notes])
    if isinstance(gathered, Lines):
        body = [_panel(gathered, place, panel) for place, panel in enumerate(gathered.panels)]
    elif isinstance(gathered, Bars):
        body = [_bars(gathered, place, panel) for place, panel in enumerate(gathered.panels)]
    elif isinstance(gathered, Parallel):
        ranked = sorted(gathered.tracks, key=lambda track: track.value)
        body = [f"{gathered.value_title}\n" + bar_rows([(track.name, track.value) for track in ranked], 40)]
    elif isinstance(gathered, Rings):
        body = [preview_circle(gathered)]
    elif isinstance(gathered, AttentionMaps):
        return "\n\n".join([preview_attention(gathered), *gathered.notes])
    else:
        body = [_level(gathered)]
    return "\n\n".join([gathered.title, *body, "\n".join(gathered.notes)])


# ---- lines ----


def _panel(lines: Lines, place: int, panel: Panel) -> str:
    mine = [line for line in lines.lines if line.panel == place and np.isfinite(line.y).any()]
    head = f"{panel.y_title}{', ' * bool(panel.title)}{panel.title}"
    if not mine:
        return f"{head}\nnothing is recorded"
    xs = [_xs(lines, line) for line in mine]
    ys = [_scaled(line.y, panel.scale) for line in mine]
    box = _Box.around(xs, ys)
    canvas = np.zeros((HEIGHT, WIDTH), dtype=np.int64)
    for x, y in zip(xs, ys, strict=True):
        _trace(canvas, box.columns(x), box.rows(y))
    rows = ["".join(chr(_BRAILLE + cell) for cell in row) for row in canvas]
    rows = _with_ends(rows, mine, [box.rows(y) for y in ys])
    return "\n".join([head, *_framed(rows, panel, box), _x_line(lines, mine, box), *_legend(mine)])


def _xs(lines: Lines, line: Line) -> Any:
    if lines.x.scale is None:
        return np.arange(len(line.x), dtype=float)
    return _scaled(np.array(line.x, dtype=float), lines.x.scale)


def _scaled(values: Any, scale: str | None) -> Any:
    if scale not in ("log", "log2"):
        return np.asarray(values, dtype=float)
    numbers = np.asarray(values, dtype=float)
    return np.log10(np.where(numbers > 0, numbers, np.nan))


class _Box:
    """The rectangle of numbers that a panel shows, and its dots."""

    def __init__(self, left: float, right: float, bottom: float, top: float) -> None:
        self.left, self.right, self.bottom, self.top = left, right, bottom, top

    @classmethod
    def around(cls, xs: Sequence[Any], ys: Sequence[Any]) -> _Box:
        x, y = np.concatenate(xs), np.concatenate(ys)
        x, y = x[np.isfinite(x)], y[np.isfinite(y)]
        if not x.size or not y.size:
            return cls(0.0, 1.0, 0.0, 1.0)
        return cls(float(x.min()), float(x.max()), float(y.min()), float(y.max()))

    def columns(self, x: Any) -> Any:
        return (x - self.left) / ((self.right - self.left) or 1.0) * (2 * WIDTH - 1)

    def rows(self, y: Any) -> Any:
        return (self.top - y) / ((self.top - self.bottom) or 1.0) * (4 * HEIGHT - 1)


def _trace(canvas: Any, columns: Any, rows: Any) -> None:
    """Dots along the line from each point to the next; where one is missing there is a gap."""
    good = np.isfinite(columns) & np.isfinite(rows)
    if good.sum() == 1:
        _dot(canvas, columns[good], rows[good])
    for i in np.flatnonzero(good[:-1] & good[1:]):
        n = int(max(abs(columns[i + 1] - columns[i]), abs(rows[i + 1] - rows[i]))) + 2
        _dot(canvas, np.linspace(columns[i], columns[i + 1], n), np.linspace(rows[i], rows[i + 1], n))


def _dot(canvas: Any, columns: Any, rows: Any) -> None:
    x, y = np.rint(columns).astype(int), np.rint(rows).astype(int)
    np.bitwise_or.at(canvas, (y // 4, x // 2), _DOTS[y % 4, x % 2])


def _with_ends(rows: Sequence[str], mine: Sequence[Line], dots: Sequence[Any]) -> list[str]:
    """A letter at the right of each line's end, while there are letters."""
    ends = [""] * HEIGHT
    if 1 < len(mine) <= len(MARKS):
        for mark, dot in zip(MARKS, dots, strict=False):
            last = dot[np.isfinite(dot)][-1]
            ends[round(float(last)) // 4] += mark
    return [f"{row} {end}".rstrip(" ") for row, end in zip(rows, ends, strict=True)]


def _framed(rows: Sequence[str], panel: Panel, box: _Box) -> list[str]:
    power = panel.scale in ("log", "log2")
    top, bottom = (_short(10**end if power else end) for end in (box.top, box.bottom))
    width = max(len(top), len(bottom))
    names = [top, *[""] * (HEIGHT - 2), bottom]
    return [f"{name:>{width}} ┤{row}" for name, row in zip(names, rows, strict=True)]


def _x_line(lines: Lines, mine: Sequence[Line], box: _Box) -> str:
    if lines.x.scale is None:
        return f"  {lines.x.title}: {', '.join(str(x) for x in mine[0].x)}"
    power = lines.x.scale in ("log", "log2")
    left, right = (_short(10**end if power else end) for end in (box.left, box.right))
    return f"  {lines.x.title}: {left} to {right}"


def _legend(mine: Sequence[Line]) -> list[str]:
    if len(mine) == 1:
        return [f"  {mine[0].name}"]
    named = [f"  {mark} {line.name}" for mark, line in zip(MARKS, mine, strict=False)]
    return named + [f"  and {len(mine) - len(MARKS)} more lines"] * (len(mine) > len(MARKS))


# ---- bars and levels ----


def _bars(bars: Bars, place: int, panel: Panel) -> str:
    rows = [(f"{bar.x} {bar.colour}".strip(), bar.mean) for bar in bars.bars if bar.panel == place]
    head = f"{panel.y_title}{', ' * bool(panel.title)}{panel.title}"
    return f"{head}\n{bar_rows(rows, 40)}"


def bar_rows(rows: Sequence[tuple[str, float]], width: int) -> str:
    """One line a bar, the longest as wide as the panel; what is not finite has none."""
    longest = max((abs(value) for _, value in rows if isfinite(value)), default=1.0) or 1.0
    names = max((len(name) for name, _ in rows), default=0)
    return "\n".join(_bar_row(name.ljust(names), value, longest, width) for name, value in rows)


def _bar_row(name: str, value: float, longest: float, width: int) -> str:
    if not isfinite(value):
        return f"{name}  no finite mean"
    n = round(abs(value) / longest * width * 8)
    block = "█" * (n // 8) + (" ▏▎▍▌▋▊▉"[n % 8] if n % 8 else "")
    return f"{name}  {block:<{width}}  {_short(value)}"


def _level(level: Level) -> str:
    lines = []
    for curve in level.curves:
        best = next(stop for stop in curve.stops if stop.best)
        group = f"{level.groups[curve.group]}: " if level.groups[curve.group] else ""
        lines.append(
            f"{group}C = {curve.budget:.2g}: best {level.metrics[curve.metric]} {_short(best.mean)} "
            f"at {level.x_title} {_short(best.x)}, T = {best.steps:,.0f}"
        )
    return "\n".join(lines)


def _short(number: float) -> str:
    size = abs(number)
    return f"{number:,.0f}" if size >= 1000 and log(size, 10) < 7 else f"{number:.3g}"
