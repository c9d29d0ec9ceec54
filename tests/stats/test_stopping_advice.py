from __future__ import annotations

from math import isnan, nan, sqrt

import numpy as np
import pytest

from seedbed.records import Curve
from seedbed.stats.stopping_advice import advise_stopping, format_stopping_advice

STEPS = np.arange(6) * 100


def curve(values: list[float], steps: np.ndarray = STEPS) -> Curve:
    return Curve(steps[: len(values)], np.array(values, dtype=float))


def test_the_earliest_stop_is_within_one_standard_error_of_the_best_mean() -> None:
    first, second = [5, 3, 1.6, 1.3, 1.0, 1.5], [5, 3, 1.6, 1.7, 1.8, 1.9]
    advice = advise_stopping([curve(first), curve(second)])
    # means: 5, 3, 1.6, 1.5, 1.4, 1.7; at 400 the sample std is 0.8/√2, so one standard error is 0.4
    assert (advice.best, advice.value, advice.n) == (400, pytest.approx(1.4), 2)
    assert advice.noise == pytest.approx(0.8 / sqrt(2) / sqrt(2))
    assert advice.earliest == 200
    assert advice.saved_fraction == pytest.approx(1 - 200 / 500)


def test_high_accuracies_are_best() -> None:
    advice = advise_stopping([curve([0, 0.5, 0.8, 0.9, 0.9, 0.9]), curve([0, 0.5, 0.8, 0.9, 0.9, 0.9])], "max")
    assert (advice.best, advice.noise, advice.earliest) == (300, 0.0, 300)
    assert "steps after it brought no improvement" in format_stopping_advice(advice, "val/accuracy")


def test_the_noise_of_one_run_is_its_scatter_around_a_smooth_curve() -> None:
    straight = advise_stopping([curve([6, 5, 4, 3, 2, 1])])
    assert straight.noise == pytest.approx(0.0, abs=1e-12)
    assert straight.earliest == straight.best == 500
    assert "still improving" in format_stopping_advice(straight, "val/loss")
    rng = np.random.default_rng(2)
    steps = np.arange(400)
    noisy = Curve(steps, 1 + 0.05 * rng.normal(size=400))
    assert np.mean([advise_stopping([noisy]).noise]) == pytest.approx(0.05, rel=0.6)


def test_seeds_evaluated_at_different_steps_are_averaged_at_common_steps() -> None:
    advice = advise_stopping([curve([3, 2, 1]), curve([3, 1, 9], np.array([0, 200, 250]))])
    assert (advice.best, advice.last) == (200, 200)


def test_copying_starts_where_samples_exceed_held_out_text() -> None:
    advice = advise_stopping([curve([3, 2, 1])], copied=curve([0.1, 0.2, 0.21, 0.5]), held_out=0.2)
    assert advice.copying == 200
    assert "from step 200 on, samples copy more" in format_stopping_advice(advice, "val/loss")
    assert isnan(advise_stopping([curve([3, 2, 1])], copied=curve([0.1, 0.1]), held_out=0.2).copying)


@pytest.mark.parametrize("values", [[], [nan, nan]])
def test_an_empty_curve_is_reported(values: list[float]) -> None:
    advice = advise_stopping([curve(values)])
    assert isnan(advice.best)
    assert "nothing was recorded" in format_stopping_advice(advice, "val/loss")


def test_one_evaluation_has_a_best_step_and_no_noise() -> None:
    advice = advise_stopping([curve([2.0])])
    assert (advice.best, advice.earliest) == (0, 0)
    assert isnan(advice.noise)
    assert "standard error unknown" in format_stopping_advice(advice, "val/loss")
