"""Comparisons as sentences: who is ahead, by how much, with which interval and test, and when nothing can be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite, log2
from typing import TypeVar

from seedbed.specs import QuestionSpec
from seedbed.stats.comparison import SIGNIFICANCE_LEVEL, Comparison, summarise_seeds
from seedbed.stats.format import format_interval, format_number, format_p_value, join_words, pluralise
from seedbed.stats.metric_registry import Direction
from seedbed.stats.run_statistics import StatisticName, compute_statistic, statistic_direction
from seedbed.stats.summary import RunCurves

Key = TypeVar("Key")
ValuesBySeed = Mapping[str, Mapping[int, float]]  # group → seed → number
PairComparisons = Mapping[tuple[str, str], Comparison]

_STATISTIC_PHRASES: Mapping[StatisticName, str] = {
    "best": "{}",
    "last": "the last {}",
    "t_f": "t_f of {} (the first step at its best)",
    "delta_t": "Δt of {} (t_f of validation minus t_f of training)",
    "gap": "the gap of {} (validation against training)",
    "seconds": "compute time in seconds",
    "memory": "memory in MiB",
}


@dataclass(frozen=True)
class MetricStatistic:
    """What a question is about: one value of one metric; `name` stands for the metric where groups are metrics too."""

    metric: str
    statistic: StatisticName
    name: str = ""

    @classmethod
    def from_question(cls, question: QuestionSpec) -> MetricStatistic:
        return cls(question.metric, question.value)

    def __str__(self) -> str:
        return _STATISTIC_PHRASES[self.statistic].format(self.name or self.metric)

    @property
    def direction(self) -> Direction | None:
        return statistic_direction(self.metric, self.statistic)

    def compute(self, run: RunCurves) -> float:
        return compute_statistic(run, self.metric, self.statistic)

    def comparison_verb(self, is_significant: bool) -> str:
        """The verb for the one in front."""
        if self.direction is not None:
            return "beats" if is_significant else "is ahead of"
        return "is earlier than" if self.statistic in ("t_f", "delta_t") else "is lower than"


def best_key(means: Mapping[Key, float], direction: Direction | None) -> Key:
    """The one in front; where nothing is better, the lowest: early steps come first."""
    return max(means, key=lambda key: means[key]) if direction == "max" else min(means, key=lambda key: means[key])


def format_pair(values: ValuesBySeed, pairs: PairComparisons, statistic: MetricStatistic) -> str:
    """Two groups: the one in front, the effect, and what the test says."""
    [((one, other), found)] = pairs.items()
    means = {name: summarise_seeds(by_seed).mean for name, by_seed in values.items()}
    if found.low == found.high == 0:
        return f"{one} and {other} are equal on {statistic}: {format_number(means[one])} on the mean, {_format_sample_size(found)}."
    front = best_key(means, statistic.direction)
    behind = other if front == one else one
    return (
        f"{front} {statistic.comparison_verb(found.is_significant)} {behind} on {statistic} by {format_effect(found)} "
        f"({format_number(means[front])} against {format_number(means[behind])}; {format_test(found, 1)})."
    )


def format_ranking(values: ValuesBySeed, pairs: PairComparisons, statistic: MetricStatistic) -> str:
    """Three groups or more: who is in front, whom that one clearly differs from, and whom not."""
    means = {name: summarise_seeds(by_seed).mean for name, by_seed in values.items()}
    front = best_key(means, statistic.direction)
    if len(set(means.values())) == 1:
        return f"{join_words(list(means))} are equal on {statistic}: {format_number(means[front])}."
    against = {name: pairs.get((front, name)) or pairs[name, front] for name in means if name != front}
    second = best_key({name: means[name] for name in against}, statistic.direction)
    highest = "highest" if statistic.direction == "max" else "lowest"
    return (
        f"{front} has the {highest} {statistic} ({format_number(means[front])}; next is {second}, {format_number(means[second])}, "
        f"difference {format_effect(against[second])}; {format_test(against[second], len(pairs))}).{_format_others(against)}"
    )


def _format_others(against: Mapping[str, Comparison]) -> str:
    beaten = [name for name, found in against.items() if found.is_significant]
    rest = [name for name, found in against.items() if not found.is_significant]
    if not beaten:
        return ""
    return f" It clearly differs from {join_words(beaten)}" + (f", not from {join_words(rest)}." if rest else ".")


def format_effect(comparison: Comparison) -> str:
    """The size of the effect, whichever way it goes, with its interval where there is one."""
    low, high = (comparison.low, comparison.high) if comparison.effect >= 0 else (-comparison.high, -comparison.low)
    return format_number(abs(comparison.effect)) + (f" {format_interval(low, high)}" if isfinite(low) else "")


def format_test(comparison: Comparison, n_pairs: int) -> str:
    """How it was tested and what follows."""
    if comparison.n < 2 or not isfinite(comparison.low):
        return f"{_format_sample_size(comparison)}: no interval and no test, cannot tell with one seed"
    kind = "sign-flip" if comparison.paired else "permutation"
    how = f"exact {kind} test" if comparison.p.exact else f"{kind} test by {comparison.p.arrangements:,} draws"
    p = format_p_value(comparison.corrected) + (f" after Holm's correction for {n_pairs} pairs" if n_pairs > 1 else "")
    return f"{_format_sample_size(comparison)}, {how} {p}{_format_conclusion(comparison, n_pairs)}"


def _format_sample_size(comparison: Comparison) -> str:
    return f"paired over {pluralise(comparison.n, 'seed')}" if comparison.paired else f"{comparison.n} runs, not paired"


def _format_conclusion(comparison: Comparison, n_pairs: int) -> str:
    least = min(1.0, comparison.p.least * n_pairs)
    if comparison.is_significant:
        return ""
    if least <= SIGNIFICANCE_LEVEL:
        return ": cannot tell apart at 5 %"
    if not comparison.paired:
        return f": cannot tell with {pluralise(comparison.n, 'run')}, whose least possible p is {least:.2g}"
    needed = ceil(log2(2 * n_pairs / SIGNIFICANCE_LEVEL))
    return f": cannot tell with {pluralise(comparison.n, 'seed')}, whose least possible p is {least:.2g}; {needed} could tell"
