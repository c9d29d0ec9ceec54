"""Hall's and Welch's t: equal to SciPy where there is an equivalent, and consistent with their own intervals."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from seedbed.stats.t_tests import TTest, skewed_t_test, student_t_test, welch_test

RNG = np.random.default_rng(17)
VALUES = st.lists(st.integers(-5, 20), min_size=3, max_size=9)


@pytest.mark.parametrize(("n", "m"), [(4, 7), (2, 5), (9, 3)])
def test_welch_is_scipys(n: int, m: int) -> None:
    one, other = RNG.normal(1, 3, n), RNG.normal(0, 1, m)
    expected = stats.ttest_ind(one, other, equal_var=False)
    test = welch_test(one, other)
    assert test.p_value() == pytest.approx(expected.pvalue)
    assert test.degrees_of_freedom == pytest.approx(expected.df)
    interval = expected.confidence_interval()
    assert test.interval(0.05) == pytest.approx((interval.low, interval.high))


def test_without_a_skewness_it_is_students() -> None:
    values = np.array([1.0, 2.0, 4.0, 6.0, 7.0])
    expected = stats.ttest_1samp(values, 0.5)
    assert skewed_t_test(values).p_value(0.5) == pytest.approx(expected.pvalue)
    skewed = np.array([1.0, 1.5, 2.0, 9.0])
    assert student_t_test(skewed).p_value(0.5) == pytest.approx(stats.ttest_1samp(skewed, 0.5).pvalue)


def test_a_long_tail_moves_the_interval_towards_it() -> None:
    values = [0.1, 0.2, 0.2, 0.3, 0.4, 0.6, 1.0, 2.5]
    (low, high), (student_low, student_high) = (test(values).interval(0.05) for test in (skewed_t_test, student_t_test))
    assert low > student_low
    assert high > student_high
    mirrored = skewed_t_test([-value for value in values]).interval(0.05)
    assert mirrored == pytest.approx((-high, -low))


@settings(deadline=None)
@given(VALUES, st.integers(-8, 25), st.sampled_from([0.05, 0.02, 0.3]))
def test_an_interval_holds_what_its_test_does_not_reject(values: list[int], shift: int, level: float) -> None:
    for test in (skewed_t_test(values), welch_test(values[:2], values[2:]) if len(values) > 3 else TTest(0.0, 1.0, 3)):
        low, high = test.interval(level)
        assume(min(abs(low - shift), abs(high - shift)) > 1e-6 or low == high)
        assert (low <= shift <= high) == (test.p_value(shift) > level)


def test_equal_values_and_single_ones() -> None:
    assert skewed_t_test([3.0, 3.0, 3.0]).interval(0.05) == (3.0, 3.0)
    assert (skewed_t_test([3.0, 3.0]).p_value(), skewed_t_test([3.0, 3.0]).p_value(3.0)) == (0.0, 1.0)
    assert skewed_t_test([3.0]).interval(0.05) == (-inf, inf)
    assert welch_test([3.0], [1.0, 2.0]).p_value() == 1.0
