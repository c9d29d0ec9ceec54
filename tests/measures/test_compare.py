from __future__ import annotations

import statistics
import warnings
from math import inf, isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.measures.compare import over_seeds


def test_std_of_two_seeds_is_half_their_difference() -> None:
    spread = over_seeds({0: 9800.0, 42: 10001.0})
    assert (spread.mean, spread.std, spread.n) == (9900.5, 100.5, 2)


def test_values_are_kept_by_seed_in_the_order_of_seeds() -> None:
    assert list(over_seeds({42: 1.0, 0: 2.0, 7: 3.0}).values.items()) == [(0, 2.0), (7, 3.0), (42, 1.0)]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_mean_and_std_agree_with_exact_arithmetic(numbers: list[float]) -> None:
    spread = over_seeds(dict(enumerate(numbers)))
    assert spread.mean == pytest.approx(statistics.mean(numbers), rel=1e-12, abs=1e-9)
    assert spread.std == pytest.approx(statistics.pstdev(numbers), rel=1e-9, abs=1e-9)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 9))
def test_equal_values_have_exactly_no_spread(number: float, n: int) -> None:
    spread = over_seeds(dict.fromkeys(range(n), number))
    assert (spread.mean, spread.std) == (number, 0.0)


def test_one_nan_makes_the_mean_nan_and_not_a_mean_over_fewer() -> None:
    spread = over_seeds({0: 1.0, 1: nan, 2: 3.0})
    assert isnan(spread.mean)
    assert isnan(spread.std)
    assert spread.n == 3


def test_infinities_give_an_answer_and_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert over_seeds({0: inf, 1: 1.0}).mean == inf
        assert isnan(over_seeds({0: inf, 1: 1.0}).std)
        assert isnan(over_seeds({0: inf, 1: -inf}).mean)


def test_no_seed_has_no_mean() -> None:
    spread = over_seeds({})
    assert isnan(spread.mean)
    assert isnan(spread.std)
    assert spread.n == 0
