"""Statistics over seeds: mean and std as in the reports' tables, confidence intervals, and comparisons of groups.

The std of a `SeedSummary` is the population's (ddof 0), so two seeds give half their difference; Student's intervals
use the sample std (ddof 1). Groups are compared by the rule of `decision`. `groups` decides which runs form a group.

A difference counts if two tests reject: a permutation test, which is exact if the groups do not differ at all, and a t
test, which allows for skewed differences and unequal spreads. Its p-value is the larger of the two, and its interval
holds what either of them does not reject.

>>> summarise_seeds({0: 9800.0, 42: 10001.0})
SeedSummary(mean=9900.5, std=100.5, values={0: 9800.0, 42: 10001.0})
>>> comparison = compare_by_seed({0: 0.9, 1: 0.8, 2: 0.7}, {0: 0.5, 1: 0.5, 2: 0.4})
>>> f"{comparison.effect:.3f} in [{comparison.low:.3f}, {comparison.high:.3f}], p = {comparison.p.value}"
'0.333 in [-inf, inf], p = 0.25'
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import isfinite, nan
from typing import TypeAlias, TypeVar

import numpy as np

from seedbed.stats.decision import SIGNIFICANCE_LEVEL, Verdict, decide_difference, holm_levels
from seedbed.stats.permutation_tests import PValue, ShiftTest, flip_signs, holm_correction, permute_groups
from seedbed.stats.t_tests import TTest, skewed_t_test, student_t_test, welch_test

RELATIVE_WIDTH_TOLERANCE = 1e-9  # differences that differ only by rounding are equal
MIN_MATCHING_SEEDS = 6  # with which a paired test can reach 5 %
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class SeedSummary:
    """Mean and population std over seeds, and the value of each seed."""

    mean: float
    std: float
    values: Mapping[int, float]

    @property
    def n(self) -> int:
        """Number of seeds."""
        return len(self.values)


def summarise_seeds(values: Mapping[int, float]) -> SeedSummary:
    """Mean and std of these values; a NaN propagates, since a mean over fewer seeds would be a different statistic."""
    by_seed = {seed: float(values[seed]) for seed in sorted(values)}
    if not by_seed:
        return SeedSummary(nan, nan, by_seed)
    numbers = np.array(list(by_seed.values()))
    with np.errstate(invalid="ignore"):  # inf − inf is NaN, as intended
        if not np.isfinite(numbers).all():
            return SeedSummary(float(numbers.mean()), nan, by_seed)
    offsets = numbers - numbers[0]  # so that equal values have a std of exactly 0
    return SeedSummary(float(numbers[0] + offsets.mean()), float(offsets.std()), by_seed)


# ---- intervals ----


@dataclass(frozen=True)
class ConfidenceInterval:
    """A mean and its 95 % confidence interval; the bounds are ±inf for a single value."""

    mean: float
    low: float
    high: float
    n: int


def mean_confidence_interval(values: Sequence[float]) -> ConfidenceInterval:
    """Student's t confidence interval of the mean, for values that are roughly normal."""
    numbers = np.asarray(values, dtype=float)
    if numbers.size == 0 or not np.isfinite(numbers).all():
        return ConfidenceInterval(nan, nan, nan, numbers.size)
    interval = student_t_test(numbers).interval(SIGNIFICANCE_LEVEL)
    return ConfidenceInterval(float(numbers.mean()), *interval, numbers.size)


def has_width(low: float, high: float) -> bool:
    """Is this more than a point, beyond rounding?"""
    return high - low > RELATIVE_WIDTH_TOLERANCE * max(abs(low), abs(high))


def clopper_pearson(n_successes: int, n: int) -> tuple[float, float]:
    """Exact 95 % confidence interval of a binomial proportion (Clopper and Pearson 1934)."""
    from scipy.special import betaincinv

    low = float(betaincinv(n_successes, n - n_successes + 1, SIGNIFICANCE_LEVEL / 2)) if n_successes else 0.0
    high = float(betaincinv(n_successes + 1, n - n_successes, 1 - SIGNIFICANCE_LEVEL / 2)) if n_successes < n else 1.0
    return low, high


# ---- two groups ----


@dataclass(frozen=True)
class Comparison:
    """First minus second group: the mean difference, its test, and the interval that the test does not reject."""

    effect: float
    low: float  # −inf and inf if there are too few seeds for an interval; both ends are equal if all differences are
    high: float
    p: PValue  # the larger of the permutation test's and the t test's
    paired: bool
    n: int  # pairs, or values of both groups together
    seeds: tuple[int, ...]  # the paired seeds; empty if unpaired
    left_out: int = 0  # values without a partner, or not finite
    corrected: float = nan  # Holm-corrected p; p itself if a single pair is compared
    smallest: float = nan  # difference of a seed; if unpaired, of any two runs
    largest: float = nan

    @property
    def verdict(self) -> Verdict:
        """Is there a difference, after correction?"""
        return decide_difference(self.corrected)

    @property
    def is_significant(self) -> bool:
        """Is the difference significant at 5 %, after correction?"""
        return self.verdict == "yes"

    @property
    def has_interval(self) -> bool:
        """Are there enough seeds for an interval, so that the test could have rejected?"""
        return isfinite(self.low)

    @property
    def shows_interval(self) -> bool:
        """Is there an interval worth showing? If all differences are equal, it is a point and says nothing."""
        return self.has_interval and has_width(self.low, self.high)

    def range(self) -> tuple[float, float]:
        """The interval; with too few seeds for one, the smallest and the largest single difference."""
        return (self.low, self.high) if self.has_interval else (self.smallest, self.largest)


def compare_by_seed(first: Mapping[int, float], second: Mapping[int, float]) -> Comparison:
    """Difference in mean of two groups given by seed: paired if the seeds match, else unpaired.

    Seeds match if there are MIN_MATCHING_SEEDS in common, or all those of the smaller group.
    """
    return compare_all_pairs({1: first, 2: second})[1, 2]


def compare_all_pairs(groups: Mapping[Key, Mapping[int, float]]) -> dict[tuple[Key, Key], Comparison]:
    """Comparisons of all pairs of groups, in the order given, with Holm-corrected p-values and intervals."""
    tests = {pair: _test_pair(groups[pair[0]], groups[pair[1]]) for pair in combinations(groups, 2)}
    p_values = [comparison.p.value for comparison, _ in tests.values()]
    corrected = zip(tests.items(), holm_correction(p_values), holm_levels(p_values), strict=True)
    return {pair: _correct(comparison, test, p, level) for (pair, (comparison, test)), p, level in corrected}


_Tests: TypeAlias = tuple[ShiftTest, TTest]


def _test_pair(first: Mapping[int, float], second: Mapping[int, float]) -> tuple[Comparison, _Tests | None]:
    one, other = _drop_non_finite(first), _drop_non_finite(second)
    n_given, n, n_smaller = len(first) + len(second), len(one) + len(other), min(len(one), len(other))
    if not n_smaller:
        return Comparison(nan, nan, nan, PValue(1.0, 1.0, 1, True), False, n, (), n_given - n), None
    common = tuple(sorted(one.keys() & other.keys()))
    all_match = len(common) == n_smaller and (n_smaller > 1 or n == 2)
    if all_match or len(common) >= MIN_MATCHING_SEEDS:
        differences = np.array([one[seed] - other[seed] for seed in common])
        flips = flip_signs(differences)
        # A mean outside all differences is the business of the sign flips alone, where a skewness of so few is noise.
        tests: _Tests = flips, replace(skewed_t_test(differences), bounds=flips.range())
        effect, n, n_used = float(differences.mean()), len(common), 2 * len(common)
    else:
        values = [np.array(list(group.values())) for group in (one, other)]
        tests = permute_groups(*values), welch_test(*values)
        effect, n_used, common = float(values[0].mean() - values[1].mean()), n, ()
    permutations, t_test = tests
    smallest, largest = permutations.range()
    exact = permutations.p_value()
    p = replace(exact, value=max(exact.value, t_test.p_value()))
    return Comparison(effect, nan, nan, p, bool(common), n, common, n_given - n_used, nan, smallest, largest), tests


def _correct(comparison: Comparison, tests: _Tests | None, p: float, level: float) -> Comparison:
    intervals = [test.interval(level) for test in tests or ()]
    low, high = min((low for low, _ in intervals), default=nan), max((high for _, high in intervals), default=nan)
    return replace(comparison, low=low, high=high, corrected=p)


def _drop_non_finite(values: Mapping[int, float]) -> dict[int, float]:
    return {seed: value for seed, value in values.items() if isfinite(value)}
