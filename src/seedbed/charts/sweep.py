"""One statistic per run (best, t_f, gap, …) against a setting, parameters or α: means over seeds with ± std.

Runs that differ in anything but the seed and x are on separate lines, so that no mean mixes configs. With α as x or
colour, each run is truncated at αT.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import product
from math import nan
from typing import Any

import numpy as np

from seedbed.charts.axis_labels import JOINT, setting_label, setting_words
from seedbed.charts.panel_layout import (
    Axis,
    Line,
    LineChart,
    PanelSpec,
    ambiguity_note,
    build_panel,
    channel_value,
    check_setting_names,
    colour_axis,
    config_label,
    dash_title,
    distinct_values,
    group_metrics,
    line_colour,
    line_dash,
    list_quantities,
    panel_specs,
    scale_for_values,
    seed_count_note,
    split_and_group,
    status_notes,
    title_by_settings,
    with_chosen_colours,
)
from seedbed.format import join_words
from seedbed.settings import Value
from seedbed.specs import FigureSpec
from seedbed.stats.comparison import SeedSummary, summarise_seeds
from seedbed.stats.groups import filter_runs, is_number, replay_at_alphas
from seedbed.stats.run_statistics import Statistic, compute_statistic, find_statistic, summarise_values
from seedbed.stats.summary import RunCurves, group_by_config, select_for_mean


def gather_sweep(figure: FigureSpec, runs: Sequence[RunCurves]) -> LineChart:
    """The data of a `sweep` figure."""
    check_setting_names(runs, (figure.x,))
    filtered = filter_runs(runs, figure.only)
    selected = truncate_at_alphas(figure, filtered)
    figure = with_chosen_colours(figure, selected)
    statistic = find_statistic(figure.value)
    figure = figure.model_copy(update={"metrics": statistic.distinct_metrics(figure.metrics)})
    specs, n_columns = panel_specs(figure, selected, group_metrics(figure))
    lines = [line for index, spec in enumerate(specs) for line in _lines_in_panel(figure, index, spec, selected)]
    return LineChart(
        title=figure.title or default_title(figure, statistic, f"against {setting_words(figure.x)}"),
        panels=tuple(build_panel(figure, spec, selected, statistic) for spec in specs),
        n_columns=n_columns,
        lines=tuple(lines),
        x=Axis(setting_label(figure.x), scale_for_values(distinct_values(selected, figure.x), figure.x_scale)),
        colour=colour_axis(figure, selected),
        dash_title=dash_title(figure),
        notes=_chart_notes(figure, statistic, filtered, lines),
        mark_type="point",
    )


def draw_sweep(chart: LineChart) -> dict[str, Any]:
    """The means as points with error bars, joined by lines if x is numeric."""
    from seedbed.charts.line_chart import draw_lines

    return draw_lines(chart)


def truncate_at_alphas(figure: FigureSpec, runs: Sequence[RunCurves]) -> list[RunCurves]:
    """The runs; if the figure uses α, each run truncated at every α instead."""
    if "alpha" not in (figure.x, figure.colour, figure.dash, figure.row, figure.column):
        return list(runs)
    return replay_at_alphas(runs, figure.alphas)


def _lines_in_panel(figure: FigureSpec, panel_index: int, spec: PanelSpec, runs: Sequence[RunCurves]) -> Iterator[Line]:
    configs_by_line: dict[Hashable, list[list[RunCurves]]] = {}
    for seed_runs in group_by_config(spec.select(figure, runs)):
        by_seed = [[run] for run in seed_runs] if "seed" in (figure.colour, figure.dash, figure.x) else [seed_runs]
        for config in by_seed:
            configs_by_line.setdefault(_line_key(figure, config[0]), []).append(config)
    for configs, metric in product(_join_along_x(figure, list(configs_by_line.values())), spec.metrics):
        yield _line(figure, panel_index, metric, configs)


def _join_along_x(figure: FigureSpec, lines: list[list[list[RunCurves]]]) -> list[list[list[RunCurves]]]:
    """The configs of each line; those with another x each, where other settings follow x, are one line."""
    alike: dict[Hashable, list[list[list[RunCurves]]]] = {}
    for line in lines:
        alike.setdefault(_line_key(figure, line[0][0])[:2], []).append(line)
    joined = []
    for group in alike.values():
        xs = [channel_value(config[0], figure.x) for line in group for config in line]
        is_one = len(set(xs)) == len(xs) and all(len(line) == 1 for line in group)
        joined += [[config for line in group for config in line]] if is_one else group
    return joined


def _line_key(figure: FigureSpec, run: RunCurves) -> tuple[Hashable, ...]:
    """What the configs of one line share: every setting but x; with x = parameters, only colour and dash."""
    legend_values = tuple(channel_value(run, name) for name in (figure.colour, figure.dash) if name)
    if figure.x == "parameters":
        return (legend_values,)
    alpha = None if figure.x == "alpha" else run.config.get("alpha")
    others = tuple((name, value) for name, value in run.run.settings.flat().items() if name != figure.x)
    return legend_values, alpha, others


def _line(figure: FigureSpec, panel_index: int, metric: str, configs: Sequence[Sequence[RunCurves]]) -> Line:
    ordered = sorted(configs, key=lambda seed_runs: _sort_key(channel_value(seed_runs[0], figure.x)))
    spreads = [spread_over_seeds(seed_runs, metric, figure) for seed_runs in ordered]
    means = np.array([spread.mean for spread in spreads])
    means = np.where(np.isfinite(means), means, nan)
    stds = np.array([spread.std for spread in spreads])
    first = ordered[0][0]
    split = "" if figure.colour else split_and_group(metric)[0]
    return Line(
        panel=panel_index,
        name=", ".join(filter(None, (config_label(first), split))),
        colour=line_colour(figure, first, metric),
        dash=line_dash(figure, first, metric),
        x=tuple(channel_value(seed_runs[0], figure.x) for seed_runs in ordered),
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


def default_title(figure: FigureSpec, statistic: Statistic, against: str) -> str:
    """`Best loss and accuracy against learning rate, by model`; of bars as well."""
    title = (statistic.long_title or statistic.title).format(list_quantities(figure))
    return title_by_settings(f"{title} {against}", figure)


def _chart_notes(
    figure: FigureSpec, statistic: Statistic, runs: Sequence[RunCurves], lines: Sequence[Line]
) -> tuple[str, ...]:
    followers = _settings_that_follow_x(figure, runs, lines)
    conditions = {
        f"{statistic.legend}.": bool(statistic.legend),
        seed_count_note(lines): True,
        statistic.chart_note(runs, figure.metrics): True,
        "Error bars are ± std over seeds (population).": any(
            np.isfinite(line.high - line.low).any() and line.n > 1 for line in lines
        ),
        "α: each run is truncated at αT.": "alpha" in (figure.x, figure.colour),
        "Configs without a finite mean are left out.": any(np.isnan(line.y).any() for line in lines),
        ambiguity_note(figure, runs): figure.x != "parameters",
        f"Along with {setting_words(figure.x)}, the runs change in {join_words(followers)}.": bool(followers),
    }
    notes = (
        *(note for note, applies in conditions.items() if applies),
        *status_notes(runs, of_means=True),
    )
    return tuple(note for note in notes if note)


def _settings_that_follow_x(figure: FigureSpec, runs: Sequence[RunCurves], lines: Sequence[Line]) -> list[str]:
    """The varied settings, not named by the figure, that differ along a line."""
    shown = {figure.x, figure.row, figure.column, "seed", "alpha", *(figure.colour or "").split(JOINT), figure.dash}
    if figure.x in ("parameters", "alpha") or not any(len(line.x) > 1 for line in lines):
        return []
    by_x = {channel_value(run, figure.x): {name: run.config.get(name) for name in run.config} for run in runs}
    return [
        setting_words(name) for name in dict.fromkeys(name for run in runs for name in run.config)
        if name not in shown and len({repr(config.get(name)) for config in by_x.values()}) == len(by_x) > 1
    ]  # fmt: skip
