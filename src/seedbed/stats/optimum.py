"""Which value of a setting is best, and which others cannot be told from it: a confidence set by sign flips.

    best = find_optimum(table, "min")     # one row per seed, one column per value of the setting
    best.index, best.confidence_set

A value belongs to the set unless some other value is significantly better. That is one test per value, with the largest
of the standardised differences to all others as its statistic: the signs of a seed's differences are flipped together,
so that comparing many values needs no further correction (Westfall and Young 1993). That test is exact if differences
between equally good values are symmetric. As in `comparison`, a t test that allows for skewed differences must reject
as well, here with Bonferroni's correction for the number of other values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from seedbed.stats.decision import is_significant
from seedbed.stats.metric_registry import Direction
from seedbed.stats.permutation_tests import MAX_EXACT_ARRANGEMENTS, N_RANDOM_ARRANGEMENTS
from seedbed.stats.t_tests import skewed_t_test

Floats = NDArray[np.float64]
_RELATIVE_TOLERANCE = 1e-9  # statistics that differ only by rounding are ties


@dataclass(frozen=True)
class Optimum:
    """The column with the best mean, and the columns that are not significantly worse than another."""

    index: int
    p_values: tuple[float, ...]  # of each column: that no other is better

    @property
    def confidence_set(self) -> tuple[int, ...]:
        return tuple(index for index, p in enumerate(self.p_values) if not is_significant(p))

    def excludes(self, index: int) -> bool:
        """Is this column significantly worse than another?"""
        return is_significant(self.p_values[index])


def find_optimum(table: Floats, direction: Direction) -> Optimum:
    """The best column of a complete table (seeds, values) and the p-value of each column.

    >>> find_optimum(np.array([[3.0, 1.0, 2.0]] * 6) + np.arange(6)[:, None], "min")
    Optimum(index=1, p_values=(0.015625, 1.0, 0.03125))
    """
    gains = table if direction == "max" else -table
    p_values = [
        _p_value_of_best(np.delete(gains - gains[:, [column]], column, axis=1)) for column in range(table.shape[1])
    ]
    return Optimum(int(np.argmax(gains.mean(0))), tuple(p_values))


def _p_value_of_best(advantages: Floats) -> float:
    """One-sided p-value that none of these columns of paired differences is above 0; rows are seeds."""
    by_column = [skewed_t_test(column).p_value_above() for column in advantages.T]
    return max(_sign_flip_p_value(advantages), min(1.0, len(by_column) * min(by_column)))


def _sign_flip_p_value(advantages: Floats) -> float:
    scales = np.sqrt((advantages**2).sum(0))  # unchanged by flipping signs
    if not scales.any():
        return 1.0
    standardised = advantages[:, scales > 0] / scales[scales > 0]
    n = len(standardised)
    signs = _signs(n)
    observed = standardised.sum(0).max()
    n_extreme = int(((signs @ standardised).max(1) >= observed - _RELATIVE_TOLERANCE).sum())
    is_exact = len(signs) == 2**n
    return n_extreme / len(signs) if is_exact else (n_extreme + 1) / (len(signs) + 1)


@cache
def _signs(n: int) -> Floats:
    """All 2ⁿ rows of signs; so many random ones if there are more than MAX_EXACT_ARRANGEMENTS."""
    if 2**n <= MAX_EXACT_ARRANGEMENTS:
        return np.where(np.arange(2**n)[:, None] >> np.arange(n) & 1, -1.0, 1.0)
    return np.random.default_rng(20250404).choice((1.0, -1.0), size=(N_RANDOM_ARRANGEMENTS, n))
