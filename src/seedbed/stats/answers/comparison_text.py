"""Comparisons as sentences: which group is ahead, the effect with its interval, the test and its significance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite, log2
from typing import TypeVar

from seedbed.specs import QuestionSpec
from seedbed.stats.comparison import SIGNIFICANCE_LEVEL, Comparison, summarise_seeds
from seedbed.stats.format import format_interval, format_number, format_p_value, join_words, pluralise
from seedbed.stats.metric_registry import Direction
from seedbed.stats.run_statistics import Statistic, find_statistic
from seedbed.stats.summary import RunCurves

Key = TypeVar("Key")
ValuesBySeed = Mapping[str, Mapping[int, float]]  # group → seed → value
PairComparisons = Mapping[tuple[str, str], Comparison]


@dataclass(frozen=True)
class MetricStatistic:
    """A statistic of a metric, which a question compares; `name` replaces the metric's name in sentences."""

    metric: str
    statistic: str
    name: str = ""

    @classmethod
    def from_question(cls, question: QuestionSpec) -> MetricStatistic:
        return cls(question.metric, question.value)

    def __str__(self) -> str:
        return self.record.format_phrase(self.name or self.metric)

    @property
    def record(self) -> Statistic:
        return find_statistic(self.statistic)

    @property
    def direction(self) -> Direction | None:
        return self.record.direction(self.metric)

    def compute(self, run: RunCurves) -> float:
        return self.record.compute(run, self.metric, None)

    def comparison_verb(self, is_significant: bool) -> str:
        """The verb between the leading group and the other."""
        if self.direction is not None:
            return "beats" if is_significant else "is ahead of"
        return "is earlier than" if self.record.is_step else "is lower than"


def best_key(means: Mapping[Key, float], direction: Direction | None) -> Key:
    """The key with the best mean; without a direction, the lowest, so that early steps come first."""
    return max(means, key=lambda key: means[key]) if direction == "max" else min(means, key=lambda key: means[key])


def format_pair(values: ValuesBySeed, pairs: PairComparisons, statistic: MetricStatistic) -> str:
    """A sentence about two groups: which is ahead, the effect, and the test."""
    [((one, other), comparison)] = pairs.items()
    means = {name: summarise_seeds(by_seed).mean for name, by_seed in values.items()}
    if comparison.low == comparison.high == 0:
        mean = format_number(means[one])
        return f"{one} and {other} are equal on {statistic}: mean {mean}, {_format_sample_size(comparison)}."
    first = best_key(means, statistic.direction)
    second = other if first == one else one
    verb = statistic.comparison_verb(comparison.is_significant)
    return (
        f"{first} {verb} {second} on {statistic} by {format_effect(comparison)} "
        f"({format_number(means[first])} against {format_number(means[second])}; {format_test(comparison, 1)})."
    )


def format_ranking(values: ValuesBySeed, pairs: PairComparisons, statistic: MetricStatistic) -> str:
    """A sentence about three groups or more: the best, the next, and which ones differ significantly from the best."""
    means = {name: summarise_seeds(by_seed).mean for name, by_seed in values.items()}
    first = best_key(means, statistic.direction)
    if len(set(means.values())) == 1:
        return f"{join_words(list(means))} are equal on {statistic}: mean {format_number(means[first])}."
    others = {name: pairs.get((first, name)) or pairs[name, first] for name in means if name != first}
    second = best_key({name: means[name] for name in others}, statistic.direction)
    highest = "highest" if statistic.direction == "max" else "lowest"
    return (
        f"{first} has the {highest} {statistic} ({format_number(means[first])}; "
        f"next is {second}, {format_number(means[second])}, difference {format_effect(others[second])}; "
        f"{format_test(others[second], len(pairs))}).{_format_others(others)}"
    )


def _format_others(others: Mapping[str, Comparison]) -> str:
    different = [name for name, comparison in others.items() if comparison.is_significant]
    rest = [name for name, comparison in others.items() if not comparison.is_significant]
    if not different:
        return ""
    return f" It differs significantly from {join_words(different)}" + (
        f", not from {join_words(rest)}." if rest else "."
    )


def format_effect(comparison: Comparison) -> str:
    """The absolute effect, with its interval if there is one."""
    low, high = (comparison.low, comparison.high) if comparison.effect >= 0 else (-comparison.high, -comparison.low)
    return format_number(abs(comparison.effect)) + (f" {format_interval(low, high)}" if isfinite(low) else "")


def format_test(comparison: Comparison, n_pairs: int) -> str:
    """Sample size, test, p-value and conclusion."""
    if comparison.n < 2 or not isfinite(comparison.low):
        return f"{_format_sample_size(comparison)}: too few for an interval or a test"
    kind = "sign-flip" if comparison.paired else "permutation"
    how = f"exact {kind} test" if comparison.p.exact else f"{kind} test with {comparison.p.arrangements:,} samples"
    p = format_p_value(comparison.corrected) + (f" after Holm's correction for {n_pairs} pairs" if n_pairs > 1 else "")
    return f"{_format_sample_size(comparison)}, {how} {p}{_format_conclusion(comparison, n_pairs)}"


def _format_sample_size(comparison: Comparison) -> str:
    return f"paired over {pluralise(comparison.n, 'seed')}" if comparison.paired else f"{comparison.n} runs, unpaired"


def _format_conclusion(comparison: Comparison, n_pairs: int) -> str:
    """Empty if significant; otherwise whether the data or only the sample size stand against significance."""
    smallest_p = min(1.0, comparison.p.least * n_pairs)
    if comparison.is_significant:
        return ""
    if smallest_p <= SIGNIFICANCE_LEVEL:
        return ", not significant at 5 %"
    if not comparison.paired:
        return f", not significant: with {pluralise(comparison.n, 'run')} the smallest possible p is {smallest_p:.2g}"
    n_needed = ceil(log2(2 * n_pairs / SIGNIFICANCE_LEVEL))  # the smallest p of a sign-flip test is 2 / 2ⁿ per pair
    seeds = pluralise(comparison.n, "seed")
    return f", not significant: with {seeds} the smallest possible p is {smallest_p:.2g}, {n_needed} seeds are needed"
