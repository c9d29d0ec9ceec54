"""Which panels a figure has: one for each value of its row and column dials, and for each metric or each quantity.

With no dial to colour, metrics of one quantity share a panel and where they were measured is coloured; with one, each
metric has its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from seedbed.charts.axes import dial_of, is_number, values_of
from seedbed.charts.labels import dial_in_words, metric_in_words, quantity_of, spelled, unit_of, with_unit
from seedbed.charts.lines import Axis, Panel, Scale
from seedbed.measures.catalogue import Metric
from seedbed.measures.summary import RunCurves
from seedbed.settings import Value
from seedbed.shown import Figure

CONTEXT: Final = "context (tokens)"


@dataclass(frozen=True)
class Cell:
    """One panel: the metrics in it and the dials that its runs have."""

    metrics: tuple[str, ...]
    row: Value
    column: Value

    def runs(self, figure: Figure, runs: Sequence[RunCurves]) -> list[RunCurves]:
        """Those that belong into it."""
        return [run for run in runs if _fits(run, figure.row, self.row) and _fits(run, figure.column, self.column)]


def _fits(run: RunCurves, name: str | None, value: Value) -> bool:
    return name is None or bool(dial_of(run, name) == value)


def cells_of(figure: Figure, runs: Sequence[RunCurves]) -> Iterator[Cell]:
    """Panels in reading order: where a dial has the columns, metrics go down; else they go across."""
    rows, columns = values_of(runs, figure.row), values_of(runs, figure.column)
    for row, metrics, column in product(rows, shared_metrics(figure), columns):
        yield Cell(metrics, row, column)


def shared_metrics(figure: Figure) -> list[tuple[str, ...]]:
    """The metrics of each panel."""
    if figure.value in ("seconds", "memory") and figure.kind in ("against", "bars"):
        return [figure.metrics[:1]]
    if figure.colour or figure.kind == "bars":
        return [(metric,) for metric in figure.metrics]
    quantities = dict.fromkeys(map(quantity_of, figure.metrics))
    return [tuple(name for name in figure.metrics if quantity_of(name) == quantity) for quantity in quantities]


def n_columns(figure: Figure, runs: Sequence[RunCurves]) -> int:
    """Panels side by side."""
    if figure.column:
        return max(1, len(values_of(runs, figure.column)))
    n = len(shared_metrics(figure))
    return n if figure.row or n == 3 else min(2, n)


def panel_of(figure: Figure, cell: Cell, words: str = "{}", unit: str | None = None) -> Panel:
    """The panel of a cell, its y axis named by what `words` makes of the metric; a share is never on a log axis."""
    dials = ((figure.row, cell.row), (figure.column, cell.column))
    title = ", ".join(said(name, value) for name, value in dials if name)
    metric = cell.metrics[0] if len(cell.metrics) == 1 else quantity_of(cell.metrics[0])
    unit = unit_of(metric) if unit is None else unit
    name = with_unit(words.format(metric_in_words(metric)), unit)
    difference = metric.startswith("gap/") or "gap" in words or figure.value == "delta_t"
    share = unit == "share" and not difference
    return Panel(metric, title, name, "linear" if unit == "share" else figure.y_scale, share, not difference)


def said(name: str, value: Value) -> str:
    """`GPT`, `layers L = 2`: a dial's value as a panel is called."""
    return spelled(value) if isinstance(value, str) else f"{dial_in_words(name)} = {spelled(value)}"


def parts_of(metric: str) -> tuple[str, str]:
    """What tells metrics of one quantity apart: where it was read, and of which group."""
    parts = Metric.parse(metric)
    where = metric_in_words(f"{parts.split}/?").replace(" ?", "") if parts.split else "all"
    return where, parts.group.strip("[]")


def colour_axis(figure: Figure, runs: Sequence[RunCurves]) -> Axis | None:
    """What colours tell: the figure's dial, or where metrics were measured."""
    if figure.colour is None:
        return Axis("measured on", None) if len(figure.metrics) > 1 else None
    values = values_of(runs, figure.colour)
    return Axis(dial_in_words(figure.colour), scale_for(values, figure.colour_scale))


def scale_for(values: Sequence[Value], wanted: Scale) -> Scale | None:
    """The scale of a dial: None for words, and linear where a value has no logarithm."""
    if not all(is_number(value) for value in values):
        return None
    return wanted if wanted == "linear" or all(value > 0 for value in values) else "linear"


def dash_title(figure: Figure) -> str | None:
    """What dashes tell: the figure's second dial, or groups of samples, or how long texts are read at a time."""
    if figure.dash:
        return dial_in_words(figure.dash)
    groups = {Metric.parse(metric).group for metric in figure.metrics}
    if len(groups) < 2 or figure.colour:
        return None
    return CONTEXT if any(group.startswith("[length=") for group in groups) else "samples"


def dash_of_metric(figure: Figure, metric: str) -> str:
    """The group of samples that a metric is of, where groups are what dashes tell."""
    if figure.colour or dash_title(figure) is None:
        return ""
    return parts_of(metric)[1] or ("as in training" if dash_title(figure) == CONTEXT else "all")


def point_in_words(run: RunCurves) -> str:
    """`GPT layers=2 dim=64`."""
    return " ".join(
        spelled(value) if name == "model.kind" else f"{name.rpartition('.')[2]}={spelled(value)}"
        for name, value in run.point.items()
    )
