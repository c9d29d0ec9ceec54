"""The question "what law": exact laws are found again, bad ones are refused, and the largest size is predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.charts.factories import make_run

from seedbed.specs import QuestionSpec
from seedbed.stats.answers import Answer, answer_question
from seedbed.stats.scaling_laws import fit_scaling_law
from seedbed.stats.summary import RunCurves

QUESTION = QuestionSpec(ask="what law", metric="val/loss", over="parameters")
SIZES = (1_000, 4_000, 16_000, 64_000, 256_000)


def runs_of(
    loss: Callable[[float], float], sizes: Sequence[int] = SIZES, n_seeds: int = 4, noise: float = 0.01
) -> list[RunCurves]:
    rng = np.random.default_rng(1)
    return [
        make_run({"model.dim": 8 * i}, seed, {"val/loss": [9.0, loss(size) * factor]}, parameters=size)
        for i, size in enumerate(sizes, 1)
        for seed, factor in enumerate(1 + noise * rng.normal(size=n_seeds))
    ]


def ask(runs: Sequence[RunCurves], **options: str) -> Answer:
    return answer_question(QUESTION.model_copy(update=options), runs)


def power_law(size: Any) -> Any:
    return 0.5 + 30 * size**-0.4


def test_an_exact_law_is_found_again_and_predicts_the_largest_size() -> None:
    found = ask(runs_of(power_law, noise=0.0, n_seeds=1))
    numbers = found.numbers["all"]
    assert numbers["exponents"]["parameters"]["value"] == pytest.approx(0.4, rel=1e-3)
    assert numbers["floor"]["value"] == pytest.approx(0.5, rel=1e-2)
    assert numbers["held_out"]["predicted"]["value"] == pytest.approx(power_law(256_000), rel=1e-3)
    assert found.verdict == "yes"
    assert "one seed" in found.sentence or "1 seed, so no intervals" in found.sentence


def test_noisy_seeds_give_an_interval_that_contains_the_exponent() -> None:
    found = ask(runs_of(power_law))
    exponent = found.numbers["all"]["exponents"]["parameters"]
    assert exponent["low"] < 0.4 < exponent["high"]
    assert found.sentence.startswith(
        "Best validation loss follows a power law in the number of non-embedding parameters: "
    )
    assert "over 5 sizes from 1,000 to 256,000, 4 seeds" in found.sentence
    assert "Fitted without the largest value, 256,000, it predicts " in found.sentence
    assert (found.n, found.verdict) == (20, "yes")


def test_a_law_that_breaks_at_the_largest_size_may_not_extrapolate() -> None:
    """The last size is a quarter worse than the law, though all five still fit some law well."""
    found = ask(runs_of(lambda size: power_law(size) * (1.25 if size == SIZES[-1] else 1.0), noise=0.001))
    assert ": one fits but may not extrapolate: " in found.sentence
    assert found.verdict == "cannot tell"


@pytest.mark.parametrize("loss", [lambda size: 1 + 0.5 * (size in SIZES[1::2]), lambda size: 1.0 + size / 1e6])
def test_values_that_do_not_fall_to_a_floor_follow_no_law(loss: Callable[[float], float]) -> None:
    found = ask(runs_of(loss))
    assert found.sentence.startswith("Best validation loss does not follow a power law in the number of")
    assert found.verdict == "no"


def test_a_law_whose_exponent_is_not_known_is_left_open() -> None:
    """A law fits well, but so do laws with other exponents, among them the true one: that is no evidence against it."""
    rng = np.random.default_rng(2)
    runs = [
        make_run({"model.dim": 8 * i}, seed, {"val/loss": [9.0, power_law(size) * factor]}, parameters=size)
        for i, size in enumerate(SIZES, 1)
        for seed, factor in enumerate(1 + 0.1 * rng.normal(size=3))
    ]
    found = ask(runs)
    assert found.sentence.startswith(
        "We cannot tell which power law best validation loss follows in the number of non-embed"
    )
    assert "parameters: the exponent is uncertain by more than a factor of 10" in found.sentence
    assert found.numbers["all"]["r_squared"] > 0.9
    assert found.verdict == "cannot tell"


def test_three_sizes_are_too_few_and_an_accuracy_has_no_law() -> None:
    assert ask(runs_of(power_law, SIZES[:3])).sentence == (
        "There is no law yet: 3 values of the number of non-embedding parameters with the same seeds, 4 are needed."
    )
    runs = [make_run({"model.dim": 8 * i}, 0, {"val/accuracy": [0.1, 0.2 * i]}) for i in range(1, 5)]
    assert "There is no law of best validation accuracy" in ask(runs, metric="val/accuracy").sentence


def test_each_group_has_its_own_law_and_another_setting_is_a_confound() -> None:
    runs = [
        make_run({"model.kind": kind, "train.batch_size": b}, seed, {"val/loss": [9.0, 1 + scale / b + seed / 1e3]})
        for kind, scale in (("gpt", 8), ("lstm", 16))
        for b in (8, 16, 32, 64)
        for seed in range(2)
    ]
    found = ask(runs, over="train.batch_size", between="model.kind")
    assert set(found.numbers) == {"GPT", "LSTM"}
    assert found.numbers["GPT"]["exponents"]["batch_size"]["value"] == pytest.approx(1, rel=0.05)
    confounded = ask(
        [make_run({"model.dim": 8 * i, "train.lr": 0.1 * i}, 0, {"val/loss": [9, 1 + 1 / i]}) for i in range(1, 6)],
        over="model.dim",
    )
    assert confounded.sentence.startswith("No verdict: the groups also differ in learning rate")


def test_the_interval_of_the_exponent_covers_it() -> None:
    """At a true coverage of 95 %, fewer than 90 % of 100 have a chance of 1 in 90; the seed fixes the draw."""
    rng, sizes, n_covered = np.random.default_rng(0), np.array(SIZES, dtype=float), 0
    for _ in range(100):
        losses = {seed: (power_law(sizes) * (1 + 0.01 * rng.normal(size=5))).tolist() for seed in range(4)}
        exponent = fit_scaling_law({"x": sizes.tolist()}, losses).exponents["x"]
        n_covered += exponent.low <= 0.4 <= exponent.high
    assert n_covered >= 90
