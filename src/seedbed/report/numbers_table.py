"""The statistics of a study as plain numbers, for `show --format csv`: one row per config and statistic.

The tables for people have `0.67 ± 0.12` in one cell, and their orientation depends on the number of configs.
"""

from __future__ import annotations

from math import isfinite

from seedbed.report.overview import format_value
from seedbed.report.statistic_rows import (
    Summaries,
    at_best_rows,
    delta_rows,
    metric_names,
    step_rows,
    value_rows,
)
from seedbed.report.tables import Table


def numbers_table(summaries: Summaries) -> Table:
    """Columns: every varied setting, the statistic, its mean and population std over seeds, and the number of seeds."""
    names = list(dict.fromkeys(name for summary in summaries for name in summary.config))
    metrics = [name for some in metric_names(summaries) for name in some]
    statistics = value_rows(summaries, metrics) + at_best_rows(summaries)
    statistics += step_rows(summaries, metrics) + delta_rows(summaries)
    rows = []
    for index, summary in enumerate(summaries):
        config = [format_value(summary.config[name]) if name in summary.config else "" for name in names]
        for statistic in statistics:
            if (spread := statistic.spreads[index]) is not None and isfinite(spread.mean):
                so_far = "" if summary.so_far is None else str(summary.so_far)
                numbers = (f"{spread.mean:.10g}", f"{spread.std:.10g}", str(spread.n))
                rows.append((*config, statistic.label, *numbers, so_far))
    columns = (*names, "statistic", "mean", "std", "n", "so far: step")
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return Table("Statistics", columns, tuple(rows))
