"""From the curves of many runs to one summary per point: best values, t_f and Δt over seeds.

Extrema are taken per run, and only then averaged. Runs that diverged or failed, and runs without a record, stay out of
the means and are counted by status, so that a reader sees 2/3.

>>> summarise([])
[]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from seedbed.errors import StoreError
from seedbed.inside.looks import Look
from seedbed.measures.catalogue import table_order
from seedbed.measures.compare import Spread, over_seeds
from seedbed.measures.curves import at_best, direction, extremum, last
from seedbed.records import Curve, Status, StoredRun, jsonable
from seedbed.settings import Value

Kind: TypeAlias = Literal["min", "max", "last"]
_NO_RECORDS = Curve(np.array([], dtype=np.int64), np.array([], dtype=np.float64))


@dataclass(frozen=True)
class RunCurves:
    """One stored run, the dials that its study varies, and its curves by metric name."""

    run: StoredRun
    point: Mapping[str, Value]
    curves: Mapping[str, Curve]
    seconds: Mapping[str, float] = field(default_factory=dict)  # its share of its pack's time: compute, evaluate
    looks: tuple[Look, ...] = ()  # what was seen inside it, by step
    steady: int | None = None  # bytes, its share of what its pack held between updates; None: not measured

    @property
    def counts(self) -> bool:
        """Whether this run enters the means."""
        recorded = any(curve.steps.size for curve in self.curves.values())
        return recorded and self.run.status not in ("diverged", "failed")


@dataclass(frozen=True)
class MetricSummary:
    """One metric of one point: its best value and t_f; a metric without a direction has its last value and no t_f."""

    kind: Kind
    value: Spread
    t_f: Spread | None


@dataclass(frozen=True)
class PointSummary:
    """One point over its seeds; `status` counts all its runs, `seeds` are those in the means."""

    point: Mapping[str, Value]
    seeds: tuple[int, ...]
    status: Mapping[Status, int]
    metrics: Mapping[str, MetricSummary]
    delta_t: Mapping[str, Spread]
    at_best: Mapping[str, Spread] = field(default_factory=dict)  # quantity → training value where validation is best

    @property
    def n(self) -> int:
        """Runs in the means."""
        return len(self.seeds)

    @property
    def n_runs(self) -> int:
        """All runs, those left out of the means included."""
        return sum(self.status.values())


def summarise(runs: Sequence[RunCurves], t_max: float | None = None) -> list[PointSummary]:
    """One summary per point, in order of first appearance, from the records with step ≤ t_max."""
    points: dict[Hashable, list[RunCurves]] = {}
    for run in runs:
        points.setdefault(_identity(run), []).append(run)
    return [_summarise_point(members, t_max) for members in points.values()]


def _identity(run: RunCurves) -> Hashable:
    """Everything but the seed: the settings too, so that runs of unequal settings never share a mean."""
    dials = frozenset((name, tuple(value) if isinstance(value, list) else value) for name, value in run.point.items())
    return dials, run.run.settings


def _summarise_point(members: Sequence[RunCurves], t_max: float | None) -> PointSummary:
    _refuse_equal_seeds(members)
    counted = [run for run in members if run.counts]
    names = sorted({name for run in members for name in run.curves}, key=table_order)
    metrics = {name: _summarise_metric(name, counted, t_max) for name in names}
    statuses = Counter(run.run.status for run in members)
    return PointSummary(
        point=members[0].point,
        seeds=tuple(sorted(run.run.seed for run in counted)),
        status={status: statuses[status] for status in sorted(statuses)},
        metrics=metrics,
        delta_t=_delta_t(metrics),
        at_best=_at_best(counted, t_max),
    )


def _refuse_equal_seeds(members: Sequence[RunCurves]) -> None:
    seen: dict[int, str] = {}
    for run in members:
        if run.run.seed in seen:
            raise StoreError(
                f"runs {seen[run.run.seed]} and {run.run.id} have the same settings and the same seed {run.run.seed}; "
                "a mean takes each seed once: remove the one that is not wanted with `seedbed rm`"
            )
        seen[run.run.seed] = run.run.id


def _summarise_metric(name: str, runs: Sequence[RunCurves], t_max: float | None) -> MetricSummary:
    curves = {run.run.seed: run.curves.get(name, _NO_RECORDS) for run in runs}
    kind = direction(name)
    if kind is None:
        return MetricSummary("last", over_seeds({seed: last(curve, t_max) for seed, curve in curves.items()}), None)
    best = {seed: extremum(curve, kind, t_max) for seed, curve in curves.items()}
    value = over_seeds({seed: found.value for seed, found in best.items()})
    t_f = over_seeds({seed: found.step for seed, found in best.items()})
    return MetricSummary(kind, value, t_f)


def _delta_t(metrics: Mapping[str, MetricSummary]) -> dict[str, Spread]:
    """Δt of loss and accuracy per run, then over seeds."""
    found = {}
    for quantity in ("loss", "accuracy"):
        train, val = (
            metrics[name].t_f if name in metrics else None for name in (f"train/{quantity}", f"val/{quantity}")
        )
        if train and val:
            found[quantity] = over_seeds({seed: val.values[seed] - train.values[seed] for seed in val.values})
    return found


def _at_best(runs: Sequence[RunCurves], t_max: float | None) -> dict[str, Spread]:
    """Training perplexity at the step of the best validation perplexity, by which text models are told (report C)."""
    pairs = {run.run.seed: [run.curves.get(f"{split}/perplexity") for split in ("train", "val")] for run in runs}
    values = {seed: at_best(train, val, "min", t_max) for seed, (train, val) in pairs.items() if train and val}
    return {"perplexity": over_seeds(values)} if values else {}


def to_json(summaries: Iterable[PointSummary]) -> dict[str, Any]:
    """The stable document of `show --json`: equal summaries give equal bytes."""
    document: dict[str, Any] = jsonable({"points": [_point_as_dict(summary) for summary in summaries]})
    return document


def _point_as_dict(summary: PointSummary) -> dict[str, Any]:
    return {
        "point": summary.point,
        "n": summary.n,
        "metrics": {name: _metric_as_dict(metric) for name, metric in summary.metrics.items()},
        "delta_t": {quantity: asdict(spread) for quantity, spread in summary.delta_t.items()},
        **({"at_best": {name: asdict(spread) for name, spread in summary.at_best.items()}} if summary.at_best else {}),
        "status": summary.status,
    }


def _metric_as_dict(metric: MetricSummary) -> dict[str, Any]:
    found: dict[str, Any] = {metric.kind: asdict(metric.value)}
    return found if metric.t_f is None else found | {"t_f": asdict(metric.t_f)}
