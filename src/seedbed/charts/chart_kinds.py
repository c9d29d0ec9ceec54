"""The registry of chart kinds: the figures of a study file. A new kind is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seedbed.charts.attention_figure import gather_attention_figure
from seedbed.charts.attention_maps import draw_attention
from seedbed.charts.bars import draw_bars, gather_bars
from seedbed.charts.budget import draw_budget, gather_budget
from seedbed.charts.fourier_plane import draw_fourier_planes, gather_fourier_planes
from seedbed.charts.learning_curves import draw_learning_curves, gather_learning_curves
from seedbed.charts.parallel_coordinates import draw_parallel_coordinates, gather_parallel_coordinates
from seedbed.charts.sweep import draw_sweep, gather_sweep
from seedbed.specs import FigureSpec
from seedbed.stats.summary import RunCurves


@dataclass(frozen=True)
class ChartKind:
    """A pair of functions: `gather` extracts plain numbers from runs, `draw` makes an Altair chart of them."""

    gather: Callable[[FigureSpec, Sequence[RunCurves]], Any]
    draw: Callable[[Any], Any]


CHART_KINDS: Final[dict[str, ChartKind]] = {
    "curves": ChartKind(gather_learning_curves, draw_learning_curves),
    "sweep": ChartKind(gather_sweep, draw_sweep),
    "bars": ChartKind(gather_bars, draw_bars),
    "budget": ChartKind(gather_budget, draw_budget),
    "parallel": ChartKind(gather_parallel_coordinates, draw_parallel_coordinates),
    "attention": ChartKind(gather_attention_figure, draw_attention),
    "fourier": ChartKind(gather_fourier_planes, draw_fourier_planes),
}
