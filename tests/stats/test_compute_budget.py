"""Scaling laws are recovered from simulated studies, and the advice agrees with a search over the law."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan

import numpy as np
import pytest
from numpy.typing import NDArray

from seedbed.errors import UsageError
from seedbed.models.model_size import count_parameters
from seedbed.records import Curve, StoredRun
from seedbed.settings import Settings
from seedbed.stats.compute_budget import (
    advise_budget,
    budget_curve,
    fit_law_to_runs,
    format_budget_advice,
    format_scaling_law,
)
from seedbed.stats.scaling_laws import FittedValue, ScalingLaw, fit_scaling_law
from seedbed.stats.summary import RunCurves

SIZES = np.geomspace(1e4, 1e7, 8)
BATCHES, STEPS = (grid.ravel() for grid in np.meshgrid([32, 64, 128, 256, 512], np.arange(1, 11) * 2000.0))


def noisy(losses: NDArray[np.float64], n_seeds: int, rng: np.random.Generator, noise: float) -> dict[int, list[float]]:
    """Losses of some seeds; a part of the noise is the seed's own, the same at every data point."""
    offsets = rng.normal(0, noise / 2, n_seeds)
    return {
        seed: (losses * np.exp(rng.normal(0, noise, losses.size) + offsets[seed])).tolist() for seed in range(n_seeds)
    }


def covers(estimate: FittedValue, truth: float) -> bool:
    return estimate.low <= truth <= estimate.high


def test_a_law_without_noise_is_recovered_exactly() -> None:
    losses = (0.5 + 200 * SIZES**-0.4).tolist()
    law = fit_scaling_law({"parameters": SIZES.tolist()}, {0: losses, 1: losses})
    assert law.floor.value == pytest.approx(0.5, rel=1e-4)
    assert law.scales["parameters"].value == pytest.approx(200, rel=1e-3)
    assert law.exponents["parameters"].value == pytest.approx(0.4, rel=1e-4)
    assert law.r_squared == pytest.approx(1.0)
    assert law.ranges["parameters"] == pytest.approx((1e4, 1e7))
    assert law.warnings == ()
    assert law.predict({"parameters": [1e5, 1e6]}) == pytest.approx([0.5 + 200 * 1e5**-0.4, 0.5 + 200 * 1e6**-0.4])


def count_hits(n_studies: int, n_seeds: int, noise: float) -> NDArray[np.float64]:
    """In how many simulated studies the intervals of floor, scale, exponent and a prediction cover the truth."""
    rng = np.random.default_rng(123)
    hits = np.zeros(4)
    for _ in range(n_studies):
        law = fit_scaling_law({"parameters": SIZES.tolist()}, noisy(0.5 + 200 * SIZES**-0.4, n_seeds, rng, noise), 100)
        estimates = [law.floor, law.scales["parameters"], law.exponents["parameters"]]
        estimates.append(law.predict_interval({"parameters": 1e6}))
        truths = (0.5, 200, 0.4, 0.5 + 200 * 1e6**-0.4)
        hits += [covers(estimate, truth) for estimate, truth in zip(estimates, truths, strict=True)]
    return hits


def test_intervals_cover_a_known_law_in_90_of_100_simulated_studies() -> None:
    """One case of the slow test below, which is stricter in five cases."""
    hits = count_hits(100, 3, 0.02)
    assert (hits >= 90).all(), hits


@pytest.mark.slow
@pytest.mark.parametrize(("n_seeds", "noise"), [(2, 0.03), (3, 0.02), (5, 0.02), (5, 0.05), (8, 0.05)])
def test_intervals_cover_the_law_in_about_95_percent_of_many_studies(n_seeds: int, noise: float) -> None:
    hits = count_hits(500, n_seeds, noise)
    assert (hits >= 0.93 * 500).all(), hits


def joint_law(rng: np.random.Generator, noise: float = 0.03) -> ScalingLaw:
    losses = 0.1 + 3 * BATCHES**-0.5 + 50 * STEPS**-0.6
    return fit_scaling_law({"batch": BATCHES.tolist(), "steps": STEPS.tolist()}, noisy(losses, 5, rng, noise))


def test_intervals_cover_a_joint_law_and_its_advice() -> None:
    """30 studies; at a true coverage of 95 %, fewer than 25 hits have a chance of 1 in 300."""
    batches = np.geomspace(1, 1e5, 100_001)
    best = batches[np.argmin(3 * batches**-0.5 + 50 * (1e6 / batches) ** -0.6)]
    rng = np.random.default_rng(9)
    hits = np.zeros(3)
    for _ in range(30):
        law = joint_law(rng)
        advice = advise_budget(law, 1e6)
        exponents = law.exponents
        hits += [
            covers(exponents["batch"], 0.5),
            covers(exponents["steps"], 0.6),
            covers(advice.allocation["batch"], best),
        ]
    assert (hits >= 25).all(), hits


def test_the_advised_allocation_spends_the_budget_where_a_search_finds_the_lowest_loss() -> None:
    law = joint_law(np.random.default_rng(1))
    advice = advise_budget(law, 4e11, fixed={"parameters": 4e5})
    batches = np.geomspace(1, 1e6, 200_001)
    losses = law.predict({"batch": batches, "steps": 1e6 / batches})
    assert advice.allocation["batch"].value == pytest.approx(batches[losses.argmin()], rel=1e-3)
    assert advice.allocation["batch"].value * advice.allocation["steps"].value * 4e5 == pytest.approx(4e11)
    assert advice.loss.value == pytest.approx(losses.min(), rel=1e-6)
    assert advice.allocation["batch"].low < advice.allocation["batch"].value < advice.allocation["batch"].high
    assert advice.warnings == ()
    assert "batch = " in format_budget_advice(advice)


def test_a_fixed_variable_leaves_the_rest_of_the_budget_to_the_others() -> None:
    law = joint_law(np.random.default_rng(1))
    advice = advise_budget(law, 1e6, fixed={"batch": 100})
    assert list(advice.allocation) == ["steps"]
    assert advice.allocation["steps"].value == pytest.approx(1e4)


def test_extrapolation_gives_a_warning() -> None:
    law = joint_law(np.random.default_rng(1))
    advice = advise_budget(law, 1e9)
    assert any("lies outside the range that was tried" in warning for warning in advice.warnings)
    assert "lies outside" in format_budget_advice(advice)


def test_a_poor_fit_and_a_variable_without_effect_give_warnings() -> None:
    rng = np.random.default_rng(2)
    law = fit_scaling_law(
        {"steps": STEPS[::5].tolist()}, {seed: (2 + 0.05 * rng.normal(size=10)).tolist() for seed in range(3)}
    )
    assert any("poor fit" in warning for warning in law.warnings)
    assert "poor fit" in format_scaling_law(law)
    rising = fit_scaling_law(
        {"batch": [1.0, 2, 4, 8, 16]}, {0: [1.0, 1.1, 1.2, 1.3, 1.4], 1: [1.0, 1.1, 1.2, 1.3, 1.4]}
    )
    assert any("poor fit" in warning or "not determined" in warning for warning in rising.warnings)


def test_one_seed_or_too_few_data_points_give_warnings() -> None:
    law = fit_scaling_law({"steps": [100.0, 200, 400]}, {0: [3.0, 2.0, 1.5]})
    assert isnan(law.exponents["steps"].low)
    assert any("one seed" in warning for warning in law.warnings)
    assert any("3 data points for 3 parameters" in warning for warning in law.warnings)


def test_the_budget_curve_spends_the_budget_everywhere() -> None:
    law = joint_law(np.random.default_rng(1))
    curve = budget_curve(law, 1e6, along="batch", other="steps", n_values=7)
    assert curve.x[[0, -1]] == pytest.approx([32, 512])
    assert curve.x * curve.y == pytest.approx(np.full(7, 1e6))
    assert curve.loss == pytest.approx(law.predict({"batch": curve.x, "steps": curve.y}))


@pytest.mark.parametrize(
    ("variables", "losses", "why"),
    [
        ({"steps": [1.0, 2.0]}, {0: [1.0, 2.0]}, "3 parameters but 2 data points"),
        ({"steps": [1.0, 2.0, 4.0]}, {0: [1.0, -2.0, 3.0]}, "above 0"),
        ({"steps": [1.0, 2.0, 4.0]}, {0: [1.0, float("nan"), 3.0]}, "above 0"),
        ({"steps": [2.0, 2.0, 2.0]}, {0: [1.0, 1.0, 3.0]}, "steps has the same value"),
        ({"steps": []}, {}, "0 data points"),
    ],
)
def test_data_that_no_law_can_fit_are_refused(
    variables: Mapping[str, list[float]], losses: Mapping[int, list[float]], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        fit_scaling_law(variables, losses)


# ---- from runs ----


def run(kind: str, batch: int, seed: int, losses: list[float]) -> RunCurves:
    settings = Settings.from_flat({"model.kind": kind, "train.batch_size": batch, "train.steps": 1000})
    stored = StoredRun(f"{kind}{batch}{seed}", seed, settings, count_parameters(settings), "finished", 1000)
    steps = np.arange(1, 11) * 100
    return RunCurves(stored, {}, {"val/loss": Curve(steps, np.array(losses))})


def law_losses(batch: int, factor: float) -> list[float]:
    steps = np.arange(1, 11) * 100
    return ((0.2 + batch**-0.5 + 30 * steps**-0.7) * factor).tolist()


def test_runs_give_data_points_at_every_alpha() -> None:
    runs = [
        run("gpt", batch, seed, law_losses(batch, 1 + 0.01 * seed)) for batch in (32, 64, 128) for seed in (0, 1, 2)
    ]
    law = fit_law_to_runs(runs, "val/loss", ("batch", "steps"))
    assert (law.n_points, law.n_seeds) == (30, 3)
    assert law.exponents["steps"].value == pytest.approx(0.7, rel=0.02)
    assert law.exponents["batch"].value == pytest.approx(0.5, rel=0.02)


def test_runs_that_differ_in_another_setting_are_refused() -> None:
    runs = [run(kind, 64, 0, law_losses(64, 1.0)) for kind in ("gpt", "lstm")]
    with pytest.raises(UsageError, match="another setting varies"):
        fit_law_to_runs(runs, "val/loss", ("steps",))
    with pytest.raises(UsageError, match="width is not a variable"):
        fit_law_to_runs(runs, "val/loss", ("width",))
