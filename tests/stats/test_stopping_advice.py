from __future__ import annotations

from dataclasses import replace
from math import isnan, nan, sqrt

import numpy as np
import pytest
from tests.charts.factories import make_run

from seedbed.records import Curve
from seedbed.specs import QuestionSpec
from seedbed.stats.answers import answer_question
from seedbed.stats.stopping_advice import advise_stopping, advise_stopping_for_runs, format_stopping_advice

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
    assert "was never recorded" in format_stopping_advice(advice, "val/loss")


def test_one_evaluation_has_a_best_step_and_no_noise() -> None:
    advice = advise_stopping([curve([2.0])])
    assert (advice.best, advice.earliest) == (0, 0)
    assert isnan(advice.noise)
    assert "(best at step 0: 2, 1 seed)" in format_stopping_advice(advice, "val/loss")


# ---- one piece of advice ----


def test_a_curve_that_still_improves_is_to_be_trained_longer_and_saves_nothing() -> None:
    """Two noisy seeds: step 100 is within one standard error of the best, which is at the end."""
    advice = advise_stopping([curve([5, 1.4, 1.3, 1.3, 1.2, 1.0]), curve([5, 2.0, 2.1, 2.0, 2.0, 2.0])])
    assert advice.earliest == advice.best == 500
    text = format_stopping_advice(advice, "val/loss")
    assert text == "train longer: validation loss was still improving at the end (best at step 500: 1.5 ± 0.5, 2 seeds)"
    assert "saved" not in text


def test_the_closing_evaluation_is_not_a_further_step() -> None:
    """With 30 steps, the evaluation after the last update is recorded as step 31."""
    runs = [make_run({}, 0, {"val/loss": [4, 1, 2, 3, 3]}, [0, 10, 20, 30, 31])]
    runs[0] = replace(runs[0], run=replace(runs[0].run, step=30))
    advice = advise_stopping_for_runs(runs, "val/loss")
    assert advice is not None
    assert advice.last == 30
    assert "the 20 steps after it brought no improvement" in format_stopping_advice(advice, "val/loss")


@pytest.mark.parametrize(
    ("val", "text"),
    [
        ([0.0, 0.0, 0.1, 1.0, 0.95, 0.95], "do not stop early: training accuracy reached 0.99 at step 10 and "),
        ([0.0, 0.3, 0.2, 0.1, 0.1, 0.1], "train longer: training accuracy reached 0.99 at step 10, and "),
        ([0.0, 1.0, 1.0, 1.0, 1.0, 1.0], ", and the 40 steps after it brought no improvement"),
    ],
)
def test_an_early_stop_is_not_advised_where_validation_follows_late(val: list[float], text: str) -> None:
    runs = [make_run({}, 0, {"train/accuracy": [0, 1, 1, 1, 1, 1], "val/accuracy": val})]
    advice = advise_stopping_for_runs(runs, "val/accuracy")
    assert advice is not None
    assert text in format_stopping_advice(advice, "val/accuracy")
    assert advice.earliest == advice.best


# ---- grokking ----

GROKKED = {"train/accuracy": [0, 1, 1, 1, 1], "val/accuracy": [0, 0, 0, 1, 1]}
MEMORISED = {"train/accuracy": [0, 1, 1, 1, 1], "val/accuracy": [0, 0, 0, 0, 0]}


def test_models_and_tasks_are_never_pooled() -> None:
    runs = [
        make_run({"task.p": p, "model.kind": kind}, seed, GROKKED if kind == "gpt" else MEMORISED)
        for p in (23, 29) for kind in ("gpt", "lstm") for seed in range(2)
    ]  # fmt: skip
    found = answer_question(QuestionSpec(ask="grokking"), runs)
    assert list(found.numbers) == ["modulus 23, GPT", "modulus 23, LSTM", "modulus 29, GPT", "modulus 29, LSTM"]
    assert found.sentence.startswith("Modulus 23, GPT; modulus 29, GPT, each: both runs grokked (95 % CI 16 to 100 % ")
    assert found.numbers["modulus 29, LSTM"]["labels"]["memorised"] == 2
    by_kind = answer_question(QuestionSpec(ask="grokking", between="model.kind"), runs)
    assert list(by_kind.numbers)[:2] == ["GPT, modulus 23", "LSTM, modulus 23"]


def test_many_configs_are_listed_by_label() -> None:
    runs = [make_run({"model.dim": 8 * dim}, seed, GROKKED if dim > 4 or (dim == 4 and seed) else MEMORISED)
            for dim in range(1, 11) for seed in range(2)]  # fmt: skip
    sentence = answer_question(QuestionSpec(ask="grokking"), runs).sentence
    assert sentence.startswith("Every run only memorised: width 8, 16 and 24. Every run grokked: width 40, ")
    assert "Runs differ: width 32 (1 only memorised and 1 grokked)." in sentence


@pytest.mark.parametrize(("train", "says_longer"), [([0, 0.5, 1, 1], True), ([0, 0.1, 0.2, 0.3], False)])
def test_a_metric_that_never_left_chance_has_no_best_step(train: list[float], says_longer: bool) -> None:
    curves = {"train/accuracy": train, "val/accuracy": [0.03, 0.06, 0.04, 0.02]}
    runs = [make_run({"task.p": 29}, seed, curves) for seed in range(2)]
    answer = answer_question(QuestionSpec(ask="stopping", metric="val/accuracy"), runs)
    assert answer.sentence.startswith("No step is the best: validation accuracy never left chance (2 seeds, 30 steps)")
    assert ("at step 20, so train longer" in answer.sentence) == says_longer


def test_unfinished_runs_get_no_advice_and_no_label() -> None:
    curves = {"train/accuracy": [0, 1, 1, 1], "val/accuracy": [0, 0.5, 0.9, 0.8]}
    runs = [make_run({"model.layers": 1}, 0, curves), make_run({"model.layers": 2}, 0, curves, status="stopped")]
    stopping = answer_question(QuestionSpec(ask="stopping", metric="val/accuracy"), runs)
    assert list(stopping.numbers) == ["1 layer"]
    grokking = answer_question(QuestionSpec(ask="grokking", metric="val/accuracy"), runs)
    assert "2 layers: no run is complete." in grokking.sentence
