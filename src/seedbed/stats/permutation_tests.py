"""Distribution-free tests: sign flips of paired differences, permutations of two groups, Page's trend test.

All arrangements are enumerated if there are at most MAX_EXACT_ARRANGEMENTS; otherwise N_RANDOM_ARRANGEMENTS are drawn
with a fixed seed and the observed one is added, so that p is never 0 and the test stays valid. All tests are two-sided.

>>> sign_flip_test([0.1, 0.2, 0.3, 0.4, 0.5])  # of all 2⁵ signs only the observed one and its mirror are as extreme
PValue(value=0.0625, least=0.0625, arrangements=32, exact=True)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations
from math import comb, factorial

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


def sign_flip_test(differences: ArrayLike) -> PValue:
    """Sign-flip test that paired differences are symmetric around 0; the statistic is their sum."""
    numbers = np.asarray(differences, dtype=float)
    n = numbers.size
    exact = 2**n <= MAX_EXACT_ARRANGEMENTS
    signs = _all_signs(n) if exact else _fixed_rng().choice((1.0, -1.0), size=(N_RANDOM_ARRANGEMENTS, n))
    return _p_value(signs @ numbers, float(numbers.sum()), np.abs(numbers).sum(), 2**n, exact, 2)


@cache
def _all_signs(n: int) -> NDArray[np.float64]:
    """All sign vectors of length n: (2ⁿ, n)."""
    return np.where(np.arange(2**n)[:, None] >> np.arange(n) & 1, -1.0, 1.0)


def permutation_test(first: ArrayLike, second: ArrayLike) -> PValue:
    """Permutation test that two unpaired groups have the same mean; the statistic is the first group's sum."""
    one, other = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    pooled = np.concatenate([one, other])
    pooled -= pooled.mean()
    n, total = one.size, comb(pooled.size, one.size)
    exact = total <= MAX_EXACT_ARRANGEMENTS
    members = _all_combinations(pooled.size, n) if exact else _random_combinations(pooled.size, n)
    n_mirrored = 2 if one.size == other.size else 1  # with equal sizes, swapping the two groups is as extreme
    return _p_value(pooled[members].sum(1), float(pooled[:n].sum()), np.abs(pooled).sum(), total, exact, n_mirrored)


@cache
def _all_combinations(n: int, k: int) -> NDArray[np.int64]:
    return np.array(list(combinations(range(n), k)), dtype=np.int64)


@cache
def _random_combinations(n: int, k: int) -> NDArray[np.int64]:
    return _fixed_rng().permuted(np.tile(np.arange(n), (N_RANDOM_ARRANGEMENTS, 1)), axis=1)[:, :k]


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
    return _p_value(scores, observed, float(np.abs(ranks).sum() * k), total, exact, 2)


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


def _p_value(
    scores: NDArray[np.float64], observed: float, scale: float, n_arrangements: int, exact: bool, n_mirrored: int
) -> PValue:
    n_extreme = int((np.abs(scores) >= abs(observed) - _RELATIVE_TOLERANCE * scale).sum())
    if exact:
        return PValue(n_extreme / scores.size, min(1.0, n_mirrored / n_arrangements), n_arrangements, True)
    return PValue((n_extreme + 1) / (scores.size + 1), n_mirrored / n_arrangements, scores.size, False)


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
