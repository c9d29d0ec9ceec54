"""Distribution-free tests, against SciPy and against plain enumeration."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product
from math import comb, inf

import numpy as np
import pytest
from scipy import stats

from seedbed.stats.permutation_tests import (
    N_RANDOM_ARRANGEMENTS,
    average_ranks,
    flip_signs,
    holm_correction,
    page_trend_test,
    permutation_test,
    permute_groups,
    sign_flip_test,
)

RNG = np.random.default_rng(5)


def mean_difference(one: Sequence[float], other: Sequence[float], axis: int = -1) -> float:
    return np.mean(one, axis=axis) - np.mean(other, axis=axis)  # type: ignore[no-any-return]


@pytest.mark.parametrize("n", [2, 3, 5, 8, 11])
def test_the_sign_flip_test_agrees_with_scipys_exact_test(n: int) -> None:
    numbers = RNG.normal(0.4, 1, n)
    expected = stats.permutation_test((numbers,), np.sum, permutation_type="samples", n_resamples=np.inf)
    p = sign_flip_test(numbers)
    assert p.value == pytest.approx(expected.pvalue, abs=1e-12)
    assert (p.least, p.exact, p.arrangements) == (2 / 2**n, True, 2**n)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 5), (4, 4), (6, 3)])
def test_the_permutation_test_agrees_with_scipys_exact_test(n: int, m: int) -> None:
    one, other = RNG.normal(0.7, 1, n), RNG.normal(0, 2, m)
    expected = stats.permutation_test((one, other), mean_difference, n_resamples=np.inf)
    p = permutation_test(one, other)
    assert p.value == pytest.approx(min(1.0, expected.pvalue), abs=1e-12)
    assert (p.least, p.exact, p.arrangements) == (2 / comb(n + m, n), True, comb(n + m, n))


@pytest.mark.parametrize("n", [6, 7, 9])
def test_a_sign_flip_interval_holds_the_shifts_that_are_not_rejected(n: int) -> None:
    numbers = RNG.exponential(1, n)
    low, high = flip_signs(numbers).interval(0.05)
    for shift in np.linspace(numbers.min() - 0.1, numbers.max() + 0.1, 60):
        assert (sign_flip_test(numbers - shift).value > 0.05) == (low <= shift <= high)


@pytest.mark.parametrize(("n", "m"), [(4, 4), (3, 6), (7, 5)])
def test_a_permutation_interval_holds_the_shifts_that_are_not_rejected(n: int, m: int) -> None:
    one, other = RNG.normal(0.7, 1, n), RNG.normal(0, 1, m)
    low, high = permute_groups(one, other).interval(0.05)
    for shift in np.linspace(one.min() - other.max() - 0.1, one.max() - other.min() + 0.1, 60):
        assert (permutation_test(one - shift, other).value > 0.05) == (low <= shift <= high)


def test_too_few_values_have_no_interval() -> None:
    assert flip_signs([1.0, 2.0, 3.0, 4.0, 5.0]).interval(0.05) == (-inf, inf)
    assert permute_groups([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]).interval(0.05) == (-inf, inf)


def test_the_smallest_p_is_reached_by_the_most_extreme_values() -> None:
    assert sign_flip_test([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == sign_flip_test([-1.0, -2.0, -3.0, -4.0, -5.0, -6.0])
    assert sign_flip_test([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).value == 2 / 64
    extreme = permutation_test([5.0, 6.0, 7.0], [1.0, 2.0, 3.0])
    assert extreme.value == extreme.least == 2 / 20


def test_equal_values_have_p_one_and_ties_count_despite_rounding() -> None:
    assert sign_flip_test([0.0, 0.0, 0.0]).value == 1.0
    assert permutation_test([1.0, 1.0], [1.0, 1.0]).value == 1.0
    assert sign_flip_test([0.1, 0.2, 0.3]).value == 0.25
    assert sign_flip_test([0.3, -0.1, -0.2]).value == 1.0  # the sum is 0 but for rounding


def test_large_samples_use_random_arrangements_and_p_is_never_zero() -> None:
    p = sign_flip_test(np.full(40, 1.0))
    assert (p.exact, p.arrangements) == (False, N_RANDOM_ARRANGEMENTS)
    assert p.value == p.least == 2 / (N_RANDOM_ARRANGEMENTS + 1)
    assert sign_flip_test(np.full(40, 1.0)) == p
    numbers = RNG.normal(0.3, 1, 30)
    z = stats.ttest_1samp(numbers, 0).pvalue
    assert sign_flip_test(numbers).value == pytest.approx(z, abs=0.02)


@pytest.mark.parametrize(("n", "k"), [(1, 5), (2, 4), (3, 3)])
def test_the_trend_test_is_pages_test_two_sided(n: int, k: int) -> None:
    rows = RNG.normal(size=(n, k)) + 0.3 * np.arange(k)
    score = float(sum(stats.rankdata(row) @ np.arange(1, k + 1) for row in rows))
    middle = n * k * (k + 1) ** 2 / 4
    scores = [0.0]
    for _ in range(n):
        scores = [
            total + sum((column + 1) * rank for column, rank in enumerate(order))
            for total in scores
            for order in permutations(range(1, k + 1))
        ]
    expected = np.mean([abs(one - middle) >= abs(score - middle) - 1e-9 for one in scores])
    assert page_trend_test(list(rows)).value == pytest.approx(expected, abs=1e-12)
    if n > 1:
        page = stats.page_trend_test(rows if score >= middle else rows[:, ::-1], method="exact")
        assert page_trend_test(list(rows)).value == pytest.approx(min(1.0, 2 * page.pvalue), abs=1e-9)


def test_the_sampled_trend_test_is_near_pages_exact_p() -> None:
    rows = np.array([[1.0, 3, 2, 4, 6, 5, 7], [2.0, 1, 4, 3, 5, 7, 6], [1.0, 2, 3, 6, 4, 5, 7]])
    assert not page_trend_test(list(rows)).exact
    assert page_trend_test(list(rows)).value < 0.001
    flat = np.array([[3.0, 1, 2, 4, 7, 5, 6], [4.0, 7, 1, 3, 5, 2, 6]])
    page = stats.page_trend_test(flat, method="exact")
    assert page_trend_test(list(flat)).value == pytest.approx(2 * page.pvalue, abs=0.015)


def test_average_ranks_are_scipys() -> None:
    for values in ([3.0, 1.0, 3.0, 2.0], [1.0], [2.0, 2.0, 2.0], [0.5, -1.0, 7.0]):
        assert average_ranks(values).tolist() == stats.rankdata(values).tolist()


def test_holm_by_hand() -> None:
    # 0.005 × 4, then max(0.02, 0.01 × 3), then max(0.03, 0.03 × 2), then max(0.06, 0.04 × 1)
    assert holm_correction([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm_correction([0.9, 0.8]) == [1.0, 1.0]
    assert holm_correction([0.2]) == [0.2]
    assert holm_correction([]) == []


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 8, 9])
def test_sign_flip_false_positives_are_at_most_5_percent_of_all_outcomes(n: int) -> None:
    """Under the null all sign vectors are equally likely, so enumerating them gives the exact rate, not an estimate."""
    sizes = np.abs(np.random.default_rng(11).standard_t(4, n))
    outcomes = [sign_flip_test(sizes * signs).value <= 0.05 for signs in product((1, -1), repeat=n)]
    assert np.mean(outcomes) <= 0.05
    assert any(outcomes) == (n >= 6)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (2, 5), (3, 3), (4, 4), (3, 7), (5, 5)])
def test_permutation_false_positives_are_at_most_5_percent_of_all_outcomes(n: int, m: int) -> None:
    pooled = np.random.default_rng(13).normal(size=n + m)
    choices = [np.array(chosen) for chosen in product((False, True), repeat=n + m) if sum(chosen) == n]
    assert np.mean([permutation_test(pooled[chosen], pooled[~chosen]).value <= 0.05 for chosen in choices]) <= 0.05


@pytest.mark.parametrize("n", [10, 12])
def test_sign_flip_tests_of_ten_and_more_have_the_nominal_rate(n: int) -> None:
    samples = np.random.default_rng(11).standard_t(4, (2000, n))
    assert 0.04 <= np.mean([sign_flip_test(sample).value <= 0.05 for sample in samples]) <= 0.06


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 12])
def test_permutation_tests_of_ten_and_more_have_the_nominal_rate(n: int) -> None:
    samples = np.random.default_rng(17).normal(size=(3000, 2, n))
    assert 0.04 <= np.mean([permutation_test(*sample).value <= 0.05 for sample in samples]) <= 0.06


def test_trend_test_false_positives_are_at_most_5_percent() -> None:
    samples = np.random.default_rng(19).normal(size=(800, 3, 4))
    assert 0.02 <= np.mean([page_trend_test(list(sample)).value <= 0.05 for sample in samples]) <= 0.055
