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


@NOISE
def test_trends(noise: Any) -> None:
    rates = error_rates.trend_rates(noise, 3, 4, 300, np.random.default_rng(4))
    assert rates.error <= at_most_5_percent(300)
    assert rates.power > rates.error


@pytest.mark.parametrize("n", range(1, 17))
def test_bounds_have_an_exact_error(n: int) -> None:
    assert error_rates.bound_error(n) <= 0.05
    assert (error_rates.bound_error(n) > 0) == (n >= 6)
