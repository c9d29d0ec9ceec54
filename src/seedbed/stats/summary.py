"""From the curves of many runs to one summary per config: best values, t_f and Δt over seeds.

Extrema are taken per run, and only then averaged. Runs that diverged or failed, and runs without an evaluation, are
excluded from the means but counted by status, so that a table can show 2/3.

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
    """One stored run, its values of the settings that the study varies, and its curves by metric name."""

    run: StoredRun
    config: Mapping[str, Value]
    curves: Mapping[str, Curve]
    seconds: Mapping[str, float] = field(default_factory=dict)  # its share of its pack's time: compute, evaluate
    analyses: tuple[Analysis, ...] = ()  # of its checkpoints, by step
    steady_bytes: int | None = None  # its share of its pack's memory between updates; None: not measured
    t_max: int | None = None  # the step that its curves are truncated at; None: they are whole
    planned_steps: int | None = None  # that it is to train for; None: unknown

    @property
    def is_included(self) -> bool:
        """Does this run have values, be it complete or not? Runs that diverged or failed have none."""
        is_evaluated = any(curve.steps.size for curve in self.curves.values())
        return is_evaluated and self.run.status not in ("diverged", "failed")

    @property
    def is_complete(self) -> bool:
        """Does this run count in statistics over seeds? It must have finished, or have been trained up to `t_max`."""
        is_trained = self.run.status == "finished" or (self.t_max is not None and self.run.step >= self.t_max)
        return self.is_included and is_trained


@dataclass(frozen=True)
class MetricSummary:
    """One metric of one config: its best value and t_f; a metric without a direction has its last value and no t_f."""

    reduction: Reduction
    value: SeedSummary
    t_f: SeedSummary | None


@dataclass(frozen=True)
class ConfigSummary:
    """One config over its seeds; `status_counts` covers all its runs, `seeds` only those in the means."""

    config: Mapping[str, Value]
    seeds: tuple[int, ...]
    status_counts: Mapping[RunStatus, int]
    metrics: Mapping[str, MetricSummary]
    delta_t: Mapping[str, SeedSummary]
    # quantity → training value at the step of the best validation value
    at_best: Mapping[str, SeedSummary] = field(default_factory=dict)

    @property
    def n_included(self) -> int:
        """Number of runs in the means."""
        return len(self.seeds)

    @property
    def n_runs(self) -> int:
        """Number of all runs, including those excluded from the means."""
        return sum(self.status_counts.values())


def summarise(runs: Sequence[RunCurves], t_max: float | None = None) -> list[ConfigSummary]:
    """One summary per config, in order of first appearance, from the evaluations with step ≤ t_max."""
    by_config: dict[Hashable, list[RunCurves]] = {}
    for run in runs:
        by_config.setdefault(_config_key(run), []).append(run)
    return [_summarise_config(members, t_max) for members in by_config.values()]


def _config_key(run: RunCurves) -> Hashable:
    """Everything but the seed; includes all settings, so that runs with different settings never share a mean."""
    config = frozenset((name, tuple(value) if isinstance(value, list) else value) for name, value in run.config.items())
    return config, run.run.settings


def _summarise_config(members: Sequence[RunCurves], t_max: float | None) -> ConfigSummary:
    _check_unique_seeds(members)
    included = [run for run in members if run.is_included]
    names = sorted({name for run in members for name in run.curves}, key=metric_sort_key)
    metrics = {name: _summarise_metric(name, included, t_max) for name in names}
    statuses = Counter(run.run.status for run in members)
    return ConfigSummary(
        config=members[0].config,
        seeds=tuple(sorted(run.run.seed for run in included)),
        status_counts={status: statuses[status] for status in sorted(statuses)},
        metrics=metrics,
        delta_t=_delta_t(metrics),
        at_best=_train_perplexity_at_best_val(included, t_max),
    )


def _check_unique_seeds(members: Sequence[RunCurves]) -> None:
    id_by_seed: dict[int, str] = {}
    for run in members:
        if run.run.seed in id_by_seed:
            raise StoreError(
                f"runs {id_by_seed[run.run.seed]} and {run.run.id} have the same settings and seed ({run.run.seed}); "
                "a mean uses each seed once: remove the unwanted run with `seedbed rm`"
            )
        id_by_seed[run.run.seed] = run.run.id


def _summarise_metric(name: str, runs: Sequence[RunCurves], t_max: float | None) -> MetricSummary:
    curves = {run.run.seed: run.curves.get(name, _EMPTY_CURVE) for run in runs}
    direction = metric_direction(name)
    if direction is None:
        last = summarise_seeds({seed: last_value(curve, t_max) for seed, curve in curves.items()})
        return MetricSummary("last", last, None)
    best = {seed: find_extremum(curve, direction, t_max) for seed, curve in curves.items()}
    value = summarise_seeds({seed: extremum.value for seed, extremum in best.items()})
    t_f = summarise_seeds({seed: extremum.step for seed, extremum in best.items()})
    return MetricSummary(direction, value, t_f)


def _delta_t(metrics: Mapping[str, MetricSummary]) -> dict[str, SeedSummary]:
    """Δt of loss and accuracy per run, then over seeds."""
    delta_t = {}
    for quantity in ("loss", "accuracy"):
        train, val = (
            metrics[name].t_f if name in metrics else None for name in (f"train/{quantity}", f"val/{quantity}")
        )
        if train and val:
            delta_t[quantity] = summarise_seeds({seed: val.values[seed] - train.values[seed] for seed in val.values})
    return delta_t


def _train_perplexity_at_best_val(runs: Sequence[RunCurves], t_max: float | None) -> dict[str, SeedSummary]:
    """Training perplexity at the step of the best validation perplexity, which report C compares text models by."""
    pairs = {run.run.seed: [run.curves.get(f"{split}/perplexity") for split in ("train", "val")] for run in runs}
    values = {
        seed: value_at_best_step(train, val, "min", t_max) for seed, (train, val) in pairs.items() if train and val
    }
    return {"perplexity": summarise_seeds(values)} if values else {}


def summaries_to_json(summaries: Iterable[ConfigSummary]) -> dict[str, Any]:
    """The document of `show --json`, in a stable order: equal summaries give equal bytes."""
    document: dict[str, Any] = to_jsonable({"configs": [_config_to_dict(summary) for summary in summaries]})
    return document


def _config_to_dict(summary: ConfigSummary) -> dict[str, Any]:
    return {
        "config": summary.config,
        "n": summary.n_included,
        "metrics": {name: _metric_to_dict(metric) for name, metric in summary.metrics.items()},
        "delta_t": {quantity: asdict(seeds) for quantity, seeds in summary.delta_t.items()},
        **({"at_best": {name: asdict(seeds) for name, seeds in summary.at_best.items()}} if summary.at_best else {}),
        "status": summary.status_counts,
    }


def _metric_to_dict(metric: MetricSummary) -> dict[str, Any]:
    value: dict[str, Any] = {metric.reduction: asdict(metric.value)}
    return value if metric.t_f is None else value | {"t_f": asdict(metric.t_f)}
