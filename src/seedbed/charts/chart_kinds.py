"""The registry of chart kinds: the figures of a study file. A new kind is one file and one line here.

The names of the package's own kinds stand in `specs.FIGURE_KINDS` too, so that study files are checked without charts.

    register_chart("violin", ChartKind(gather_violins, draw_violins))   # from outside the package

What other parts must know about a kind (does it need stored analyses, can it mark where to stop) stands on its record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol

from seedbed.charts.attention_maps import attend_command, draw_attention, gather_attention_figure, preview_attention
from seedbed.charts.bars import draw_bars, gather_bars
from seedbed.charts.budget import draw_budget, gather_budget
from seedbed.charts.fourier_plane import draw_fourier_planes, gather_fourier_planes, preview_fourier_planes
from seedbed.charts.learning_curves import draw_learning_curves, gather_learning_curves, stoppable_metrics
from seedbed.charts.parallel_coordinates import draw_parallel_coordinates, gather_parallel_coordinates
from seedbed.charts.sweep import draw_sweep, gather_sweep
from seedbed.charts.terminal_preview import (
    preview_bars,
    preview_budget,
    preview_lines,
    preview_parallel_coordinates,
)
from seedbed.interp.analysis import is_analysis_metric
from seedbed.specs import FigureSpec, register_figure_kind
from seedbed.stats.groups import filter_runs
from seedbed.stats.summary import RunCurves, describe_missing_weights
from seedbed.study.former_words import FORMER_FIGURE_KINDS


class ChartData(Protocol):
    """What every `gather` returns, besides the numbers that its own `draw` reads."""

    @property
    def title(self) -> str: ...
    @property
    def notes(self) -> tuple[str, ...]: ...  # sentences below the chart: n, spread, what is left out and why
    @property
    def is_empty(self) -> bool: ...


@dataclass(frozen=True)
class ChartKind:
    """A pair of functions: `gather` extracts plain numbers from runs, `draw` makes a chart: Altair's, or a spec."""

    gather: Callable[[FigureSpec, Sequence[RunCurves]], ChartData]
    draw: Callable[[Any], Any]
    preview: Callable[[Any], str] | None = None  # the numbers as text for a terminal, without title and notes
    required_options: tuple[str, ...] = ()  # of [[figures]], which it cannot do without
    is_adjustable: bool = False  # on the page, a viewer may choose its settings for colour, dash, rows and columns
    missing: str = "a finite value of {metrics} yet"  # what no run has, where the chart is empty
    # attention: maps of the figure's text, and head statistics; fourier: planes of number embeddings, over training
    needs_analysis: Literal["attention", "fourier"] | None = None
    stoppable_metrics: Callable[[FigureSpec], tuple[str, ...]] = lambda _: ()  # whose stopping advice it can mark
    command: Callable[[FigureSpec, Sequence[RunCurves]], str] | None = None  # reproduces it; None: `seedbed plot`

    def gather_figure(self, figure: FigureSpec, runs: Sequence[RunCurves]) -> Any:
        """The data of a figure; its notes also say which runs could not be analysed for want of their weights."""
        data: Any = self.gather(figure, runs)
        missing = describe_missing_weights(filter_runs(runs, figure.only)) if self.shows_analyses(figure) else ()
        return replace(data, notes=(*data.notes, *missing)) if missing else data

    def shows_analyses(self, figure: FigureSpec) -> bool:
        """Does this figure of the kind show what `seedbed analyze` computes?"""
        return self.needs_analysis is not None or any(map(is_analysis_metric, figure.metrics))

    def empty_reason(self, figure: FigureSpec) -> str:
        """Why a figure of this kind is empty, without a full stop."""
        return f"Nothing to draw: no run has {self.missing.format(metrics=', '.join(figure.metrics))}"


CHART_KINDS: Final[dict[str, ChartKind]] = {
    "curves": ChartKind(
        gather_learning_curves,
        draw_learning_curves,
        preview_lines,
        is_adjustable=True,
        stoppable_metrics=stoppable_metrics,
    ),
    "sweep": ChartKind(gather_sweep, draw_sweep, preview_lines, is_adjustable=True),
    "bars": ChartKind(gather_bars, draw_bars, preview_bars),
    "budget": ChartKind(
        gather_budget,
        draw_budget,
        preview_budget,
        missing="a partner that spends the same budget C = P·B·T with another value on the x axis",
    ),
    "parallel": ChartKind(gather_parallel_coordinates, draw_parallel_coordinates, preview_parallel_coordinates),
    "attention": ChartKind(
        gather_attention_figure,
        draw_attention,
        preview_attention,
        required_options=("text",),
        missing="attention maps of this text",
        needs_analysis="attention",
        command=attend_command,
    ),
    "fourier": ChartKind(
        gather_fourier_planes,
        draw_fourier_planes,
        preview_fourier_planes,
        missing="Fourier planes",
        needs_analysis="fourier",
    ),
}


def register_chart(name: str, kind: ChartKind) -> ChartKind:
    """Adds a chart kind, so that study files, `plot`, reports and the page accept its name; returns it."""
    if name in FORMER_FIGURE_KINDS:
        raise ValueError(f"{name!r} was the name of the chart kind {FORMER_FIGURE_KINDS[name]!r}; choose another")
    register_figure_kind(name, kind.required_options)
    CHART_KINDS[name] = kind
    return kind
