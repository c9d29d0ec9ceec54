"""Statistics over seeds: mean and std as in the reports' tables, confidence intervals, and comparisons of groups.

The std of a `SeedSummary` is the population's (ddof 0), so two seeds give half their difference; intervals use the
sample std (ddof 1). Groups are paired by seed if at least two seeds match. `groups` decides which runs form a group.

>>> summarise_seeds({0: 9800.0, 42: 10001.0})
SeedSummary(mean=9900.5, std=100.5, values={0: 9800.0, 42: 10001.0})
>>> comparison = compare_by_seed({0: 0.9, 1: 0.8, 2: 0.7}, {0: 0.5, 1: 0.5, 2: 0.4})
>>> f"{comparison.effect:.3f} [{comparison.low:.3f}, {comparison.high:.3f}], p = {comparison.p.value}"
'0.333 [0.190, 0.477], p = 0.25'
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf, isfinite, isnan, nan, sqrt
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from seedbed.stats.permutation_tests import PValue, holm_correction, permutation_test, sign_flip_test

SIGNIFICANCE_LEVEL = 0.05
CONFIDENCE_LEVEL = 1 - SIGNIFICANCE_LEVEL
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
    """Student's t confidence interval of the mean."""
    numbers = np.asarray(values, dtype=float)
    if numbers.size == 0 or not np.isfinite(numbers).all():
        return ConfidenceInterval(nan, nan, nan, numbers.size)
    mean = float(numbers.mean())
    if numbers.size == 1:
        return ConfidenceInterval(mean, -inf, inf, 1)
    half = student_t_quantile(numbers.size - 1) * float(numbers.std(ddof=1)) / sqrt(numbers.size)
    return ConfidenceInterval(mean, mean - half, mean + half, numbers.size)


def clopper_pearson(n_successes: int, n: int) -> tuple[float, float]:
    """Exact 95 % confidence interval of a binomial proportion (Clopper and Pearson 1934)."""
    from scipy.special import betaincinv

    low = float(betaincinv(n_successes, n - n_successes + 1, SIGNIFICANCE_LEVEL / 2)) if n_successes else 0.0
    high = float(betaincinv(n_successes + 1, n - n_successes, 1 - SIGNIFICANCE_LEVEL / 2)) if n_successes < n else 1.0
    return low, high


def student_t_quantile(degrees_of_freedom: float, level: float = SIGNIFICANCE_LEVEL) -> float:
    """Two-sided quantile of Student's t distribution."""
    from scipy.special import stdtrit  # loads in a tenth of the time of scipy.stats

    return float(stdtrit(degrees_of_freedom, 1 - level / 2))


# ---- two groups ----


@dataclass(frozen=True)
class Comparison:
    """First minus second group: the mean difference with its 95 % interval, a permutation test and sample sizes."""

    effect: float
    low: float
    high: float
    p: PValue
    paired: bool
    n: int  # pairs, or values of both groups together
    seeds: tuple[int, ...]  # the paired seeds; empty if unpaired
    left_out: int = 0  # values without a partner, or not finite
    corrected: float = nan  # Holm-corrected p; p itself if a single pair is compared

    @property
    def is_significant(self) -> bool:
        """Is the difference significant at 5 %, after correction?"""
        p = self.p.value if isnan(self.corrected) else self.corrected
        return bool(p <= SIGNIFICANCE_LEVEL)

    @property
    def can_be_significant(self) -> bool:
        """Can a sample of this size reach 5 % at all?"""
        return self.p.least <= SIGNIFICANCE_LEVEL


def compare_by_seed(first: Mapping[int, float], second: Mapping[int, float]) -> Comparison:
    """Difference in mean of two groups given by seed: paired if at least two seeds match, else unpaired."""
    one, other = _drop_non_finite(first), _drop_non_finite(second)
    n_given = len(first) + len(second)
    common = tuple(sorted(one.keys() & other.keys()))
    if len(common) >= 2 or (common and len(one) == len(other) == 1):
        differences = np.array([one[seed] - other[seed] for seed in common])
        mean = mean_confidence_interval(differences.tolist())
        p = sign_flip_test(differences)
        return Comparison(mean.mean, mean.low, mean.high, p, True, mean.n, common, n_given - 2 * mean.n, p.value)
    return _compare_unpaired(np.array(list(one.values())), np.array(list(other.values())), n_given)


def _drop_non_finite(values: Mapping[int, float]) -> dict[int, float]:
    return {seed: value for seed, value in values.items() if isfinite(value)}


def _compare_unpaired(first: NDArray[np.float64], second: NDArray[np.float64], n_given: int) -> Comparison:
    n = first.size + second.size
    if not first.size or not second.size:
        return Comparison(nan, nan, nan, PValue(1.0, 1.0, 1, True), False, n, (), n_given - n, 1.0)
    p = permutation_test(first, second)
    return Comparison(
        float(first.mean() - second.mean()), *welch_interval(first, second), p, False, n, (), n_given - n, p.value
    )


def welch_interval(first: NDArray[np.float64], second: NDArray[np.float64]) -> tuple[float, float]:
    """Welch's 95 % confidence interval of a difference in mean, which does not assume equal variances."""
    effect, sizes = float(first.mean() - second.mean()), np.array([first.size, second.size])
    if sizes.min() < 2:
        return -inf, inf
    errors = np.array([group.var(ddof=1) / group.size for group in (first, second)])
    if not errors.any():
        return effect, effect
    half = student_t_quantile(errors.sum() ** 2 / (errors**2 / (sizes - 1)).sum()) * sqrt(errors.sum())
    return effect - half, effect + half


def compare_all_pairs(groups: Mapping[Key, Mapping[int, float]]) -> dict[tuple[Key, Key], Comparison]:
    """Comparisons of all pairs of groups, in the order given, with Holm-corrected p-values."""
    pairs = {(one, other): compare_by_seed(groups[one], groups[other]) for one, other in combinations(groups, 2)}
    corrected = holm_correction([comparison.p.value for comparison in pairs.values()])
    return {
        pair: replace(comparison, corrected=p) for (pair, comparison), p in zip(pairs.items(), corrected, strict=True)
    }
