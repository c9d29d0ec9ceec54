"""Tests of a mean that allow for skewed values and unequal spreads, with their intervals: Hall's and Welch's t.

A permutation test is exact if the groups do not differ at all. Groups of equal mean whose values are spread or skewed
differently it rejects too often, and its interval then misses the difference in mean. `comparison` therefore asks both
tests.

>>> welch_test([1.0, 2.0, 3.0], [3.0, 4.0, 5.0, 6.0]).p_value() < 0.05
True
>>> symmetric = skewed_t_test([1.0, 2.0, 3.0, 4.0, 5.0]).interval(0.05)  # Student's interval, as there is no skewness
>>> [round(end, 3) for end in symmetric]
[1.037, 4.963]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import cbrt, inf, sqrt

import numpy as np
from numpy.typing import ArrayLike

MAX_FLAT_SKEWNESS = 1e-6  # below which the correction is that of no skewness, to rounding


@dataclass(frozen=True)
class TTest:
    """A t test of a mean or of a difference in mean: the estimate, its standard error, and a skewness correction."""

    estimate: float
    standard_error: float
    degrees_of_freedom: float  # 0: no spread is known, so that nothing is rejected
    skewness: float = 0.0  # of the values, divided by √n
    bounds: tuple[float, float] = (-inf, inf)  # a mean outside is rejected, whatever the test would say

    def p_value(self, shift: float = 0.0) -> float:
        """The two-sided test that the mean is `shift`."""
        if not self.bounds[0] <= shift <= self.bounds[1]:
            return 0.0
        above = self.p_value_above(shift)
        return min(1.0, 2 * min(above, 1 - above))

    def p_value_above(self, shift: float = 0.0) -> float:
        """The one-sided test that the mean is not above `shift`."""
        from scipy.special import stdtr  # loads in a tenth of the time of scipy.stats

        distance = self.estimate - shift
        if not self.degrees_of_freedom:
            return 0.5
        if not self.standard_error:
            return 0.0 if distance > 0 else 1.0 if distance < 0 else 0.5
        return float(stdtr(self.degrees_of_freedom, -self._to_t(distance / self.standard_error)))

    def interval(self, level: float) -> tuple[float, float]:
        """All means that the test does not reject at this level."""
        if not self.degrees_of_freedom:
            return -inf, inf
        quantile = student_t_quantile(self.degrees_of_freedom, level)
        low, high = (self.estimate - self.standard_error * self._from_t(t) for t in (quantile, -quantile))
        return max(low, self.bounds[0]), min(high, self.bounds[1])

    def _to_t(self, ratio: float) -> float:
        """The studentised mean without its skewness: increasing, so that test and interval agree."""
        g = self.skewness
        return ratio + g * ratio**2 / 3 + g**2 * ratio**3 / 27 + g / 6

    def _from_t(self, t: float) -> float:
        g = self.skewness
        return t if abs(g) < MAX_FLAT_SKEWNESS else 3 / g * (cbrt(1 + g * (t - g / 6)) - 1)


def student_t_quantile(degrees_of_freedom: float, level: float) -> float:
    """Two-sided quantile of Student's t distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, 1 - level / 2))


def student_t_test(values: ArrayLike) -> TTest:
    """Student's t test, without a correction for skewness."""
    return replace(skewed_t_test(values), skewness=0.0)


def skewed_t_test(values: ArrayLike) -> TTest:
    """Student's t test with Hall's correction for skewness (Hall 1992, "On the removal of skewness by transformation").

    Two values have no skewness, and one value has no spread.
    """
    numbers = np.asarray(values, dtype=float)
    n = numbers.size
    mean = float(numbers.mean())
    if n < 2:
        return TTest(mean, 0.0, 0)
    offsets = numbers - numbers[0]  # so that equal values have a spread of exactly 0
    std = float(offsets.std(ddof=1))
    if not std:
        return TTest(float(numbers[0]), 0.0, n - 1)
    moment = float((((offsets - offsets.mean()) / std) ** 3).sum())
    skewness = 0.0 if n < 3 else moment * n / ((n - 1) * (n - 2))
    return TTest(mean, std / sqrt(n), n - 1, 0.0 if abs(skewness) < MAX_FLAT_SKEWNESS else skewness / sqrt(n))


def welch_test(first: ArrayLike, second: ArrayLike) -> TTest:
    """Welch's t test of the difference in mean of two groups, whose spreads may differ."""
    one, other = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    effect = float(one.mean() - other.mean())
    if min(one.size, other.size) < 2:
        return TTest(effect, 0.0, 0)
    variances = [float((group - group[0]).var(ddof=1)) / group.size for group in (one, other)]
    total = sum(variances)
    if not total:
        return TTest(effect, 0.0, one.size + other.size - 2)
    parts = [variance**2 / (group.size - 1) for variance, group in zip(variances, (one, other), strict=True)]
    return TTest(effect, sqrt(total), total**2 / sum(parts))
