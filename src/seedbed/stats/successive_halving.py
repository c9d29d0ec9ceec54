"""Successive halving: which configs to train further, judged by how they do after a part of the training.

All configs are trained to the first rung, a step; the best 1 in `factor` go on to the next rung, `factor` times as far,
and so on to the end (Jamieson and Talwalkar 2016). Everything here is a function of stored curves: the same curves give
the same decisions. search.py trains.

>>> rung_steps(900, n_rungs=3, factor=3, eval_first=0, eval_every=50)
(100, 300, 900)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, isfinite, isnan, nan

from seedbed.errors import UsageError
from seedbed.format import format_percent, pluralise
from seedbed.records import LOST_STATUSES
from seedbed.settings import Settings, Value
from seedbed.stats.comparison import SeedSummary, summarise_seeds
from seedbed.stats.metric_registry import metric_direction
from seedbed.stats.run_statistics import compute_statistic
from seedbed.stats.summary import RunCurves

MIN_CORRELATED_CONFIGS = 3  # fewer ranks have no correlation worth printing


@dataclass(frozen=True)
class Candidate:
    """A config of a search, its runs by id, and the steps that each of them trains for in all."""

    settings: Settings
    config: Mapping[str, Value]
    n_steps: int
    run_ids: tuple[str, ...]


@dataclass(frozen=True)
class RankedConfig:
    """A config at one rung: its best value so far over seeds, and its runs that diverged or failed."""

    candidate: Candidate
    value: SeedSummary
    n_lost: int


@dataclass(frozen=True)
class Rung:
    """The configs that were trained to a step, best first; the first `n_kept` are trained further."""

    step: int
    ranking: tuple[RankedConfig, ...]
    n_kept: int

    @property
    def kept(self) -> tuple[Candidate, ...]:
        return tuple(one.candidate for one in self.ranking[: self.n_kept])

    def values(self) -> dict[Settings, float]:
        """The mean of each config whose runs all have a value."""
        return {one.candidate.settings: one.value.mean for one in self.ranking if isfinite(one.value.mean)}


@dataclass(frozen=True)
class HalvingResult:
    """A search: the rungs that have been trained, out of those that are planned."""

    study: str
    metric: str
    factor: int
    steps: tuple[int, ...]  # of all rungs
    rungs: tuple[Rung, ...]

    @property
    def is_complete(self) -> bool:
        return len(self.rungs) == len(self.steps)

    def n_trained_steps(self) -> int:
        """Updates that the search takes, summed over models."""
        last_step = {one.candidate.settings: (one.candidate, rung.step) for rung in self.rungs for one in rung.ranking}
        return sum(min(step, each.n_steps) * len(each.run_ids) for each, step in last_step.values())

    def n_all_steps(self) -> int:
        """Updates that training every config to its end would take, summed over models."""
        return sum(one.candidate.n_steps * len(one.candidate.run_ids) for one in self.rungs[0].ranking)

    def rank_correlation(self, index: int) -> tuple[float, int]:
        """Spearman's correlation between a rung and the next one over the configs of both, and their number."""
        first, second = self.rungs[index].values(), self.rungs[index + 1].values()
        common = [settings for settings in second if settings in first]
        if len(common) < MIN_CORRELATED_CONFIGS:
            return nan, len(common)
        values = [[rung[settings] for settings in common] for rung in (first, second)]
        if any(len(set(each)) == 1 for each in values):
            return nan, len(common)
        from scipy import stats

        return float(stats.spearmanr(*values).statistic), len(common)


def rung_steps(n_steps: int, n_rungs: int, factor: int, eval_first: int, eval_every: int) -> tuple[int, ...]:
    """The step of each rung, the last one T; the others are T/factor, T/factor², …, at the next evaluation."""
    if n_rungs < 2 or factor < 2:
        raise UsageError("successive halving needs at least 2 rungs and a factor of at least 2")
    targets = [ceil(n_steps / factor**power) for power in range(n_rungs - 1, 0, -1)]
    steps = [*(step if step <= eval_first else ceil(step / eval_every) * eval_every for step in targets), n_steps]
    if any(later <= step for step, later in pairwise(steps)):
        raise UsageError(
            f"{n_rungs} rungs with factor {factor} do not fit into {n_steps:,} steps with train.eval_every = "
            f"{eval_every:,}: choose fewer rungs, or evaluate more often"
        )
    return tuple(steps)


def rank_candidates(
    candidates: Sequence[Candidate], runs: Sequence[RunCurves], metric: str, step: int | None
) -> tuple[RankedConfig, ...]:
    """The configs by their mean best value up to a step, best first; those with a lost run come last.

    A config of which a run diverged or failed has no mean over all its seeds that could be compared with the others'.
    """
    sign = -1.0 if metric_direction(metric) == "max" else 1.0
    ranked = []
    for candidate in candidates:
        own = [run for run in runs if run.run.id in candidate.run_ids]
        lost = [run for run in own if run.run.status in LOST_STATUSES]
        values = {run.run.seed: compute_statistic(run, metric, "best", step) for run in own if run not in lost}
        value = summarise_seeds(values) if values else SeedSummary(nan, nan, {})
        ranked.append(RankedConfig(candidate, value, len(lost)))

    def order(one: RankedConfig) -> tuple[bool, bool, float]:
        is_missing = isnan(one.value.mean)
        return is_missing, one.n_lost > 0, 0.0 if is_missing else sign * one.value.mean

    return tuple(sorted(ranked, key=order))


def count_kept(n_configs: int, factor: int) -> int:
    """How many configs go on to the next rung: 1 in `factor`, rounded up."""
    return ceil(n_configs / factor)


def describe_search(result: HalvingResult) -> list[str]:
    """What the search saved, and what it may have missed, in sentences."""
    if not result.rungs:
        return []
    if not result.is_complete:
        return [f"{len(result.rungs)} of {len(result.steps)} rungs are trained; the same command continues."]
    spent, full = result.n_trained_steps(), result.n_all_steps()
    sentences = [
        f"The search takes {spent:,} of the {full:,} model-steps that training every config to its end would take "
        f"({format_percent(1 - spent / full)} saved)."
    ]
    for index, (rung, later) in enumerate(pairwise(result.rungs)):
        correlation, n = result.rank_correlation(index)
        steps = f"from step {rung.step:,} to step {later.step:,}"
        if isfinite(correlation):
            number = f"{correlation:.2f}".replace("-", "−")
            sentences.append(
                f"Among the {n} configs trained {steps}, the ranks have a Spearman correlation of {number}."
            )
        else:
            sentences.append(
                f"Only {pluralise(n, 'config')} went on {steps}: too few to say whether early ranks predict late ones."
            )
    dropped = len(result.rungs[0].ranking) - len(result.rungs[-1].ranking)
    return [
        *sentences,
        f"{pluralise(dropped, 'config')} stopped early; a config that starts slowly, such as one that groks, would "
        "have been dropped too. What was trained of them is kept, and `seedbed run` trains them to their end.",
    ]
