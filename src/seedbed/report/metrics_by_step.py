"""Tables of metrics by step for short trainings: one row per evaluation, mean ± std over seeds.

Only for few configs with few evaluations. The columns are perplexities for text, else losses and accuracies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Final

import numpy as np

from seedbed.charts.panel_layout import clock_units_per_step, config_label
from seedbed.format import pluralise
from seedbed.report.tables import Table, spread_format
from seedbed.stats.comparison import summarise_seeds
from seedbed.stats.curve_statistics import value_at_step
from seedbed.stats.metric_registry import MetricName, metric_sort_key, metric_symbol
from seedbed.stats.summary import RunCurves, group_by_config, select_for_mean

MAX_CONFIGS: Final = 4
MAX_ROWS: Final = 30


def metrics_by_step_tables(runs: Sequence[RunCurves]) -> list[Table]:
    """One table per config; none if configs or evaluations are too many, or seeds share no steps."""
    configs = [selected for seed_runs in group_by_config(runs) if (selected := select_for_mean(seed_runs)[0])]
    if not 1 <= len(configs) <= MAX_CONFIGS:
        return []
    return [table for seed_runs in configs for table in _config_tables(seed_runs, len(configs) > 1)]


def _config_tables(seed_runs: Sequence[RunCurves], show_config: bool) -> Iterator[Table]:
    metrics = _shared_metrics(seed_runs)
    steps = _common_steps(seed_runs, metrics)
    if not metrics or not 2 <= len(steps) <= MAX_ROWS:
        return
    epochs_per_step = clock_units_per_step("epoch", seed_runs[0].run)
    clocks = ["step"] + ["epoch"] * isfinite(epochs_per_step)
    rows = [
        (
            *[f"{step:,}", f"{step * epochs_per_step:.4g}"][: len(clocks)],
            *(_cell(seed_runs, name, step) for name in metrics),
        )
        for step in steps
    ]
    suffix = f": {config_label(seed_runs[0])}" if show_config else ""
    spread = "; ± is the population std over them (ddof 0)" if len(seed_runs) > 1 else ""
    notes = (f"n = {pluralise(len(seed_runs), 'seed')}{spread}.",)
    columns = (*clocks, *map(metric_symbol, metrics))
    yield Table(f"Metrics by step{suffix}", columns, tuple(rows), notes, n_labels=len(clocks))


def _shared_metrics(seed_runs: Sequence[RunCurves]) -> list[str]:
    """The metrics over whole splits that all runs have."""
    shared = set.intersection(*(set(run.curves) for run in seed_runs))
    ungrouped = sorted((name for name in shared if not MetricName.parse(name).group), key=metric_sort_key)
    quantities = {name: MetricName.parse(name).quantity for name in ungrouped}
    wanted = ("perplexity",) if "perplexity" in quantities.values() else ("loss", "accuracy")
    return [name for name in ungrouped if quantities[name] in wanted]


def _common_steps(seed_runs: Sequence[RunCurves], metrics: Sequence[str]) -> list[int]:
    """The steps at which every run has every metric."""
    all_steps = [run.curves[name].steps for run in seed_runs for name in metrics]
    steps = all_steps[0] if all_steps else np.array([], dtype=np.int64)
    for other in all_steps[1:]:
        steps = np.intersect1d(steps, other)
    return [int(step) for step in steps]


def _cell(seed_runs: Sequence[RunCurves], name: str, step: int) -> str:
    return spread_format(name)(
        summarise_seeds({run.run.seed: value_at_step(run.curves[name], step) for run in seed_runs})
    )
