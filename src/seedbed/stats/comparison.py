"""Numbers over seeds: mean and spread as the reports' tables show them, intervals, and whether two groups differ.

The std of a `Spread` is the population's (ddof 0), so two seeds give half their difference; intervals use the sample's
(ddof 1). Groups are paired by seed where at least two seeds match. Which runs make a group is left to `groups`.

>>> over_seeds({0: 9800.0, 42: 10001.0})
Spread(mean=9900.5, std=100.5, values={0: 9800.0, 42: 10001.0})
>>> found = compare({0: 0.9, 1: 0.8, 2: 0.7}, {0: 0.5, 1: 0.5, 2: 0.4})
>>> f"{found.effect:.3f} [{found.low:.3f}, {found.high:.3f}], p = {found.p.value}"
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
    """Mean and population std over seeds, with every value by seed."""

    mean: float
    std: float
    values: Mapping[int, float]

    @property
    def n(self) -> int:
        """How many seeds are in the mean."""
        return len(self.values)


def summarise_seeds(values: Mapping[int, float]) -> SeedSummary:
    """The spread of these values; one NaN makes the mean NaN, since a mean over fewer seeds would be another number."""
    by_seed = {seed: float(values[seed]) for seed in sorted(values)}
    if not by_seed:
        return SeedSummary(nan, nan, by_seed)
    numbers = np.array(list(by_seed.values()))
    with np.errstate(invalid="ignore"):  # inf − inf is NaN, and that is the answer
        if not np.isfinite(numbers).all():
            return SeedSummary(float(numbers.mean()), nan, by_seed)
    offsets = numbers - numbers[0]  # equal values then have a spread of exactly 0
    return SeedSummary(float(numbers[0] + offsets.mean()), float(offsets.std()), by_seed)


# ---- intervals ----


@dataclass(frozen=True)
class ConfidenceInterval:
    """A mean and its 95 % interval; without bounds (±inf) where fewer than two numbers are there."""

    mean: float
    low: float
    high: float
    n: int


def mean_confidence_interval(values: Sequence[float]) -> ConfidenceInterval:
    """Student's t interval of the mean."""
    numbers = np.asarray(values, dtype=float)
    if numbers.size == 0 or not np.isfinite(numbers).all():
        return ConfidenceInterval(nan, nan, nan, numbers.size)
    mean = float(numbers.mean())
    if numbers.size == 1:
        return ConfidenceInterval(mean, -inf, inf, 1)
    half = student_t_quantile(numbers.size - 1) * float(numbers.std(ddof=1)) / sqrt(numbers.size)
    return ConfidenceInterval(mean, mean - half, mean + half, numbers.size)


def clopper_pearson(n_successes: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share (Clopper and Pearson 1934), exact for the binomial."""
    from scipy.special import betaincinv

    low = float(betaincinv(n_successes, n - n_successes + 1, SIGNIFICANCE_LEVEL / 2)) if n_successes else 0.0
    high = float(betaincinv(n_successes + 1, n - n_successes, 1 - SIGNIFICANCE_LEVEL / 2)) if n_successes < n else 1.0
    return low, high


def student_t_quantile(degrees_of_freedom: float, level: float = SIGNIFICANCE_LEVEL) -> float:
    """The two-sided quantile of Student's t; `scipy.special` loads in a tenth of the time of `scipy.stats`."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, 1 - level / 2))


# ---- two groups ----


@dataclass(frozen=True)
class Comparison:
    """First minus second: the effect with its 95 % interval, an exact test, and how many numbers each side gave."""

    effect: float
    low: float
    high: float
    p: PValue
    paired: bool
    n: int  # pairs, or numbers of both sides together
    seeds: tuple[int, ...]  # those paired; empty when unpaired
    left_out: int = 0  # numbers without a partner, or not finite
    corrected: float = nan  # p after Holm's correction; p itself when one pair is compared

    @property
    def is_significant(self) -> bool:
        """Whether the sign of the effect is known at 5 %."""
        return (
            bool(self.corrected <= SIGNIFICANCE_LEVEL)
            if not isnan(self.corrected)
            else bool(self.p.value <= SIGNIFICANCE_LEVEL)
        )

    @property
    def can_be_significant(self) -> bool:
        """Whether this many numbers could reach 5 % at all."""
        return self.p.least <= SIGNIFICANCE_LEVEL


def compare_by_seed(first: Mapping[int, float], second: Mapping[int, float]) -> Comparison:
    """The difference in mean of two groups given by seed: paired where two seeds or more match, else unpaired."""
    one, other = _drop_non_finite(first), _drop_non_finite(second)
    n_given = len(first) + len(second)
    common = tuple(sorted(one.keys() & other.keys()))
    if len(common) >= 2 or (common and len(one) == len(other) == 1):
        differences = np.array([one[seed] - other[seed] for seed in common])
        found = mean_confidence_interval(differences.tolist())
        p = sign_flip_test(differences)
        return Comparison(found.mean, found.low, found.high, p, True, found.n, common, n_given - 2 * found.n, p.value)
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
    """Welch's 95 % interval of a difference in mean, which does not ask for equal spreads."""
    effect, sizes = float(first.mean() - second.mean()), np.array([first.size, second.size])
    if sizes.min() < 2:
        return -inf, inf
    errors = np.array([group.var(ddof=1) / group.size for group in (first, second)])
    if not errors.any():
        return effect, effect
    half = student_t_quantile(errors.sum() ** 2 / (errors**2 / (sizes - 1)).sum()) * sqrt(errors.sum())
    return effect - half, effect + half


def compare_all_pairs(groups: Mapping[Key, Mapping[int, float]]) -> dict[tuple[Key, Key], Comparison]:
    """Every pair of groups, in the order given, with p corrected for the number of pairs (Holm)."""
    found = {(one, other): compare_by_seed(groups[one], groups[other]) for one, other in combinations(groups, 2)}
    corrected = holm_correction([comparison.p.value for comparison in found.values()])
    return {
        pair: replace(comparison, corrected=p) for (pair, comparison), p in zip(found.items(), corrected, strict=True)
    }
