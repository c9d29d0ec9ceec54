from __future__ import annotations

import statistics
import warnings
from math import inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given
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
    welch_interval,
)
from seedbed.stats.permutation_tests import holm_correction, permutation_test, sign_flip_test


def test_std_of_two_seeds_is_half_their_difference() -> None:
    spread = summarise_seeds({0: 9800.0, 42: 10001.0})
    assert (spread.mean, spread.std, spread.n) == (9900.5, 100.5, 2)


def test_values_are_kept_by_seed_in_the_order_of_seeds() -> None:
    assert list(summarise_seeds({42: 1.0, 0: 2.0, 7: 3.0}).values.items()) == [(0, 2.0), (7, 3.0), (42, 1.0)]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_mean_and_std_agree_with_exact_arithmetic(numbers: list[float]) -> None:
    spread = summarise_seeds(dict(enumerate(numbers)))
    assert spread.mean == pytest.approx(statistics.mean(numbers), rel=1e-12, abs=1e-9)
    assert spread.std == pytest.approx(statistics.pstdev(numbers), rel=1e-9, abs=1e-9)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 9))
def test_equal_values_have_exactly_no_spread(number: float, n: int) -> None:
    spread = summarise_seeds(dict.fromkeys(range(n), number))
    assert (spread.mean, spread.std) == (number, 0.0)


def test_one_nan_makes_the_mean_nan_and_not_a_mean_over_fewer() -> None:
    spread = summarise_seeds({0: 1.0, 1: nan, 2: 3.0})
    assert isnan(spread.mean)
    assert isnan(spread.std)
    assert spread.n == 3


def test_infinities_give_an_answer_and_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert summarise_seeds({0: inf, 1: 1.0}).mean == inf
        assert isnan(summarise_seeds({0: inf, 1: 1.0}).std)
        assert isnan(summarise_seeds({0: inf, 1: -inf}).mean)


def test_no_seed_has_no_mean() -> None:
    spread = summarise_seeds({})
    assert isnan(spread.mean)
    assert isnan(spread.std)
    assert spread.n == 0


# ---- intervals and comparisons, against SciPy ----

RNG = np.random.default_rng(3)


def by_seed(values: NDArray[np.float64], first: int = 0) -> dict[int, float]:
    return {first + place: float(value) for place, value in enumerate(values)}


@pytest.mark.parametrize("n", [2, 3, 9])
def test_the_interval_is_students_with_the_sample_std(n: int) -> None:
    values = RNG.normal(5, 2, n)
    low, high = stats.t.interval(0.95, n - 1, values.mean(), values.std(ddof=1) / np.sqrt(n))
    found = mean_confidence_interval(values.tolist())
    assert (found.mean, found.low, found.high, found.n) == pytest.approx((values.mean(), low, high, n))


def test_one_number_has_no_bounds_and_none_has_no_mean() -> None:
    assert mean_confidence_interval([3.0]) == ConfidenceInterval(3.0, -inf, inf, 1)
    assert isnan(mean_confidence_interval([]).mean)
    assert isnan(mean_confidence_interval([1.0, nan]).low)


@pytest.mark.parametrize(("yes", "n"), [(0, 3), (2, 2), (3, 8), (1, 1), (10, 40)])
def test_the_interval_of_a_share_is_scipys_exact_one(yes: int, n: int) -> None:
    expected = stats.binomtest(yes, n).proportion_ci(0.95, "exact")
    assert clopper_pearson(yes, n) == pytest.approx((expected.low, expected.high))


def test_equal_seeds_are_paired_as_in_the_paired_t_test() -> None:
    one, other = RNG.normal(1, 1, 7), RNG.normal(0, 1, 7)
    expected = stats.ttest_rel(one, other).confidence_interval(0.95)
    found = compare_by_seed(by_seed(one), by_seed(other))
    assert (found.paired, found.n, found.seeds, found.left_out) == (True, 7, tuple(range(7)), 0)
    assert (found.effect, found.low, found.high) == pytest.approx((np.mean(one - other), expected.low, expected.high))
    assert found.p == sign_flip_test(one - other)


def test_other_seeds_are_compared_by_welch_and_swaps() -> None:
    one, other = RNG.normal(1, 1, 4), RNG.normal(0, 3, 6)
    expected = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    found = compare_by_seed(by_seed(one), by_seed(other, 100))
    assert (found.paired, found.n, found.seeds) == (False, 10, ())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.p == permutation_test(one, other)


def test_numbers_without_a_partner_or_a_value_are_counted_as_left_out() -> None:
    found = compare_by_seed({0: 1.0, 1: 2.0, 2: 3.0, 3: nan}, {0: 0.5, 1: 1.0, 3: 2.0, 9: 7.0})
    assert (found.seeds, found.n, found.left_out, found.effect) == ((0, 1), 2, 4, 0.75)
    nothing = compare_by_seed({0: nan}, {0: 1.0})
    assert isnan(nothing.effect)
    assert not nothing.is_significant
    assert nothing.left_out == 1


def test_two_seeds_can_never_be_clear_and_six_can() -> None:
    far = compare_by_seed({0: 100.0, 1: 101.0}, {0: 0.0, 1: 1.0})
    assert (far.is_significant, far.can_be_significant, far.p.value) == (False, False, 0.5)
    six = compare_by_seed(by_seed(np.arange(6) + 10.0), by_seed(np.arange(6) + 0.5))
    assert (six.is_significant, six.can_be_significant) == (True, True)


def test_equal_groups_have_an_effect_and_an_interval_of_exactly_zero() -> None:
    same = compare_by_seed({0: 1.0, 1: 0.7}, {0: 1.0, 1: 0.7})
    assert (same.effect, same.low, same.high, same.p.value) == (0.0, 0.0, 0.0, 1.0)
    apart = compare_by_seed({0: 1.0, 1: 1.0}, {5: 1.0, 6: 1.0})
    assert (apart.low, apart.high) == (0.0, 0.0)


def test_every_pair_is_compared_and_corrected_for_their_number() -> None:
    noise = np.array([0.1, -0.2, 0.15, -0.1, 0.05, -0.12, 0.2, -0.03])
    groups = {"a": by_seed(noise), "b": by_seed(noise[::-1]), "c": by_seed(noise + 3 + noise[::-1])}
    found = compare_all_pairs(groups)
    assert list(found) == [("a", "b"), ("a", "c"), ("b", "c")]
    plain = [comparison.p.value for comparison in found.values()]
    assert [comparison.corrected for comparison in found.values()] == holm_correction(plain)
    assert [comparison.is_significant for comparison in found.values()] == [False, True, True]


@pytest.mark.parametrize("n", [2, 3, 5, 10, 20])
def test_paired_intervals_cover_the_truth_in_93_to_97_percent(n: int) -> None:
    samples = np.random.default_rng(23).normal(0.3, 1, (2500, n))
    found = [mean_confidence_interval(sample.tolist()) for sample in samples]
    assert 0.93 <= np.mean([one.low <= 0.3 <= one.high for one in found]) <= 0.97


@pytest.mark.parametrize(("n", "ratio"), [(3, 1.0), (5, 1.0), (5, 3.0), (10, 1.0), (10, 3.0)])
def test_unpaired_intervals_cover_the_truth_in_93_to_97_percent(n: int, ratio: float) -> None:
    rng = np.random.default_rng(29)
    inside = []
    for _ in range(1500):
        one, other = rng.normal(0.3, 1, n), rng.normal(0, ratio, n)
        found = welch_interval(one, other)
        inside.append(found[0] <= 0.3 <= found[1])
    assert 0.93 <= np.mean(inside) <= 0.97
