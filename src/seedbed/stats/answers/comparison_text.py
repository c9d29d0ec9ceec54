"""Comparisons as sentences: the verdict, the effect with its interval, and the test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from seedbed.specs import QuestionSpec
from seedbed.stats.comparison import Comparison, summarise_seeds
from seedbed.stats.decision import Verdict, seeds_needed
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

    @property
    def comparative(self) -> str:
        """How the leading group compares with the others: `better`, or without a better direction `lower`."""
        return "better" if self.direction is not None else "earlier" if self.record.is_step else "lower"


def best_key(means: Mapping[Key, float], direction: Direction | None) -> Key:
    """The key with the best mean; without a direction, the lowest, so that early steps come first."""
    return max(means, key=lambda key: means[key]) if direction == "max" else min(means, key=lambda key: means[key])


def format_pair(values: ValuesBySeed, pairs: PairComparisons, statistic: MetricStatistic) -> str:
    """A sentence about two groups: which is better, the effect, and the test."""
    [((one, other), comparison)] = pairs.items()
    means = {name: summarise_seeds(by_seed).mean for name, by_seed in values.items()}
    if comparison.smallest == comparison.largest == 0:
        mean = format_number(means[one])
        return (
            f"Cannot tell {one} and {other} apart: {statistic} is equal in every seed (mean {mean}; "
            f"{format_sample_size(comparison)})."
        )
    first = best_key(means, statistic.direction)
    second = other if first == one else one
    details = f"({format_number(means[first])} against {format_number(means[second])}; {format_test(comparison, 1)})"
    if comparison.is_significant:
        verb = "beats" if statistic.direction else f"is {statistic.comparative} than"
        return f"{first} {verb} {second} on {statistic} by {format_effect(comparison)} {details}."
    ahead = "ahead" if statistic.direction else statistic.comparative
    return (
        f"Cannot tell whether {one} or {other} is {statistic.comparative} on {statistic}: {first} is {ahead} by "
        f"{format_effect(comparison)} {details}."
    )


def format_ranking(values: ValuesBySeed, pairs: PairComparisons, statistic: MetricStatistic) -> str:
    """A sentence about three groups or more: the best, the next, and which ones differ significantly from the best."""
    means = {name: summarise_seeds(by_seed).mean for name, by_seed in values.items()}
    first = best_key(means, statistic.direction)
    if len(set(means.values())) == 1:
        mean = format_number(means[first])
        return f"Cannot tell {join_words(list(means))} apart: {statistic} has the same mean, {mean}, in all of them."
    others = comparisons_with(first, pairs)
    second = best_key({name: means[name] for name in others}, statistic.direction)
    highest = "highest" if statistic.direction == "max" else "lowest"
    is_decided = rank_verdict(values, pairs, statistic) == "yes"
    claim = "" if is_decided else f"Cannot tell which has the {highest} {statistic}: "
    subject = f"the {highest} {statistic}" if is_decided else f"the {highest} mean"
    return (
        f"{claim}{first} has {subject} ({format_number(means[first])}; "
        f"next is {second}, {format_number(means[second])}, difference {format_effect(others[second])}; "
        f"{format_test(others[second], len(pairs))}).{_format_others(others)}"
    )


def format_without_verdict(values: ValuesBySeed, pairs: PairComparisons, statistic: MetricStatistic) -> str:
    """The numbers alone, for groups that must not be ranked."""
    means = {name: summarise_seeds(by_seed).mean for name, by_seed in values.items()}
    listed = f"mean {statistic}: {join_words([f'{name} {format_number(mean)}' for name, mean in means.items()])}"
    if len(pairs) > 1:
        return f"{listed[0].upper()}{listed[1:]}."
    [comparison] = pairs.values()
    test = format_test(comparison, 1)
    return f"{listed[0].upper()}{listed[1:]}, a difference of {format_effect(comparison)} ({test})."


def rank_verdict(values: ValuesBySeed, pairs: PairComparisons, statistic: MetricStatistic) -> Verdict:
    """Yes if the best group differs from every other one."""
    means = {name: summarise_seeds(by_seed).mean for name, by_seed in values.items()}
    others = comparisons_with(best_key(means, statistic.direction), pairs)
    return "yes" if all(comparison.is_significant for comparison in others.values()) else "cannot tell"


def comparisons_with(name: str, pairs: PairComparisons) -> dict[str, Comparison]:
    """The comparisons of one group with every other one, by the name of the other."""
    return {other if one == name else one: pairs[one, other] for one, other in pairs if name in (one, other)}


def _format_others(others: Mapping[str, Comparison]) -> str:
    different = [name for name, comparison in others.items() if comparison.is_significant]
    rest = [name for name, comparison in others.items() if not comparison.is_significant]
    if not different:
        return ""
    return f" It differs significantly from {join_words(different)}" + (
        f", not from {join_words(rest)}." if rest else "."
    )


def format_effect(comparison: Comparison) -> str:
    """The absolute effect, with its interval if there is one; differences that are all equal have none to show."""
    interval = f" {format_interval(*oriented_interval(comparison))}" if comparison.shows_interval else ""
    return format_number(abs(comparison.effect)) + interval


def oriented_interval(comparison: Comparison) -> tuple[float, float]:
    """The interval of the effect without its sign; that of the single differences if there are too few seeds."""
    has_interval = comparison.has_interval
    low, high = (comparison.low, comparison.high) if has_interval else (comparison.smallest, comparison.largest)
    return (low, high) if comparison.effect >= 0 else (-high, -low)


def format_test(comparison: Comparison, n_tests: int) -> str:
    """Sample size, test and p-value; with too few seeds, the range of the differences and the seeds needed."""
    size = format_sample_size(comparison)
    if not comparison.has_interval:
        low, high = oriented_interval(comparison)
        observed = f", whose differences range from {format_number(low)} to {format_number(high)}"
        return f"{size}{observed if comparison.n > 1 else ''}: {_format_needed(comparison, n_tests)}"
    kind = "sign-flip" if comparison.paired else "permutation"
    how = f"{kind} and t tests" if comparison.shows_interval else f"all equal, {kind} test"
    p = format_p_value(comparison.corrected) + (f" after Holm's correction for {n_tests} pairs" if n_tests > 1 else "")
    return f"{size}, {how} {p}"


def format_sample_size(comparison: Comparison) -> str:
    return f"paired over {pluralise(comparison.n, 'seed')}" if comparison.paired else f"{comparison.n} runs, unpaired"


def _format_needed(comparison: Comparison, n_tests: int) -> str:
    """How many seeds a test needs."""
    n_needed = seeds_needed(n_tests, comparison.paired)
    tests = f" of {n_tests} pairs" if n_tests > 1 else ""
    per_group = "" if comparison.paired else " per group"
    return f"a test{tests} needs {n_needed} seeds{per_group}"
