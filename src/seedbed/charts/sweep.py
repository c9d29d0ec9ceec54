"""One statistic per run (best, t_f, gap, …) against a setting, parameters or α: means over seeds with ± std.

Runs that differ in anything but the seed and x are on separate lines, so that no mean mixes configs. With α as x or
colour, each run is truncated at αT.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import product
from math import nan
from typing import TYPE_CHECKING, Final

import numpy as np

from seedbed.charts.axis_labels import capitalize_first, metric_quantity, setting_label, value_label
from seedbed.charts.line_data import Axis, Line, LineChart, seed_count_note, status_notes
from seedbed.charts.panel_layout import (
    PanelSpec,
    build_panel,
    colour_axis,
    config_label,
    dash_title,
    dash_value,
    group_metrics,
    n_panel_columns,
    panel_specs,
    scale_for_values,
    split_and_group,
)
from seedbed.charts.run_selection import (
    check_setting_names,
    distinct_values,
    group_by_config,
    is_number,
)
from seedbed.settings import Value
from seedbed.specs import FigureSpec
from seedbed.stats.comparison import SeedSummary, summarise_seeds
from seedbed.stats.groups import filter_runs, setting_value
from seedbed.stats.run_statistics import Statistic, compute_statistic, find_statistic, replay_at_alpha, summarise_values
from seedbed.stats.summary import RunCurves, select_for_mean

if TYPE_CHECKING:
    import altair as alt

DEFAULT_ALPHAS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def gather_sweep(figure: FigureSpec, runs: Sequence[RunCurves]) -> LineChart:
    """The data of a `sweep` figure."""
    check_setting_names(runs, (figure.x, figure.colour, figure.dash, figure.row, figure.column))
    selected = truncate_at_alphas(figure, filter_runs(runs, figure.only))
    statistic = find_statistic(figure.value)
    metrics_by_panel = group_metrics(figure) if statistic.uses_metric else [figure.metrics[:1]]
    specs = list(panel_specs(figure, selected, metrics_by_panel))
    lines = [line for index, spec in enumerate(specs) for line in _lines_in_panel(figure, index, spec, selected)]
    return LineChart(
        title=figure.title or _default_title(figure, statistic),
        panels=tuple(build_panel(figure, spec, statistic) for spec in specs),
        n_columns=n_panel_columns(figure, selected, metrics_by_panel),
        lines=tuple(lines),
        x=Axis(setting_label(figure.x), scale_for_values(distinct_values(selected, figure.x), figure.x_scale)),
        colour=colour_axis(figure, selected),
        dash_title=dash_title(figure),
        notes=_chart_notes(figure, statistic, runs, lines),
        mark_type="point",
    )


def draw_sweep(chart: LineChart) -> alt.ConcatChart:
    """The means as points with error bars, joined by lines if x is numeric."""
    from seedbed.charts.line_chart import draw_lines

    return draw_lines(chart)


def truncate_at_alphas(figure: FigureSpec, runs: Sequence[RunCurves]) -> list[RunCurves]:
    """The runs; if the figure uses α, each run truncated at every α instead."""
    if "alpha" not in (figure.x, figure.colour, figure.dash, figure.row, figure.column):
        return list(runs)
    return [replay_at_alpha(run, alpha) for run in runs for alpha in figure.alphas or DEFAULT_ALPHAS]


def _lines_in_panel(figure: FigureSpec, panel_index: int, spec: PanelSpec, runs: Sequence[RunCurves]) -> Iterator[Line]:
    configs_by_line: dict[Hashable, list[list[RunCurves]]] = {}
    for seed_runs in group_by_config(spec.select(figure, runs)):
        configs_by_line.setdefault(_line_key(figure, seed_runs[0]), []).append(seed_runs)
    for configs, metric in product(configs_by_line.values(), spec.metrics):
        yield _line(figure, panel_index, metric, configs)


def _line_key(figure: FigureSpec, run: RunCurves) -> Hashable:
    """What the configs of one line share: every setting but x; with x = parameters, only colour and dash."""
    legend_values = tuple(setting_value(run, name) for name in (figure.colour, figure.dash) if name)
    if figure.x == "parameters":
        return legend_values
    alpha = None if figure.x == "alpha" else run.config.get("alpha")
    others = tuple((name, value) for name, value in run.run.settings.flat().items() if name != figure.x)
    return legend_values, alpha, others


def _line(figure: FigureSpec, panel_index: int, metric: str, configs: Sequence[Sequence[RunCurves]]) -> Line:
    ordered = sorted(configs, key=lambda seed_runs: _sort_key(setting_value(seed_runs[0], figure.x)))
    spreads = [spread_over_seeds(seed_runs, metric, figure) for seed_runs in ordered]
    means = np.array([spread.mean for spread in spreads])
    means = np.where(np.isfinite(means), means, nan)
    stds = np.array([spread.std for spread in spreads])
    first = ordered[0][0]
    split, _ = split_and_group(metric)
    return Line(
        panel=panel_index,
        name=config_label(first) if figure.colour else f"{config_label(first)} {split}".strip(),
        colour=setting_value(first, figure.colour) if figure.colour else split,
        dash=value_label(setting_value(first, figure.dash)) if figure.dash else dash_value(figure, metric),
        x=tuple(setting_value(seed_runs[0], figure.x) for seed_runs in ordered),
        y=means,
        low=means - stds,
        high=means + stds,
        n=max(spread.n for spread in spreads),
        n_runs=max(len(seed_runs) for seed_runs in ordered),
    )


def _sort_key(value: Value) -> tuple[int, Value]:
    """Sorts numbers by size, before categories, which keep their order."""
    return (0, value) if is_number(value) else (1, 0)


def spread_over_seeds(seed_runs: Sequence[RunCurves], metric: str, figure: FigureSpec) -> SeedSummary:
    """The figure's statistic over the seeds of a config: of the complete runs, or without any of all runs so far."""
    included, so_far = select_for_mean(seed_runs)
    values = {run.run.seed: compute_statistic(run, metric, figure.value, so_far) for run in included}
    if find_statistic(figure.value).threshold is None:
        return summarise_seeds(values)
    return SeedSummary(summarise_values(figure.value, values).mean, nan, values)  # a median has no std


# ---- titles and notes ----


def _default_title(figure: FigureSpec, statistic: Statistic) -> str:
    quantities = " and ".join(dict.fromkeys(map(metric_quantity, figure.metrics)))
    title = (statistic.long_title or statistic.title).format(quantities)
    return capitalize_first(f"{title} against {setting_label(figure.x)}")


def _chart_notes(
    figure: FigureSpec, statistic: Statistic, runs: Sequence[RunCurves], lines: Sequence[Line]
) -> tuple[str, ...]:
    conditions = {
        f"{statistic.legend}.": bool(statistic.legend),
        seed_count_note(lines): True,
        statistic.chart_note(runs, figure.metrics): True,
        "Error bars are ± std over seeds (population).": any(
            np.isfinite(line.high - line.low).any() and line.n > 1 for line in lines
        ),
        "α: each run is truncated at αT.": "alpha" in (figure.x, figure.colour),
        "Configs without a finite mean are left out.": any(np.isnan(line.y).any() for line in lines),
    }
    notes = (
        *(note for note, applies in conditions.items() if applies),
        *status_notes(filter_runs(runs, figure.only), of_means=True),
    )
    return tuple(note for note in notes if note)
