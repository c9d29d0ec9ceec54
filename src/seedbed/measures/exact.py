"""Tests that need no distribution: sign flips of paired differences, swaps between two groups, ranks within blocks.

Every arrangement is tried while there are at most EXACT of them; beyond that DRAWS of them are drawn with a fixed seed
and the one observed is counted in, so that p is never 0 and never too small. All tests are two-sided.

>>> sign_flip([0.1, 0.2, 0.3, 0.4, 0.5])  # all of 2⁵ signs; only the observed one and its mirror are as extreme
P(value=0.0625, least=0.0625, arrangements=32, exact=True)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations
from math import comb, factorial

import numpy as np
from numpy.typing import ArrayLike, NDArray

EXACT = 2**16  # arrangements tried one by one
DRAWS = 2**15 - 1
_ALIKE = 1e-9  # relative; sums that differ by less than rounding are equal


@dataclass(frozen=True)
class P:
    """A two-sided p-value, the least that this many numbers can give, and how it was found."""

    value: float
    least: float
    arrangements: int
    exact: bool


def sign_flip(differences: ArrayLike) -> P:
    """Whether paired differences lie around 0: the sum against its value under every choice of signs."""
    numbers = np.asarray(differences, dtype=float)
    n = numbers.size
    exact = 2**n <= EXACT
    signs = _all_signs(n) if exact else _rng().choice((1.0, -1.0), size=(DRAWS, n))
    return _p(signs @ numbers, float(numbers.sum()), np.abs(numbers).sum(), 2**n, exact, 2)


@cache
def _all_signs(n: int) -> NDArray[np.float64]:
    """Every choice of n signs, (2ⁿ, n)."""
    return np.where(np.arange(2**n)[:, None] >> np.arange(n) & 1, -1.0, 1.0)


def swap(first: ArrayLike, second: ArrayLike) -> P:
    """Whether two unpaired groups differ in mean: the first group's sum against every other way to choose it."""
    one, other = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    pooled = np.concatenate([one, other])
    pooled -= pooled.mean()
    n, total = one.size, comb(pooled.size, one.size)
    exact = total <= EXACT
    chosen = _all_choices(pooled.size, n) if exact else _drawn_choices(pooled.size, n)
    mirrored = 2 if one.size == other.size else 1  # then the complement of the observed choice is as extreme
    return _p(pooled[chosen].sum(1), float(pooled[:n].sum()), np.abs(pooled).sum(), total, exact, mirrored)


@cache
def _all_choices(n: int, k: int) -> NDArray[np.int64]:
    return np.array(list(combinations(range(n), k)), dtype=np.int64)


@cache
def _drawn_choices(n: int, k: int) -> NDArray[np.int64]:
    return _rng().permuted(np.tile(np.arange(n), (DRAWS, 1)), axis=1)[:, :k]


def trend(blocks: Sequence[ArrayLike]) -> P:
    """Page's test: whether values rise or fall along the columns, each row (a seed) permuted within itself."""
    ranks = np.array([average_ranks(block) for block in blocks])
    n, k = ranks.shape
    ranks -= ranks.mean(1, keepdims=True)
    places = np.arange(k) - (k - 1) / 2
    total = factorial(k) ** n
    scores = _all_scores(ranks, places) if total <= EXACT else _drawn_scores(ranks, places)
    observed = float((ranks @ places).sum())
    return _p(scores, observed, float(np.abs(ranks).sum() * k), total, total <= EXACT, 2)


def _all_scores(ranks: NDArray[np.float64], places: NDArray[np.float64]) -> NDArray[np.float64]:
    orders = _all_orders(places.size)
    scores = np.zeros(1)
    for row in ranks:
        scores = np.add.outer(scores, row[orders] @ places).ravel()
    return scores


@cache
def _all_orders(n: int) -> NDArray[np.int64]:
    return np.array(list(permutations(range(n))), dtype=np.int64)


def _drawn_scores(ranks: NDArray[np.float64], places: NDArray[np.float64]) -> NDArray[np.float64]:
    rng = _rng()
    return sum((rng.permuted(np.tile(row, (DRAWS, 1)), axis=1) @ places for row in ranks), np.zeros(DRAWS))


def _p(scores: NDArray[np.float64], observed: float, scale: float, arrangements: int, exact: bool, mirrored: int) -> P:
    as_extreme = int((np.abs(scores) >= abs(observed) - _ALIKE * scale).sum())
    if exact:
        return P(as_extreme / scores.size, min(1.0, mirrored / arrangements), arrangements, True)
    return P((as_extreme + 1) / (scores.size + 1), mirrored / arrangements, scores.size, False)


def average_ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Ranks from 1; equal values share the mean of theirs."""
    numbers = np.asarray(values, dtype=float)
    _, inverse, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return ranks


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for their number (Holm 1979), as given: the smallest times m, the next times m − 1, …"""
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, p_values[place] * (len(p_values) - rank)))
        corrected[place] = highest
    return corrected


def _rng() -> np.random.Generator:
    return np.random.default_rng(20250404)
