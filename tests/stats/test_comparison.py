from __future__ import annotations

import statistics
import warnings
from dataclasses import replace
from math import inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from seedbed.stats.comparison import (
    ConfidenceInterval,
    clopper_pearson,
    compare_all_pairs,
    compare_by_seed,
    mean_confidence_interval,
    summarise_seeds,
)
from seedbed.stats.permutation_tests import (
    flip_signs,
    holm_correction,
    permutation_test,
    permute_groups,
    sign_flip_test,
)
from seedbed.stats.t_tests import skewed_t_test, welch_test


def test_std_of_two_seeds_is_half_their_difference() -> None:
    summary = summarise_seeds({0: 9800.0, 42: 10001.0})
    assert (summary.mean, summary.std, summary.n) == (9900.5, 100.5, 2)


def test_values_are_kept_by_seed_in_the_order_of_seeds() -> None:
    assert list(summarise_seeds({42: 1.0, 0: 2.0, 7: 3.0}).values.items()) == [(0, 2.0), (7, 3.0), (42, 1.0)]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_mean_and_std_agree_with_exact_arithmetic(numbers: list[float]) -> None:
    summary = summarise_seeds(dict(enumerate(numbers)))
    assert summary.mean == pytest.approx(statistics.mean(numbers), rel=1e-12, abs=1e-9)
    assert summary.std == pytest.approx(statistics.pstdev(numbers), rel=1e-9, abs=1e-9)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 9))
def test_equal_values_have_a_std_of_exactly_zero(number: float, n: int) -> None:
    summary = summarise_seeds(dict.fromkeys(range(n), number))
    assert (summary.mean, summary.std) == (number, 0.0)


def test_a_nan_propagates_instead_of_a_mean_over_fewer_seeds() -> None:
    summary = summarise_seeds({0: 1.0, 1: nan, 2: 3.0})
    assert isnan(summary.mean)
    assert isnan(summary.std)
    assert summary.n == 3


def test_infinities_give_a_result_and_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert summarise_seeds({0: inf, 1: 1.0}).mean == inf
        assert isnan(summarise_seeds({0: inf, 1: 1.0}).std)
        assert isnan(summarise_seeds({0: inf, 1: -inf}).mean)


def test_no_seed_has_no_mean() -> None:
    summary = summarise_seeds({})
    assert isnan(summary.mean)
    assert isnan(summary.std)
    assert summary.n == 0


# ---- intervals and comparisons, against SciPy ----

RNG = np.random.default_rng(3)


def by_seed(values: NDArray[np.float64], first: int = 0) -> dict[int, float]:
    return {first + index: float(value) for index, value in enumerate(values)}


@pytest.mark.parametrize("n", [2, 3, 9])
def test_the_confidence_interval_is_students_with_the_sample_std(n: int) -> None:
    values = RNG.normal(5, 2, n)
    low, high = stats.t.interval(0.95, n - 1, values.mean(), values.std(ddof=1) / np.sqrt(n))
    interval = mean_confidence_interval(values.tolist())
    assert (interval.mean, interval.low, interval.high, interval.n) == pytest.approx((values.mean(), low, high, n))


def test_one_value_has_infinite_bounds_and_none_has_no_mean() -> None:
    assert mean_confidence_interval([3.0]) == ConfidenceInterval(3.0, -inf, inf, 1)
    assert isnan(mean_confidence_interval([]).mean)
    assert isnan(mean_confidence_interval([1.0, nan]).low)


@pytest.mark.parametrize(("n_successes", "n"), [(0, 3), (2, 2), (3, 8), (1, 1), (10, 40)])
def test_the_interval_of_a_proportion_is_scipys_exact_one(n_successes: int, n: int) -> None:
    expected = stats.binomtest(n_successes, n).proportion_ci(0.95, "exact")
    assert clopper_pearson(n_successes, n) == pytest.approx((expected.low, expected.high))


def test_equal_seeds_are_paired_and_tested_by_sign_flips() -> None:
    one, other = RNG.normal(1, 1, 7), RNG.normal(0, 1, 7)
    comparison = compare_by_seed(by_seed(one), by_seed(other))
    assert (comparison.paired, comparison.n, comparison.seeds, comparison.left_out) == (True, 7, tuple(range(7)), 0)
    assert comparison.effect == pytest.approx(np.mean(one - other))
    assert (comparison.smallest, comparison.largest) == pytest.approx((min(one - other), max(one - other)))
    t_test = replace(skewed_t_test(one - other), bounds=(comparison.smallest, comparison.largest))
    exact = sign_flip_test(one - other)
    assert comparison.p == replace(exact, value=max(exact.value, t_test.p_value()))
    intervals = flip_signs(one - other).interval(0.05), t_test.interval(0.05)
    assert (comparison.low, comparison.high) == (min(low for low, _ in intervals), max(high for _, high in intervals))


def test_different_seeds_are_compared_by_permutations() -> None:
    one, other = RNG.normal(1, 1, 4), RNG.normal(0, 3, 6)
    comparison = compare_by_seed(by_seed(one), by_seed(other, 100))
    assert (comparison.paired, comparison.n, comparison.seeds) == (False, 10, ())
    intervals = permute_groups(one, other).interval(0.05), welch_test(one, other).interval(0.05)
    assert (comparison.low, comparison.high) == (min(low for low, _ in intervals), max(high for _, high in intervals))
    assert comparison.smallest == pytest.approx(min(one) - max(other))
    assert comparison.largest == pytest.approx(max(one) - min(other))
    exact = permutation_test(one, other)
    assert comparison.p == replace(exact, value=max(exact.value, stats.ttest_ind(one, other, equal_var=False).pvalue))


def test_seeds_pair_if_those_of_the_smaller_group_match_or_six_do() -> None:
    def sizes(first: range, second: range) -> tuple[bool, int, int]:
        comparison = compare_by_seed(dict.fromkeys(first, 1.0), dict.fromkeys(second, 0.0))
        return comparison.paired, comparison.n, comparison.left_out

    assert sizes(range(3), range(3)) == (True, 3, 0)
    assert sizes(range(3), range(8)) == (True, 3, 5)
    assert sizes(range(8), range(5, 12)) == (False, 15, 0)  # three pairs could not be tested, 8 and 7 runs can
    assert sizes(range(8), range(2, 10)) == (True, 6, 4)
    assert sizes(range(1), range(1)) == (True, 1, 0)
    assert sizes(range(1), range(4)) == (False, 5, 0)


def test_values_without_a_partner_or_not_finite_are_counted_as_left_out() -> None:
    comparison = compare_by_seed({0: 1.0, 1: 2.0, 3: nan}, {0: 0.5, 1: 1.0, 3: 2.0, 9: 7.0})
    assert (comparison.seeds, comparison.n, comparison.left_out, comparison.effect) == ((0, 1), 2, 3, 0.75)
    nothing = compare_by_seed({0: nan}, {0: 1.0})
    assert isnan(nothing.effect)
    assert not nothing.is_significant
    assert nothing.left_out == 1


def test_two_seeds_can_never_be_significant_and_six_can() -> None:
    far = compare_by_seed({0: 100.0, 1: 101.0}, {0: 0.0, 1: 1.0})
    assert (far.is_significant, far.p.least > 0.05, far.p.value) == (False, True, 0.5)
    assert (far.low, far.high, far.has_interval, far.smallest, far.largest) == (-inf, inf, False, 100.0, 100.0)
    six = compare_by_seed(by_seed(np.arange(6) + 10.0), by_seed(np.arange(6) + 0.5))
    assert (six.is_significant, six.p.least < 0.05, six.has_interval) == (True, True, True)


def test_equal_groups_have_an_effect_and_an_interval_of_exactly_zero() -> None:
    values = dict(enumerate([1.0, 0.7, 0.3, 0.9, 0.8, 0.2]))
    same = compare_by_seed(values, values)
    assert (same.effect, same.low, same.high, same.p.value) == (0.0, 0.0, 0.0, 1.0)
    assert (same.has_interval, same.shows_interval) == (True, False)
    apart = compare_by_seed(dict.fromkeys(range(4), 1.0), dict.fromkeys(range(5, 9), 1.0))
    assert (apart.low, apart.high, apart.paired) == (0.0, 0.0, False)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(-3, 9), min_size=9, max_size=9), min_size=2, max_size=4),
    st.lists(st.integers(0, 1), min_size=4, max_size=4),
)
def test_an_interval_excludes_zero_exactly_when_the_corrected_test_rejects(
    values: list[list[int]], first_seeds: list[int]
) -> None:
    groups = {
        name: by_seed(np.array(row, dtype=float), first=100 * first_seed * name)
        for name, (row, first_seed) in enumerate(zip(values, first_seeds, strict=False))
    }
    for comparison in compare_all_pairs(groups).values():
        assert comparison.is_significant == (not comparison.low <= 0 <= comparison.high)


def test_all_pairs_are_compared_and_corrected_for_their_number() -> None:
    noise = np.array([0.1, -0.2, 0.15, -0.1, 0.05, -0.12, 0.2, -0.03])
    groups = {"a": by_seed(noise), "b": by_seed(noise[::-1]), "c": by_seed(noise + 3 + noise[::-1])}
    comparisons = compare_all_pairs(groups)
    assert list(comparisons) == [("a", "b"), ("a", "c"), ("b", "c")]
    uncorrected = [comparison.p.value for comparison in comparisons.values()]
    assert [comparison.corrected for comparison in comparisons.values()] == holm_correction(uncorrected)
    assert [comparison.is_significant for comparison in comparisons.values()] == [False, True, True]


@pytest.mark.parametrize("n", [2, 3, 5, 10, 20])
def test_students_intervals_cover_the_truth_in_93_to_97_percent(n: int) -> None:
    samples = np.random.default_rng(23).normal(0.3, 1, (2500, n))
    intervals = [mean_confidence_interval(sample.tolist()) for sample in samples]
    assert 0.93 <= np.mean([one.low <= 0.3 <= one.high for one in intervals]) <= 0.97
