"""The table of points: mean ± std and n of every metric, and the runs behind each mean."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

from seedbed.charts.axes import by_point
from seedbed.charts.labels import dial_in_words, metric_in_words, spelled
from seedbed.measures.catalogue import QUANTITIES, Metric, label, table_order
from seedbed.measures.compare import Spread, over_seeds
from seedbed.measures.curves import direction, extremum, last
from seedbed.measures.summary import PointSummary, RunCurves, summarise
from seedbed.report.tables import share_in_words, value_in_words


def points_as_json(runs: Sequence[RunCurves]) -> dict[str, Any]:
    """Every point with its runs, and what its columns mean."""
    summaries = summarise(runs)
    names = sorted({name for summary in summaries for name in summary.metrics}, key=table_order)
    dials = dict.fromkeys(name for summary in summaries for name in summary.point)
    members = by_point(runs)
    return {
        "dials": [{"name": name, "label": dial_in_words(name)} for name in dials],
        "metrics": [_metric(name) for name in names],
        "points": [_point(summary, some, names) for summary, some in zip(summaries, members, strict=True)],
    }


def _metric(name: str) -> dict[str, Any]:
    which = {"min": "smallest", "max": "largest", None: "last"}[direction(name)]
    return {"name": name, "label": label(name), "meaning": f"{which} {metric_in_words(name)}"}


def _point(summary: PointSummary, runs: Sequence[RunCurves], names: Sequence[str]) -> dict[str, Any]:
    values = {name: _spread(name, summary.metrics[name].value) for name in names if name in summary.metrics}
    return {
        "dials": {name: {"text": spelled(value), "value": value} for name, value in summary.point.items()},
        "n": summary.n, "of": summary.n_runs, "states": dict(summary.status), "values": values,
        "runs": [_run(run, names) for run in runs],
    }  # fmt: skip


def _spread(name: str, spread: Spread) -> dict[str, Any]:
    return {"mean": spread.mean, "text": _in_words(name, spread)}


def _run(run: RunCurves, names: Sequence[str]) -> dict[str, Any]:
    values = {name: found for name in names if not isnan(found := _value(run, name))}
    texts = {name: _in_words(name, over_seeds({0: value})) for name, value in values.items()}
    own = run.run
    return {"id": own.id, "seed": own.seed, "status": own.status, "step": own.step, "cause": own.cause, "values": texts}


def _value(run: RunCurves, name: str) -> float:
    """The best value of a run, or its last where a metric has no better side."""
    curve, kind = run.curves.get(name), direction(name)
    if curve is None or not curve.steps.size:
        return float("nan")
    return extremum(curve, kind).value if kind else last(curve)


def _in_words(name: str, spread: Spread) -> str:
    entry = QUANTITIES.get(Metric.parse(name).quantity)
    return (share_in_words if entry and entry.unit == "share" else value_in_words)(spread)
