"""Ensembles of the seeds of each config: what the mean of their predictions achieves on held-out data.

    for result in ensemble_study(home, "characters/heads", only=["model.heads=4"]):
        result.metrics["val/loss"].ensemble

Nothing is stored: an ensemble takes as long as one evaluation of its members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbed.errors import MissingData, UsageError
from seedbed.format import format_config
from seedbed.records import StoredRun
from seedbed.report.study_runs import differing_settings, group_stored_runs, matching_runs, pick_settings
from seedbed.report.tables import Table, spread_format
from seedbed.report.trained_models import parse_step
from seedbed.stats.comparison import summarise_seeds
from seedbed.stats.metric_registry import metric_direction, metric_sort_key
from seedbed.store import Store, open_store
from seedbed.study.run_data import require_training_data
from seedbed.tasks.base import HELD_OUT_SPLITS

if TYPE_CHECKING:
    from seedbed.training.ensemble import EnsembleMetric

MIN_MEMBERS = 2


@dataclass(frozen=True)
class EnsembleResult:
    """The ensemble of a config's finished runs: metrics on held-out data, and the runs with their steps."""

    label: str  # of the config; empty if the study has one
    runs: tuple[StoredRun, ...]
    steps: tuple[int, ...]  # of the weights, by run
    metrics: Mapping[str, EnsembleMetric]

    def best_member(self, metric: str) -> float:
        """The best value of a single run on the same data."""
        values = [value for value in self.metrics[metric].members if isfinite(value)]
        return min(values) if metric_direction(metric) == "min" else max(values)


def ensemble_study(
    home: Path, study: str, only: Sequence[str] = (), step: str = "last", device: str | None = None
) -> list[EnsembleResult]:
    """The ensemble of each config that has at least two finished runs.

    UsageError if their seeds hold out different data; MissingData if there are no such runs, or the data is gone.
    """
    with open_store(home, read_only=True) as store:
        runs = [run for run in matching_runs(store, study, only) if run.status == "finished"]
        groups = [members for members in group_stored_runs(runs).values() if len(members) >= MIN_MEMBERS]
        if not groups:
            raise MissingData(f"no config of {study} has two finished runs; an ensemble needs at least two seeds")
        names = differing_settings([run for members in groups for run in members])
        results = [_evaluate_members(store, members, names, step, device) for members in groups]
    if not any(result.metrics for result in results):
        raise UsageError(
            f"the runs of {study} have no held-out data in common, since each draws its split by its seed: an ensemble "
            "would be scored on what some of its members were trained on"
        )
    return results


def _evaluate_members(
    store: Store, members: Sequence[StoredRun], names: Sequence[str], step: str, device: str | None
) -> EnsembleResult:
    from seedbed.training.ensemble import evaluate_ensemble

    require_training_data(members[0])
    checkpoints = [store.find_checkpoint(run.id, parse_step(step)) for run in members]
    weights = [store.load_weights(one.run, one.step) for one in checkpoints]
    metrics = evaluate_ensemble([run.settings for run in members], [run.seed for run in members], weights, device)
    held_out = {name: metrics[name] for name in sorted(metrics, key=metric_sort_key) if _is_ranked(name)}
    label = format_config(pick_settings(members[0].settings, names))
    return EnsembleResult(label, tuple(members), tuple(one.step for one in checkpoints), held_out)


def _is_ranked(metric: str) -> bool:
    """Whether this is a metric of held-out data with a direction in which it improves."""
    is_held_out = metric.startswith(tuple(f"{split}{end}" for split in HELD_OUT_SPLITS for end in "/["))
    return is_held_out and metric_direction(metric) is not None


def ensemble_table(study: str, results: Sequence[EnsembleResult]) -> Table:
    """A row for each config and metric: the ensemble, the mean of its members, and the best of them."""
    rows: list[tuple[str, ...]] = []
    best: set[tuple[int, int]] = set()
    for result in results:
        for metric, values in result.metrics.items():
            cells = [summarise_seeds({0: values.ensemble}), summarise_seeds(dict(enumerate(values.members)))]
            cells.append(summarise_seeds({0: result.best_member(metric)}))
            sign = -1 if metric_direction(metric) == "min" else 1
            if sign * values.ensemble > sign * result.best_member(metric):
                best.add((len(rows), 3))
            rows.append((result.label or "all", metric, str(len(values.members)), *map(spread_format(metric), cells)))
    notes = [
        "ensemble: the mean of the probabilities that the seeds predict; highlighted if better than every single run",
        "best single: chosen by its value on the same data, so it is optimistic",
    ]
    notes += [f"{result.label}: its seeds have no held-out data in common" for result in results if not result.metrics]
    columns = ("config", "metric", "seeds", "ensemble", "single, mean ± std", "best single")
    return Table(f"{study}: ensembles of seeds", columns, tuple(rows), tuple(notes), frozenset(best), n_labels=2)


def ensembles_as_json(results: Sequence[EnsembleResult]) -> list[dict[str, Any]]:
    return [
        {
            "config": result.label,
            "runs": [run.id for run in result.runs],
            "seeds": [run.seed for run in result.runs],
            "steps": result.steps,
            "metrics": {
                name: {"ensemble": one.ensemble, "members": one.members, "best": result.best_member(name)}
                for name, one in result.metrics.items()
            },
        }
        for result in results
    ]
