"""Distribution-free tests with their intervals: sign flips, permutations of two groups, Page's trend test.

All arrangements are enumerated if there are at most MAX_EXACT_ARRANGEMENTS; otherwise N_RANDOM_ARRANGEMENTS are drawn
with a fixed seed and the observed one is added, so that p is never 0 and the test stays valid. All tests are two-sided.

>>> sign_flip_test([0.1, 0.2, 0.3, 0.4, 0.5])  # of all 2⁵ signs only the observed one and its mirror are as extreme
PValue(value=0.0625, least=0.0625, arrangements=32, exact=True)
>>> flip_signs([1.0, 2.0, 3.0, 4.0, 5.0, 9.0]).interval(0.05)
(1.0, 9.0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations
from math import comb, factorial, floor, inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seedbed.stats.decision import LEVEL_TOLERANCE

MAX_EXACT_ARRANGEMENTS = 2**16  # enumerated; beyond that, arrangements are sampled
N_RANDOM_ARRANGEMENTS = 2**15 - 1
_RELATIVE_TOLERANCE = 1e-9  # sums that differ only by rounding count as ties


@dataclass(frozen=True)
class PValue:
    """A two-sided p-value, the smallest p possible at this sample size, and how it was computed."""

    value: float
    least: float
    arrangements: int
    exact: bool


# ---- tests of a shift ----


@dataclass(frozen=True)
class ShiftTest:
    """A test of the size of a difference, given by all sizes at which another arrangement is as extreme as the data.

    Suppose the difference is θ, and take it out of the data. An arrangement then has a larger sum than the data if and
    only if θ is above a threshold of its own: the mean of the differences whose signs it flips, or the difference in
    mean of the runs that it exchanges between the groups. The number of thresholds below and above θ is therefore the
    test of θ, and two ordered thresholds bound its interval (Hartigan 1969).
    """

    thresholds: NDArray[np.float64]  # of every arrangement but the observed one, in ascending order
    exact: bool

    @property
    def n_arrangements(self) -> int:
        """Number of arrangements, including the observed one."""
        return self.thresholds.size + 1

    def p_value(self, shift: float = 0.0) -> PValue:
        """The test that the difference is `shift`: twice the smaller tail."""
        n_below = int(np.searchsorted(self.thresholds, shift, side="right"))
        n_above = self.thresholds.size - int(np.searchsorted(self.thresholds, shift, side="left"))
        p = min(1.0, 2 * (1 + min(n_below, n_above)) / self.n_arrangements)
        arrangements = self.n_arrangements if self.exact else self.thresholds.size
        return PValue(p, min(1.0, 2 / self.n_arrangements), arrangements, self.exact)

    def interval(self, level: float) -> tuple[float, float]:
        """All differences that the test does not reject at this level; infinite if it can reject none."""
        n_tail = floor(level / 2 * self.n_arrangements + LEVEL_TOLERANCE)
        if n_tail < 1:
            return -inf, inf
        return float(self.thresholds[n_tail - 1]), float(self.thresholds[-n_tail])

    def range(self) -> tuple[float, float]:
        """The smallest and largest difference of two runs: of a seed, or of any run with one of the other group."""
        return float(self.thresholds[0]), float(self.thresholds[-1])


def flip_signs(differences: ArrayLike) -> ShiftTest:
    """Test of the centre of paired differences, which are symmetric around it; at least one difference."""
    numbers = np.asarray(differences, dtype=float)
    exact = 2**numbers.size <= MAX_EXACT_ARRANGEMENTS
    flipped = _all_subsets(numbers.size) if exact else _random_subsets(numbers.size)
    return _shift_test(flipped @ numbers, flipped.sum(1), np.abs(numbers).sum(), exact)


def permute_groups(first: ArrayLike, second: ArrayLike) -> ShiftTest:
    """Test of the shift between two unpaired groups whose distributions differ in nothing else; none may be empty."""
    one, other = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    pooled = np.concatenate([one, other])
    pooled -= pooled.mean()
    exact = comb(pooled.size, one.size) <= MAX_EXACT_ARRANGEMENTS
    members = (_all_combinations if exact else _random_combinations)(pooled.size, one.size)
    n_exchanged = (members >= one.size).sum(1)
    members, n_exchanged = members[n_exchanged > 0], n_exchanged[n_exchanged > 0]  # without the observed arrangement
    sums = pooled[: one.size].sum() - pooled[members].sum(1)
    return _shift_test(sums, n_exchanged, np.abs(pooled).sum(), exact)


def _shift_test(
    sums: NDArray[np.float64], counts: NDArray[np.float64] | NDArray[np.int64], scale: float, exact: bool
) -> ShiftTest:
    sums[np.abs(sums) <= _RELATIVE_TOLERANCE * scale] = 0.0
    return ShiftTest(np.sort(sums / counts), exact)


def sign_flip_test(differences: ArrayLike) -> PValue:
    """Sign-flip test that paired differences are symmetric around 0."""
    return flip_signs(differences).p_value()


def permutation_test(first: ArrayLike, second: ArrayLike) -> PValue:
    """Permutation test that two unpaired groups have the same distribution; the statistic is the difference in mean."""
    return permute_groups(first, second).p_value()


@cache
def _all_subsets(n: int) -> NDArray[np.float64]:
    """All subsets of n but the empty one, as rows of 0 and 1: (2ⁿ − 1, n)."""
    return (np.arange(1, 2**n)[:, None] >> np.arange(n) & 1).astype(float)


@cache
def _random_subsets(n: int) -> NDArray[np.float64]:
    subsets = _fixed_rng().integers(0, 2, size=(N_RANDOM_ARRANGEMENTS, n)).astype(float)
    subsets[subsets.sum(1) == 0, 0] = 1.0  # the empty subset, one in 2ⁿ, is the observed arrangement
    return subsets


@cache
def _all_combinations(n: int, k: int) -> NDArray[np.int64]:
    return np.array(list(combinations(range(n), k)), dtype=np.int64)


@cache
def _random_combinations(n: int, k: int) -> NDArray[np.int64]:
    return _fixed_rng().permuted(np.tile(np.arange(n), (N_RANDOM_ARRANGEMENTS, 1)), axis=1)[:, :k]


# ---- a trend ----


def page_trend_test(blocks: Sequence[ArrayLike]) -> PValue:
    """Two-sided Page test for a monotonic trend along the columns; each row (a seed) is permuted on its own."""
    ranks = np.array([average_ranks(block) for block in blocks])
    n, k = ranks.shape
    ranks -= ranks.mean(1, keepdims=True)
    column_weights = np.arange(k) - (k - 1) / 2
    total = factorial(k) ** n
    exact = total <= MAX_EXACT_ARRANGEMENTS
    scores = _all_trend_scores(ranks, column_weights) if exact else _random_trend_scores(ranks, column_weights)
    observed = float((ranks @ column_weights).sum())
    tolerance = _RELATIVE_TOLERANCE * float(np.abs(ranks).sum() * k)
    n_extreme = int((np.abs(scores) >= abs(observed) - tolerance).sum())
    p = n_extreme / scores.size if exact else (n_extreme + 1) / (scores.size + 1)
    return PValue(p, min(1.0, 2 / total), scores.size, exact)


def _all_trend_scores(ranks: NDArray[np.float64], column_weights: NDArray[np.float64]) -> NDArray[np.float64]:
    orders = _all_permutations(column_weights.size)
    scores = np.zeros(1)
    for row in ranks:
        scores = np.add.outer(scores, row[orders] @ column_weights).ravel()
    return scores


@cache
def _all_permutations(n: int) -> NDArray[np.int64]:
    return np.array(list(permutations(range(n))), dtype=np.int64)


def _random_trend_scores(ranks: NDArray[np.float64], column_weights: NDArray[np.float64]) -> NDArray[np.float64]:
    rng = _fixed_rng()
    return sum(
        (rng.permuted(np.tile(row, (N_RANDOM_ARRANGEMENTS, 1)), axis=1) @ column_weights for row in ranks),
        np.zeros(N_RANDOM_ARRANGEMENTS),
    )


def average_ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Ranks from 1; ties get their average rank."""
    numbers = np.asarray(values, dtype=float)
    _, inverse, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return ranks


def holm_correction(p_values: Sequence[float]) -> list[float]:
    """Holm-corrected p-values (Holm 1979), in the order given: the smallest times m, the next times m − 1, …"""
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        corrected[index] = highest
    return corrected


def _fixed_rng() -> np.random.Generator:
    return np.random.default_rng(20250404)
