"""Which panels a figure has: one per value of its row and column settings, and per metric or quantity.

If a setting is coloured, each metric has its own panel; otherwise the metrics of one quantity share a panel, and their
splits are coloured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeAlias

from seedbed.charts.axis_labels import (
    label_with_unit,
    metric_label,
    metric_quantity,
    metric_unit,
    setting_label,
    value_label,
)
from seedbed.charts.line_data import Axis, Panel, Scale
from seedbed.charts.run_selection import distinct_values, is_number
from seedbed.settings import Value
from seedbed.specs import FigureSpec
from seedbed.stats.groups import setting_value
from seedbed.stats.metric_registry import MetricName
from seedbed.stats.run_statistics import Statistic
from seedbed.stats.summary import RunCurves

MetricsByPanel: TypeAlias = Sequence[tuple[str, ...]]

CONTEXT_LENGTH_LABEL: Final = "context (tokens)"


@dataclass(frozen=True)
class PanelSpec:
    """One panel: its metrics, and the row and column values of its runs."""

    metrics: tuple[str, ...]
    row: Value
    column: Value

    def select(self, figure: FigureSpec, runs: Sequence[RunCurves]) -> list[RunCurves]:
        """The runs of this panel."""
        return [
            run for run in runs if _has_value(run, figure.row, self.row) and _has_value(run, figure.column, self.column)
        ]


def _has_value(run: RunCurves, name: str | None, value: Value) -> bool:
    return name is None or bool(setting_value(run, name) == value)


def panel_specs(figure: FigureSpec, runs: Sequence[RunCurves], metrics_by_panel: MetricsByPanel) -> Iterator[PanelSpec]:
    """Panels from left to right, top to bottom: metrics are rows if a setting has the columns, else columns."""
    rows, columns = distinct_values(runs, figure.row), distinct_values(runs, figure.column)
    for row, metrics, column in product(rows, metrics_by_panel, columns):
        yield PanelSpec(metrics, row, column)


def group_metrics(figure: FigureSpec) -> MetricsByPanel:
    """The metrics of each panel: one, if a setting is coloured, else those of one quantity."""
    if figure.colour:
        return [(metric,) for metric in figure.metrics]
    quantities = dict.fromkeys(map(metric_quantity, figure.metrics))
    return [tuple(name for name in figure.metrics if metric_quantity(name) == quantity) for quantity in quantities]


def n_panel_columns(figure: FigureSpec, runs: Sequence[RunCurves], metrics_by_panel: MetricsByPanel) -> int:
    """The number of panels per row."""
    if figure.column:
        return max(1, len(distinct_values(runs, figure.column)))
    n = len(metrics_by_panel)
    return n if figure.row or n == 3 else min(2, n)


def build_panel(figure: FigureSpec, spec: PanelSpec, statistic: Statistic | None = None) -> Panel:
    """The panel, its y axis titled by the metric or a statistic of it; a share is never on a log axis."""
    facets = ((figure.row, spec.row), (figure.column, spec.column))
    title = ", ".join(value_title(name, value) for name, value in facets if name)
    metric = spec.metrics[0] if len(spec.metrics) == 1 else metric_quantity(spec.metrics[0])
    title_template = statistic.axis_title_template(spec.metrics[0]) if statistic else "{}"
    unit = statistic.axis_unit(metric_unit(metric)) if statistic else metric_unit(metric)
    y_title = label_with_unit(title_template.format(metric_label(metric)), unit)
    is_difference = metric.startswith("gap/") or (statistic is not None and statistic.is_difference)
    is_fraction = unit == "share" and not is_difference
    return Panel(
        metric, title, y_title, "linear" if unit == "share" else figure.y_scale, is_fraction, not is_difference
    )


def value_title(name: str, value: Value) -> str:
    """`GPT`, `layers L = 2`: a setting's value as a panel title."""
    return value_label(value) if isinstance(value, str) else f"{setting_label(name)} = {value_label(value)}"


def split_and_group(metric: str) -> tuple[str, str]:
    """The split and the group of samples of a metric, as text: what distinguishes metrics of one quantity."""
    name = MetricName.parse(metric)
    split = metric_label(f"{name.split}/?").replace(" ?", "") if name.split else "all"
    return split, name.group.strip("[]")


def colour_axis(figure: FigureSpec, runs: Sequence[RunCurves]) -> Axis | None:
    """The legend of colours: the figure's setting, or the split of each metric."""
    if figure.colour is None:
        return Axis("measured on", None) if len(figure.metrics) > 1 else None
    values = distinct_values(runs, figure.colour)
    return Axis(setting_label(figure.colour), scale_for_values(values, figure.colour_scale))


def scale_for_values(values: Sequence[Value], requested: Scale) -> Scale | None:
    """The scale for a setting's values: None for categories, linear if a value has no logarithm."""
    if not all(is_number(value) for value in values):
        return None
    return requested if requested == "linear" or all(value > 0 for value in values) else "linear"


def dash_title(figure: FigureSpec) -> str | None:
    """The title of the dashes: the figure's second setting, the context length, or the group of samples."""
    if figure.dash:
        return setting_label(figure.dash)
    groups = {MetricName.parse(metric).group for metric in figure.metrics}
    if len(groups) < 2 or figure.colour:
        return None
    return CONTEXT_LENGTH_LABEL if any(group.startswith("[length=") for group in groups) else "samples"


def dash_value(figure: FigureSpec, metric: str) -> str:
    """The group of samples of a metric, if dashes show groups; else empty."""
    if figure.colour or dash_title(figure) is None:
        return ""
    return split_and_group(metric)[1] or ("as in training" if dash_title(figure) == CONTEXT_LENGTH_LABEL else "all")


def config_label(run: RunCurves) -> str:
    """The varied settings of a run as text: `GPT layers=2 dim=64`."""
    return " ".join(
        value_label(value) if name == "model.kind" else f"{name.rpartition('.')[2]}={value_label(value)}"
        for name, value in run.config.items()
    )
