"""Errors, coverage and power of the decision rule on simulated runs; benchmarks/error_rates.py has larger tables."""

from __future__ import annotations

import importlib
import sys
from math import isnan, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
error_rates = importlib.import_module("error_rates")

NORMAL = error_rates.NOISE["normal"]
NOISE = pytest.mark.parametrize("noise", error_rates.NOISE.values(), ids=error_rates.NOISE)


def at_most_5_percent(trials: int) -> float:
    """What a share of 5 % of all trials exceeds by chance in one of 200 simulations."""
    return 0.05 + 2.6 * sqrt(0.05 * 0.95 / trials)


@NOISE
@pytest.mark.parametrize("n", [2, 5, 6, 7, 9])
def test_paired_groups(noise: Any, n: int) -> None:
    rates = error_rates.paired_rates(noise, n, 600, np.random.default_rng(n))
    assert rates.error <= at_most_5_percent(600)
    assert (rates.power == 0 and isnan(rates.coverage)) if n < 6 else (rates.power > 0.05 and rates.coverage >= 0.93)


@NOISE
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_unpaired_groups(noise: Any, n: int) -> None:
    rates = error_rates.unpaired_rates(noise, n, 600, np.random.default_rng(n))
    assert rates.error <= at_most_5_percent(600)
    assert (rates.power == 0 and isnan(rates.coverage)) if n < 4 else (rates.power > 0.05 and rates.coverage >= 0.93)


@NOISE
def test_all_pairs_of_three_groups(noise: Any) -> None:
    rates = error_rates.family_rates(noise, 3, 8, 300, np.random.default_rng(3))
    assert rates.error <= at_most_5_percent(300)
    assert rates.coverage >= 0.95


@pytest.mark.parametrize("name", ["skewed", "two-valued"])
@pytest.mark.parametrize("n", [8, 11])
def test_intervals_that_are_shown_hold_means_of_differences_that_are_not_symmetric(name: str, n: int) -> None:
    """The sign flips' own intervals do so in 90 %, or in 84 % where all differences are often equal."""
    rates = error_rates.asymmetric_rates(error_rates.NOISE[name], n, 600, np.random.default_rng(n))
    assert rates.coverage >= 0.92
    assert rates.power > 0.3


@pytest.mark.parametrize("sizes", [(4, 4), (4, 12), (12, 4), (3, 9)])
def test_unpaired_groups_of_unequal_size_and_spread(sizes: tuple[int, int]) -> None:
    """The permutation test alone errs in up to 23 %."""
    rates = error_rates.unequal_spread_rates(NORMAL, *sizes, 3.0, 400, np.random.default_rng(5))
    assert rates.error <= at_most_5_percent(400)
    assert rates.coverage >= 0.92


@NOISE
def test_the_confidence_set_of_the_best_value(noise: Any) -> None:
    assert error_rates.optimum_coverage(noise, [1] * 5, 8, 300, np.random.default_rng(8)) >= 0.92


def test_the_confidence_set_of_values_of_different_spread() -> None:
    skewed = error_rates.NOISE["skewed"]
    assert error_rates.optimum_coverage(skewed, [0.1, 0.1, 1, 3, 0.1], 8, 300, np.random.default_rng(8)) >= 0.92


@pytest.mark.parametrize("censored", [0, 0.45])
@pytest.mark.parametrize("n", [6, 9])
def test_median_times(n: int, censored: float) -> None:
    assert error_rates.median_coverage(n, censored, 600, np.random.default_rng(n)) >= 0.93


def test_scaling_laws() -> None:
    shares = error_rates.law_coverage(5, 4, 0.01, 60, np.random.default_rng(1))
    assert min(shares) >= 0.88  # of 60 laws, whose coverage is 95 %


@NOISE
def test_trends(noise: Any) -> None:
    rates = error_rates.trend_rates(noise, 3, 4, 300, np.random.default_rng(4))
    assert rates.error <= at_most_5_percent(300)
    assert rates.power > rates.error


@pytest.mark.parametrize("n", range(1, 17))
def test_bounds_have_an_exact_error(n: int) -> None:
    assert error_rates.bound_error(n) <= 0.05
    assert (error_rates.bound_error(n) > 0) == (n >= 6)
