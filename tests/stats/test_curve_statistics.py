"""Report D's definitions on curves small enough to work out by hand."""

from __future__ import annotations

from math import inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.records import Curve
from seedbed.stats.curve_statistics import Extremum, find_extremum, last_value, truncate_curve
from seedbed.stats.metric_registry import metric_direction


def curve(steps: list[int], values: list[float]) -> Curve:
    return Curve(np.array(steps, dtype=np.int64), np.array(values, dtype=np.float64))


def test_best_value_comes_with_the_first_step_that_attains_it() -> None:
    assert find_extremum(curve([0, 5, 7, 9], [3.0, 1.0, 2.0, 1.0]), "min") == Extremum(1.0, 5.0)
    assert find_extremum(curve([0, 5, 7, 9], [0.1, 0.9, 1.0, 1.0]), "max") == Extremum(1.0, 7.0)


def test_first_attainment_is_by_exact_equality() -> None:
    almost = np.nextafter(1.0, 2.0)
    assert find_extremum(curve([1, 2], [almost, 1.0]), "min") == Extremum(1.0, 2.0)


def test_a_final_evaluation_of_the_same_weights_does_not_move_t_f() -> None:
    with_final = curve([0, 10_000, 10_001, 10_002], [3.0, 0.2, 0.1, 0.1])
    assert find_extremum(with_final, "min").step == 10_001


def test_t_max_is_inclusive() -> None:
    falling = curve([0, 100, 200, 300], [4.0, 3.0, 2.0, 1.0])
    assert find_extremum(falling, "min", t_max=200) == Extremum(2.0, 200.0)
    assert find_extremum(falling, "min", t_max=199.9) == Extremum(3.0, 100.0)
    assert len(truncate_curve(falling, 200).steps) == 3
    assert truncate_curve(falling, None) is falling


def test_nan_is_never_best() -> None:
    broken = curve([0, 1, 2, 3], [nan, 2.0, 1.0, nan])
    assert find_extremum(broken, "min") == Extremum(1.0, 2.0)
    assert find_extremum(broken, "max") == Extremum(2.0, 1.0)


@pytest.mark.parametrize("empty", [curve([], []), curve([3, 4], [nan, nan]), curve([9], [0.5])])
def test_no_value_up_to_t_max_gives_nan_for_value_and_step(empty: Curve) -> None:
    extremum = find_extremum(empty, "min", t_max=5)
    assert isnan(extremum.value)
    assert isnan(extremum.step)


def test_infinities_are_ordered_like_numbers() -> None:
    assert find_extremum(curve([0, 1, 2], [inf, inf, nan]), "min") == Extremum(inf, 0.0)
    assert find_extremum(curve([0, 1, 2], [1.0, -inf, 0.0]), "min") == Extremum(-inf, 1.0)
    assert find_extremum(curve([0, 1, 2], [1.0, -inf, inf]), "max") == Extremum(inf, 2.0)


def test_a_single_value_is_its_own_extremum() -> None:
    assert find_extremum(curve([0], [0.5]), "max") == Extremum(0.5, 0.0)


@given(st.lists(st.sampled_from([nan, inf, -inf, 0.0, 1.0, 2.0]), max_size=7), st.integers(-1, 20))
def test_the_minimum_agrees_with_a_loop_over_values(values: list[float], t_max: int) -> None:
    best = Extremum(nan, nan)
    for index, value in enumerate(values):
        if 3 * index <= t_max and (value < best.value or (isnan(best.value) and not isnan(value))):
            best = Extremum(value, 3.0 * index)
    extremum = find_extremum(curve([3 * index for index in range(len(values))], values), "min", t_max)
    assert (repr(extremum.value), repr(extremum.step)) == (repr(best.value), repr(best.step))


def test_the_last_value_up_to_t_max_can_be_nan() -> None:
    norm = curve([0, 1, 2], [5.0, 6.0, nan])
    assert last_value(norm, t_max=1) == 6.0
    assert isnan(last_value(norm))
    assert isnan(last_value(curve([], [])))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train/loss", "min"),
        ("val/loss[order=3]", "min"),
        ("val/accuracy", "max"),
        ("val/accuracy[order=2]", "max"),
        ("test[obama]/perplexity", "min"),
        ("test[loss/accuracy]/accuracy", "max"),
        ("norm", None),
        ("val/flavour", None),
        ("accuracy/loss/", None),
    ],
)
def test_direction_follows_the_quantity_alone(name: str, expected: str | None) -> None:
    assert metric_direction(name) == expected
