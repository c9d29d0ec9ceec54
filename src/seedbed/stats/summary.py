"""From the curves of many runs to one summary per config: best values, t_f and Δt over seeds.

Extrema are taken per run, and only then averaged. Only complete runs enter the means; the others are counted by
status, so that a table can show 2 of 3. A config without a complete run is summarised up to the last step that all its
runs have reached.

>>> summarise([])
[]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import isnan
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from seedbed.errors import StoreError
from seedbed.interp.analysis import Analysis
from seedbed.records import LOST_STATUSES, Curve, RunStatus, StoredRun, to_jsonable
from seedbed.settings import Settings, Value
from seedbed.stats.chance import ChanceLevel, chance_level, is_above_chance, token_unit
from seedbed.stats.comparison import SeedSummary, summarise_seeds
from seedbed.stats.curve_statistics import (
    find_extremum,
    first_step_reaching,
    last_value,
    truncate_curve,
    value_at_best_step,
)
from seedbed.stats.metric_registry import MetricName, metric_direction, metric_sort_key, training_metric
from seedbed.stats.survival import EventTime

Reduction: TypeAlias = Literal["min", "max", "last"]
TABLE_THRESHOLD, TABLE_THRESHOLD_NAME = 0.9, "t_90"  # the accuracy whose first step is summarised
_EMPTY_CURVE: Final = Curve(np.array([], dtype=np.int64), np.array([], dtype=np.float64))


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
    weights_error: str = ""  # why it could not be analysed: its weights are missing or damaged

    def curve(self, metric: str) -> Curve:
        """The recorded values of a metric; empty if there are none."""
        return self.curves.get(metric, _EMPTY_CURVE)

    @cached_property
    def is_included(self) -> bool:
        """Does this run have values, be it complete or not? Runs that diverged or failed have none."""
        is_evaluated = any(curve.steps.size for curve in self.curves.values())
        return is_evaluated and self.run.status not in LOST_STATUSES

    @property
    def is_complete(self) -> bool:
        """Does this run count in statistics over seeds? It must have finished, or have been trained up to `t_max`."""
        is_trained = self.run.status == "finished" or (self.t_max is not None and self.run.step >= self.t_max)
        return self.is_included and is_trained

    @property
    def last_step(self) -> int:
        """The last step with an evaluation; 0 if there is none."""
        return max((int(curve.steps[-1]) for curve in self.curves.values() if curve.steps.size), default=0)


def describe_missing_weights(runs: Sequence[RunCurves]) -> list[str]:
    """A sentence that says how many runs could not be analysed for want of their weights; empty if none."""
    errors = [run.weights_error for run in runs if run.weights_error]
    return [f"{len(errors)} of {len(runs)} runs could not be analysed: {errors[0]}."] if errors else []


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
    so_far: int | None = None  # the last step that counts, if no run is complete; None: complete runs are summarised
    unfinished: tuple[RunCurves, ...] = ()  # runs with evaluations that are not complete
    chance: ChanceLevel | None = None  # of the task; None: it has none
    at_chance: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict
    )  # accuracy → seeds that never exceeded chance
    threshold_times: Mapping[str, Mapping[int, EventTime]] = field(default_factory=dict)  # accuracy → t_90 by seed
    token_unit: Hashable = None  # configs with equal ones predict the same tokens: their losses can be compared

    @property
    def n_included(self) -> int:
        """Number of runs in the means."""
        return len(self.seeds)

    @property
    def n_runs(self) -> int:
        """Number of all runs, including those excluded from the means."""
        return sum(self.status_counts.values())

    @property
    def planned_steps(self) -> int | None:
        """The steps that its unfinished runs are to train for; None if unknown."""
        return next((run.planned_steps for run in self.unfinished), None)


def summarise(runs: Sequence[RunCurves], t_max: float | None = None) -> list[ConfigSummary]:
    """One summary per config, in order of first appearance, from the evaluations with step ≤ t_max."""
    return [_summarise_config(members, t_max) for members in group_by_config(runs)]


def group_by_config(runs: Iterable[RunCurves]) -> list[list[RunCurves]]:
    """Groups of runs that differ only in their seed, in order of first appearance.

    Truncations of a run (`alpha`), the groups of a comparison (`group`) and versions of an edited text (`dataset`) stay
    separate, though their settings agree.
    """
    groups: dict[Hashable, list[RunCurves]] = {}
    numbers: dict[Settings, int] = {}
    number_of: dict[int, int] = {}  # by identity: the runs of a config mostly share their settings, whose hash is slow
    for run in runs:
        settings = run.run.settings
        if id(settings) not in number_of:
            number_of[id(settings)] = numbers.setdefault(settings, len(numbers))
        beside_settings = (run.config.get(name) for name in ("alpha", "group", "dataset"))
        groups.setdefault((number_of[id(settings)], *beside_settings), []).append(run)
    return list(groups.values())


def _summarise_config(members: Sequence[RunCurves], t_max: float | None) -> ConfigSummary:
    _check_unique_seeds(members)
    included, so_far = select_for_mean(members, t_max)
    last = t_max if so_far is None else so_far
    names = sorted({name for run in members for name in run.curves}, key=metric_sort_key)
    metrics = {name: _summarise_metric(name, included, last) for name in names}
    statuses = Counter(run.run.status for run in members)
    accuracies = [name for name in names if MetricName.parse(name).quantity == "accuracy"]
    return ConfigSummary(
        config=members[0].config,
        seeds=tuple(sorted(run.run.seed for run in included)),
        status_counts={status: statuses[status] for status in sorted(statuses)},
        metrics=metrics,
        delta_t=_delta_t(metrics),
        at_best=_train_perplexity_at_best_val(included, last),
        so_far=so_far,
        unfinished=tuple(run for run in members if run.is_included and (so_far is not None or run not in included)),
        chance=chance_level(members[0].run),
        at_chance={name: seeds for name in accuracies if (seeds := _seeds_at_chance(included, name, last))},
        threshold_times={
            name: {
                run.run.seed: time for run in included if (time := time_to_accuracy(run, name, TABLE_THRESHOLD, last))
            }
            for name in accuracies
        },
        token_unit=(token_unit(members[0].run), members[0].config.get("dataset")),
    )


def select_for_mean(members: Sequence[RunCurves], t_max: float | None = None) -> tuple[list[RunCurves], int | None]:
    """The runs of a config that count in its means: the complete ones.

    If there are none, all that have evaluations, up to the last step that each of them reached, which is returned too.
    """
    evaluated = [run for run in members if run.is_included]
    complete = [run for run in evaluated if run.is_complete or (t_max is not None and run.run.step >= t_max)]
    if complete or not evaluated:
        return complete, None
    return evaluated, min(run.last_step for run in evaluated)


def _seeds_at_chance(runs: Sequence[RunCurves], metric: str, t_max: float | None) -> tuple[int, ...]:
    """The seeds whose best accuracy does not exceed chance."""
    return tuple(run.run.seed for run in runs if never_left_chance(run, metric, t_max))


def never_left_chance(run: RunCurves, metric: str, t_max: float | None = None) -> bool:
    """Did the accuracy in the split of this metric never exceed chance? Then no step is its best. False if unknown."""
    parts = MetricName.parse(metric)
    accuracy = f"{parts.split}/accuracy{parts.group}"
    best = find_extremum(run.curve(accuracy), "max", t_max).value
    return not isnan(best) and not is_above_chance(run.run, accuracy, best)


def time_to_accuracy(run: RunCurves, metric: str, threshold: float, t_max: float | None = None) -> EventTime | None:
    """The first step with at least this accuracy, or the last step as a censored time; None without evaluations."""
    curve = truncate_curve(run.curve(metric), t_max)
    if not curve.steps.size:
        return None
    step = first_step_reaching(curve, threshold)
    return EventTime(step, True) if step == step else EventTime(float(curve.steps[-1]), False)


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
    curves = {run.run.seed: run.curve(name) for run in runs}
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
            metrics[name].t_f if name in metrics else None
            for name in (training_metric(quantity, metrics), f"val/{quantity}")
        )
        if train and val:
            delta_t[quantity] = summarise_seeds({seed: val.values[seed] - train.values[seed] for seed in val.values})
    return delta_t


def _train_perplexity_at_best_val(runs: Sequence[RunCurves], t_max: float | None) -> dict[str, SeedSummary]:
    """Training perplexity at the step of the best validation perplexity, which report C compares text models by."""
    pairs = {
        run.run.seed: [run.curves.get(training_metric("perplexity", run.curves)), run.curves.get("val/perplexity")]
        for run in runs
    }
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
        **({} if summary.chance is None else {"chance": asdict(summary.chance), "at_chance": summary.at_chance}),
        TABLE_THRESHOLD_NAME: {
            name: {seed: asdict(time) for seed, time in times.items()}
            for name, times in summary.threshold_times.items()
        },
        **({} if summary.so_far is None else {"so_far": summary.so_far, "planned_steps": summary.planned_steps}),
        "status": summary.status_counts,
    }


def _metric_to_dict(metric: MetricSummary) -> dict[str, Any]:
    value: dict[str, Any] = {metric.reduction: asdict(metric.value)}
    return value if metric.t_f is None else value | {"t_f": asdict(metric.t_f)}
