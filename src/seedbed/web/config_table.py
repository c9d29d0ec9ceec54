"""The table of configs: mean ± std and n of every metric, and the runs behind each mean."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

from seedbed.charts.axis_labels import metric_label, setting_label, value_label
from seedbed.charts.run_selection import group_by_config
from seedbed.report.tables import format_accuracy, format_mean_std
from seedbed.stats.comparison import SeedSummary, summarise_seeds
from seedbed.stats.curve_statistics import find_extremum, last_value, metric_direction
from seedbed.stats.metric_registry import QUANTITIES, MetricName, metric_sort_key
from seedbed.stats.metric_registry import metric_label as metric_symbol
from seedbed.stats.summary import ConfigSummary, RunCurves, summarise


def configs_as_json(runs: Sequence[RunCurves]) -> dict[str, Any]:
    """Every config with its runs, and a description of each column."""
    summaries = summarise(runs)
    names = sorted({name for summary in summaries for name in summary.metrics}, key=metric_sort_key)
    settings = dict.fromkeys(name for summary in summaries for name in summary.config)
    members = group_by_config(runs)
    return {
        "settings": [{"name": name, "label": setting_label(name)} for name in settings],
        "metrics": [_metric_as_json(name) for name in names],
        "configs": [_config_as_json(summary, group, names) for summary, group in zip(summaries, members, strict=True)],
    }


def _metric_as_json(name: str) -> dict[str, Any]:
    which = {"min": "smallest", "max": "largest", None: "last"}[metric_direction(name)]
    return {"name": name, "label": metric_symbol(name), "meaning": f"{which} {metric_label(name)}"}


def _config_as_json(summary: ConfigSummary, runs: Sequence[RunCurves], names: Sequence[str]) -> dict[str, Any]:
    values = {name: _spread_as_json(name, summary.metrics[name].value) for name in names if name in summary.metrics}
    return {
        "settings": {name: {"text": value_label(value), "value": value} for name, value in summary.config.items()},
        "n": summary.n_included, "of": summary.n_runs, "states": dict(summary.status_counts), "values": values,
        "runs": [_run_as_json(run, names) for run in runs],
    }  # fmt: skip


def _spread_as_json(name: str, spread: SeedSummary) -> dict[str, Any]:
    return {"mean": spread.mean, "text": _format_spread(name, spread)}


def _run_as_json(run: RunCurves, names: Sequence[str]) -> dict[str, Any]:
    values = {name: value for name in names if not isnan(value := _best_or_last(run, name))}
    texts = {name: _format_spread(name, summarise_seeds({0: value})) for name, value in values.items()}
    stored = run.run
    return {
        "id": stored.id, "seed": stored.seed, "status": stored.status, "step": stored.step, "cause": stored.cause,
        "values": texts,
    }  # fmt: skip


def _best_or_last(run: RunCurves, name: str) -> float:
    """The best value of a run; the last one for a metric without a better direction."""
    curve, kind = run.curves.get(name), metric_direction(name)
    if curve is None or not curve.steps.size:
        return float("nan")
    return find_extremum(curve, kind).value if kind else last_value(curve)


def _format_spread(name: str, spread: SeedSummary) -> str:
    entry = QUANTITIES.get(MetricName.parse(name).quantity)
    return (format_accuracy if entry and entry.unit == "share" else format_mean_std)(spread)
