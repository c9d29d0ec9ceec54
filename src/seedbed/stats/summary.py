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
from seedbed.interp.analysis import Analysis
from seedbed.records import Curve, RunStatus, StoredRun, to_jsonable
from seedbed.settings import Value
from seedbed.stats.comparison import SeedSummary, summarise_seeds
from seedbed.stats.curve_statistics import find_extremum, last_value, metric_direction, value_at_best_step
from seedbed.stats.metric_registry import metric_sort_key

Reduction: TypeAlias = Literal["min", "max", "last"]
_EMPTY_CURVE = Curve(np.array([], dtype=np.int64), np.array([], dtype=np.float64))


@dataclass(frozen=True)
class RunCurves:
    """One stored run, the dials that its study varies, and its curves by metric name."""

    run: StoredRun
    config: Mapping[str, Value]
    curves: Mapping[str, Curve]
    seconds: Mapping[str, float] = field(default_factory=dict)  # its share of its pack's time: compute, evaluate
    analyses: tuple[Analysis, ...] = ()  # what was seen inside it, by step
    steady_bytes: int | None = None  # bytes, its share of what its pack held between updates; None: not measured

    @property
    def is_included(self) -> bool:
        """Whether this run enters the means."""
        recorded = any(curve.steps.size for curve in self.curves.values())
        return recorded and self.run.status not in ("diverged", "failed")


@dataclass(frozen=True)
class MetricSummary:
    """One metric of one point: its best value and t_f; a metric without a direction has its last value and no t_f."""

    reduction: Reduction
    value: SeedSummary
    t_f: SeedSummary | None


@dataclass(frozen=True)
class ConfigSummary:
    """One point over its seeds; `status` counts all its runs, `seeds` are those in the means."""

    config: Mapping[str, Value]
    seeds: tuple[int, ...]
    status_counts: Mapping[RunStatus, int]
    metrics: Mapping[str, MetricSummary]
    delta_t: Mapping[str, SeedSummary]
    at_best: Mapping[str, SeedSummary] = field(
        default_factory=dict
    )  # quantity → training value where validation is best

    @property
    def n_included(self) -> int:
        """Runs in the means."""
        return len(self.seeds)

    @property
    def n_runs(self) -> int:
        """All runs, those left out of the means included."""
        return sum(self.status_counts.values())


def summarise(runs: Sequence[RunCurves], t_max: float | None = None) -> list[ConfigSummary]:
    """One summary per point, in order of first appearance, from the records with step ≤ t_max."""
    points: dict[Hashable, list[RunCurves]] = {}
    for run in runs:
        points.setdefault(_config_key(run), []).append(run)
    return [_summarise_config(members, t_max) for members in points.values()]


def _config_key(run: RunCurves) -> Hashable:
    """Everything but the seed: the settings too, so that runs of unequal settings never share a mean."""
    dials = frozenset((name, tuple(value) if isinstance(value, list) else value) for name, value in run.config.items())
    return dials, run.run.settings


def _summarise_config(members: Sequence[RunCurves], t_max: float | None) -> ConfigSummary:
    _check_unique_seeds(members)
    counted = [run for run in members if run.is_included]
    names = sorted({name for run in members for name in run.curves}, key=metric_sort_key)
    metrics = {name: _summarise_metric(name, counted, t_max) for name in names}
    statuses = Counter(run.run.status for run in members)
    return ConfigSummary(
        config=members[0].config,
        seeds=tuple(sorted(run.run.seed for run in counted)),
        status_counts={status: statuses[status] for status in sorted(statuses)},
        metrics=metrics,
        delta_t=_delta_t(metrics),
        at_best=_train_perplexity_at_best_val(counted, t_max),
    )


def _check_unique_seeds(members: Sequence[RunCurves]) -> None:
    seen: dict[int, str] = {}
    for run in members:
        if run.run.seed in seen:
            raise StoreError(
                f"runs {seen[run.run.seed]} and {run.run.id} have the same settings and the same seed {run.run.seed}; "
                "a mean takes each seed once: remove the one that is not wanted with `seedbed rm`"
            )
        seen[run.run.seed] = run.run.id


def _summarise_metric(name: str, runs: Sequence[RunCurves], t_max: float | None) -> MetricSummary:
    curves = {run.run.seed: run.curves.get(name, _EMPTY_CURVE) for run in runs}
    kind = metric_direction(name)
    if kind is None:
        return MetricSummary(
            "last", summarise_seeds({seed: last_value(curve, t_max) for seed, curve in curves.items()}), None
        )
    best = {seed: find_extremum(curve, kind, t_max) for seed, curve in curves.items()}
    value = summarise_seeds({seed: found.value for seed, found in best.items()})
    t_f = summarise_seeds({seed: found.step for seed, found in best.items()})
    return MetricSummary(kind, value, t_f)


def _delta_t(metrics: Mapping[str, MetricSummary]) -> dict[str, SeedSummary]:
    """Δt of loss and accuracy per run, then over seeds."""
    found = {}
    for quantity in ("loss", "accuracy"):
        train, val = (
            metrics[name].t_f if name in metrics else None for name in (f"train/{quantity}", f"val/{quantity}")
        )
        if train and val:
            found[quantity] = summarise_seeds({seed: val.values[seed] - train.values[seed] for seed in val.values})
    return found


def _train_perplexity_at_best_val(runs: Sequence[RunCurves], t_max: float | None) -> dict[str, SeedSummary]:
    """Training perplexity at the step of the best validation perplexity, by which text models are told (report C)."""
    pairs = {run.run.seed: [run.curves.get(f"{split}/perplexity") for split in ("train", "val")] for run in runs}
    values = {
        seed: value_at_best_step(train, val, "min", t_max) for seed, (train, val) in pairs.items() if train and val
    }
    return {"perplexity": summarise_seeds(values)} if values else {}


def summaries_to_json(summaries: Iterable[ConfigSummary]) -> dict[str, Any]:
    """The stable document of `show --json`: equal summaries give equal bytes."""
    document: dict[str, Any] = to_jsonable({"points": [_config_to_dict(summary) for summary in summaries]})
    return document


def _config_to_dict(summary: ConfigSummary) -> dict[str, Any]:
    return {
        "point": summary.config,
        "n": summary.n_included,
        "metrics": {name: _metric_to_dict(metric) for name, metric in summary.metrics.items()},
        "delta_t": {quantity: asdict(spread) for quantity, spread in summary.delta_t.items()},
        **({"at_best": {name: asdict(spread) for name, spread in summary.at_best.items()}} if summary.at_best else {}),
        "status": summary.status_counts,
    }


def _metric_to_dict(metric: MetricSummary) -> dict[str, Any]:
    found: dict[str, Any] = {metric.reduction: asdict(metric.value)}
    return found if metric.t_f is None else found | {"t_f": asdict(metric.t_f)}
