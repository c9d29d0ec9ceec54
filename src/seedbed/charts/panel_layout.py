"""Which panels a figure has: one for each value of its row and column dials, and for each metric or each quantity.

With no dial to colour, metrics of one quantity share a panel and where they were measured is coloured; with one, each
metric has its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from seedbed.charts.labels import (
    label_with_unit,
    metric_label,
    metric_quantity,
    metric_unit,
    setting_label,
    value_label,
)
from seedbed.charts.line_data import Axis, Panel, Scale
from seedbed.charts.run_selection import distinct_values, is_number, setting_value
from seedbed.settings import Value
from seedbed.specs import FigureSpec
from seedbed.stats.metric_registry import MetricName
from seedbed.stats.summary import RunCurves

CONTEXT_LENGTH_LABEL: Final = "context (tokens)"


@dataclass(frozen=True)
class PanelSpec:
    """One panel: the metrics in it and the dials that its runs have."""

    metrics: tuple[str, ...]
    row: Value
    column: Value

    def select(self, figure: FigureSpec, runs: Sequence[RunCurves]) -> list[RunCurves]:
        """Those that belong into it."""
        return [
            run for run in runs if _has_value(run, figure.row, self.row) and _has_value(run, figure.column, self.column)
        ]


def _has_value(run: RunCurves, name: str | None, value: Value) -> bool:
    return name is None or bool(setting_value(run, name) == value)


def panel_specs(figure: FigureSpec, runs: Sequence[RunCurves]) -> Iterator[PanelSpec]:
    """Panels in reading order: where a dial has the columns, metrics go down; else they go across."""
    rows, columns = distinct_values(runs, figure.row), distinct_values(runs, figure.column)
    for row, metrics, column in product(rows, metrics_by_panel(figure), columns):
        yield PanelSpec(metrics, row, column)


def metrics_by_panel(figure: FigureSpec) -> list[tuple[str, ...]]:
    """The metrics of each panel."""
    if figure.value in ("seconds", "memory") and figure.kind in ("sweep", "bars"):
        return [figure.metrics[:1]]
    if figure.colour or figure.kind == "bars":
        return [(metric,) for metric in figure.metrics]
    quantities = dict.fromkeys(map(metric_quantity, figure.metrics))
    return [tuple(name for name in figure.metrics if metric_quantity(name) == quantity) for quantity in quantities]


def n_panel_columns(figure: FigureSpec, runs: Sequence[RunCurves]) -> int:
    """Panels side by side."""
    if figure.column:
        return max(1, len(distinct_values(runs, figure.column)))
    n = len(metrics_by_panel(figure))
    return n if figure.row or n == 3 else min(2, n)


def build_panel(figure: FigureSpec, spec: PanelSpec, title_template: str = "{}", unit: str | None = None) -> Panel:
    """The panel of a cell, its y axis named by what `words` makes of the metric; a share is never on a log axis."""
    dials = ((figure.row, spec.row), (figure.column, spec.column))
    title = ", ".join(value_title(name, value) for name, value in dials if name)
    metric = spec.metrics[0] if len(spec.metrics) == 1 else metric_quantity(spec.metrics[0])
    unit = metric_unit(metric) if unit is None else unit
    name = label_with_unit(title_template.format(metric_label(metric)), unit)
    difference = metric.startswith("gap/") or "gap" in title_template or figure.value == "delta_t"
    share = unit == "share" and not difference
    return Panel(metric, title, name, "linear" if unit == "share" else figure.y_scale, share, not difference)


def value_title(name: str, value: Value) -> str:
    """`GPT`, `layers L = 2`: a dial's value as a panel is called."""
    return value_label(value) if isinstance(value, str) else f"{setting_label(name)} = {value_label(value)}"


def split_and_group(metric: str) -> tuple[str, str]:
    """What tells metrics of one quantity apart: where it was read, and of which group."""
    parts = MetricName.parse(metric)
    where = metric_label(f"{parts.split}/?").replace(" ?", "") if parts.split else "all"
    return where, parts.group.strip("[]")


def colour_axis(figure: FigureSpec, runs: Sequence[RunCurves]) -> Axis | None:
    """What colours tell: the figure's dial, or where metrics were measured."""
    if figure.colour is None:
        return Axis("measured on", None) if len(figure.metrics) > 1 else None
    values = distinct_values(runs, figure.colour)
    return Axis(setting_label(figure.colour), scale_for_values(values, figure.colour_scale))


def scale_for_values(values: Sequence[Value], requested: Scale) -> Scale | None:
    """The scale of a dial: None for words, and linear where a value has no logarithm."""
    if not all(is_number(value) for value in values):
        return None
    return requested if requested == "linear" or all(value > 0 for value in values) else "linear"


def dash_title(figure: FigureSpec) -> str | None:
    """What dashes tell: the figure's second dial, or groups of samples, or how long texts are read at a time."""
    if figure.dash:
        return setting_label(figure.dash)
    groups = {MetricName.parse(metric).group for metric in figure.metrics}
    if len(groups) < 2 or figure.colour:
        return None
    return CONTEXT_LENGTH_LABEL if any(group.startswith("[length=") for group in groups) else "samples"


def dash_value(figure: FigureSpec, metric: str) -> str:
    """The group of samples that a metric is of, where groups are what dashes tell."""
    if figure.colour or dash_title(figure) is None:
        return ""
    return split_and_group(metric)[1] or ("as in training" if dash_title(figure) == CONTEXT_LENGTH_LABEL else "all")


def config_label(run: RunCurves) -> str:
    """`GPT layers=2 dim=64`."""
    return " ".join(
        value_label(value) if name == "model.kind" else f"{name.rpartition('.')[2]}={value_label(value)}"
        for name, value in run.config.items()
    )
