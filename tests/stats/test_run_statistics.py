"""One statistic of one run, worked out by hand on a run of five evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, isnan, nan

import numpy as np
import pytest

from seedbed.charts.panel_layout import metric_curve
from seedbed.models.model_size import count_parameters
from seedbed.records import Curve, StoredRun
from seedbed.settings import Settings
from seedbed.stats.compute_budget import training_compute
from seedbed.stats.curve_statistics import (
    first_step_reaching,
    first_step_within,
    generalisation_gap,
    value_at_best_step,
    value_at_step,
)
from seedbed.stats.grokking import (
    GENERALISED_VAL_ACCURACY,
    GROKKING_LABELS,
    LABEL_DEFINITIONS,
    MAX_EARLY_VAL_ACCURACY,
    MEMORISED_TRAIN_ACCURACY,
    classify_grokking,
)
from seedbed.stats.run_statistics import (
    classify_run,
    compute_statistic,
    find_statistic,
    metric_for_split,
    predict_memory_mib,
    replay_at_alpha,
)
from seedbed.stats.summary import RunCurves

STEPS = (0, 10, 20, 30, 31)


def curve(values: Sequence[float], steps: Sequence[int] = STEPS) -> Curve:
    return Curve(np.array(steps[: len(values)], dtype=np.int64), np.array(values, dtype=float))


@pytest.fixture
def run() -> RunCurves:
    values = {
        "train/loss": [4, 2, 1, 0.5, 0.5],
        "val/loss": [4, 3, 2.5, 2.75, 2.75],
        "train/accuracy": [0, 0.5, 1, 1, 1],
        "val/accuracy": [0, 0.25, 0.25, 0.75, 0.75],
        "val/accuracy[order=2]": [0, 0, 0, 1, 1],
        "norm": [9, 8, 7, 8, 8],
    }
    settings = Settings.from_flat({"train.steps": 30})
    stored = StoredRun("r", 0, settings, count_parameters(settings), "finished", 30)
    return RunCurves(stored, {}, {name: curve(row) for name, row in values.items()}, {"compute": 7.5, "evaluate": 1})


@pytest.mark.parametrize(
    ("metric", "statistic", "expected"),
    [
        ("val/loss", "best", 2.5),
        ("val/accuracy", "best", 0.75),
        ("norm", "best", 8.0),
        ("val/loss", "last", 2.75),
        ("val/loss", "t_f", 20.0),
        ("val/accuracy", "t_f", 30.0),
        ("val/accuracy[order=2]", "t_f", 30.0),
        ("val/loss", "gap", 1.5),  # 2.5 − 1 at step 20
        ("train/loss", "gap", 1.5),
        ("val/accuracy", "gap", 0.25),  # 1 − 0.75 at step 30
        ("val/loss", "delta_t", -10.0),  # 20 − 30
        ("val/accuracy", "delta_t", 10.0),  # 30 − 20
        ("val/loss", "seconds", 7.5),
        ("norm", "t_f", nan),
        ("norm", "gap", nan),
        ("val/flavour", "best", nan),
        ("val/accuracy[order=2]", "delta_t", nan),  # there is no train/accuracy[order=2]
    ],
)
def test_each_statistic_by_hand(run: RunCurves, metric: str, statistic: str, expected: float) -> None:
    assert compute_statistic(run, metric, statistic) == pytest.approx(expected, nan_ok=True)  # type: ignore[arg-type]


def test_statistics_stop_at_t_max(run: RunCurves) -> None:
    assert compute_statistic(run, "val/accuracy", "best", t_max=20) == 0.25
    assert compute_statistic(run, "val/accuracy", "t_f", t_max=20) == 10.0
    assert compute_statistic(run, "val/loss", "gap", t_max=10) == 1.0


def test_a_replay_keeps_the_evaluations_up_to_alpha_t(run: RunCurves) -> None:
    half = replay_at_alpha(run, 0.5)
    assert half.config == {"alpha": 0.5}
    assert half.curves["val/loss"].steps.tolist() == [0, 10]
    assert replay_at_alpha(run, 1.0).curves["val/loss"].steps.tolist() == [0, 10, 20, 30]  # 31 is the final evaluation


def test_unmeasured_memory_is_predicted_in_mebibytes(run: RunCurves) -> None:
    assert compute_statistic(run, "val/loss", "memory") == predict_memory_mib(run.run.settings) > 1


def test_a_metric_of_another_split_keeps_its_group() -> None:
    assert metric_for_split("val/loss[order=2]", "train") == "train/loss[order=2]"
    assert metric_for_split("test[a]/loss", "val", "accuracy") == "val/accuracy"


def test_steps_have_no_direction_and_lower_costs_are_better() -> None:
    assert [find_statistic(value).direction("val/accuracy") for value in ("best", "last", "t_f", "delta_t")] == [
        "max", "max", None, None,
    ]  # fmt: skip
    assert {find_statistic(value).direction("val/accuracy") for value in ("gap", "seconds", "memory")} == {"min"}


# ---- variants of t_f, and statistics of one curve ----


def test_first_steps_that_reach_a_threshold_or_come_within_epsilon() -> None:
    rising = curve([0, 0.5, 0.95, 0.9, 1.0])
    assert first_step_reaching(rising, 0.9) == 20
    assert first_step_reaching(rising, 0.5) == 10
    assert isnan(first_step_reaching(rising, 1.01))
    assert first_step_reaching(curve([4, 3, 2]), 3, "min") == 10
    assert first_step_within(rising, 0.05, "max") == 20
    assert first_step_within(rising, 0.0, "max") == 31
    assert first_step_within(curve([4, 3, 2.5, 2.6, 2.4]), 0.1, "min") == 20
    assert isnan(first_step_within(curve([nan, nan]), 0.1))
    assert first_step_within(curve([inf, 1.0, 1.0]), 0.5) == 10


def test_report_cs_rule_takes_one_metric_where_another_is_best() -> None:
    train, val = curve([400, 300, 200, 100, 50]), curve([500, 200, 150, 150, 180])
    assert value_at_best_step(train, val, "min") == 200  # the first of the two minima
    assert isnan(value_at_best_step(curve([1, 2], (1, 2)), val))
    assert value_at_step(val, 30) == 150
    assert generalisation_gap(train, val, "min") == -50


# ---- grokking ----


@pytest.mark.parametrize(
    ("train", "val", "label", "delay"),
    [
        ([0, 0.5, 0.98], [0, 0.1, 0.89], "not learned", nan),
        ([0, 1, 1], [0, 0.1, 0.89], "memorised", nan),
        ([0, 1, 1], [0, 0.5, 0.9], "grokked", 10),
        ([0, 1, 1], [0, 0.51, 0.9], "generalised", 10),
        ([0, 1, 1], [0, 0.95, 0.1], "generalised", 0),
        ([0, 0.5, 1], [0, 0.95, 1], "generalised", -10),
        ([0, 0.5, 0.98], [0, 0.5, 0.9], "generalised", nan),
        ([0, nan, 1], [nan, nan, nan], "memorised", nan),
    ],
)
def test_labels_follow_the_printed_definition(
    train: Sequence[float], val: Sequence[float], label: str, delay: float
) -> None:
    result = classify_grokking(curve(train), curve(val))
    assert result.label == label
    assert result.delay == pytest.approx(delay, nan_ok=True)


def test_the_definition_names_every_label_and_threshold() -> None:
    assert all(label in LABEL_DEFINITIONS for label in GROKKING_LABELS)
    assert all(
        str(threshold) in LABEL_DEFINITIONS
        for threshold in (MEMORISED_TRAIN_ACCURACY, GENERALISED_VAL_ACCURACY, MAX_EARLY_VAL_ACCURACY)
    )


def test_a_run_is_labelled_by_the_accuracies_of_the_metrics_group(run: RunCurves) -> None:
    result = classify_run(run, "val/loss")
    assert result is not None
    assert result.label == "memorised"
    assert classify_run(run, "val/accuracy[order=2]") is None


# ---- cost ----


def test_compute_is_parameters_times_batch_times_steps() -> None:
    settings = Settings.from_flat({"model.kind": "lstm", "train.batch_size": 64, "train.steps": 10_001})
    stored = StoredRun("a", 0, settings, count_parameters(settings), "planned", 0)
    assert training_compute(stored) == 267_812 * 64 * 10_008  # whole epochs of 8 batches
    assert training_compute(stored, n_updates=500) == 267_812 * 64 * 500


# ---- runs at chance ----


def at_chance(accuracies: Sequence[float]) -> RunCurves:
    """A run mod 29 that learns its training equations, with these validation accuracies."""
    settings = Settings.from_flat({"task.p": 29, "train.steps": 30})
    stored = StoredRun("c", 0, settings, count_parameters(settings), "finished", 30)
    values = {"train/accuracy": [0, 0.5, 1, 1, 1], "val/accuracy": accuracies, "val/loss": [4, 3, 5, 6, 6]}
    return RunCurves(stored, {}, {name: curve(row) for name, row in values.items()})


@pytest.mark.parametrize("statistic", ["t_f", "delta_t"])
@pytest.mark.parametrize("metric", ["val/accuracy", "val/loss"])
def test_a_run_that_never_left_chance_has_no_best_step(metric: str, statistic: str) -> None:
    run = at_chance([0.03, 0.06, 0.05, 0.02, 0.04])
    assert isnan(compute_statistic(run, metric, statistic))
    assert "1 of 1 run never left chance" in find_statistic(statistic).comparison_note([run], [metric])
    learned = at_chance([0.03, 0.06, 0.5, 0.9, 0.8])
    assert find_statistic(statistic).comparison_note([learned], [metric]) == ""


def test_times_of_the_training_split_need_only_that_to_leave_chance() -> None:
    run = at_chance([0.03, 0.06, 0.05, 0.02, 0.04])
    assert compute_statistic(run, "train/accuracy", "t_f") == 20
    assert compute_statistic(at_chance([0.03, 0.06, 0.5, 0.9, 0.8]), "val/accuracy", "delta_t") == 10


def test_without_an_evaluated_training_set_gaps_are_to_the_running_loss(run: RunCurves) -> None:
    """It has no value at step 0; where both are recorded the training set counts."""
    curves = dict(run.curves)
    assert compute_statistic(run, "val/loss", "gap") == 1.5
    running = curves["train/running_loss"] = curve([3, 1.25, 1, 1], STEPS[1:])
    assert compute_statistic(replace(run, curves=curves), "val/loss", "gap") == 1.5
    del curves["train/loss"]
    alone = replace(run, curves=curves)
    assert compute_statistic(alone, "val/loss", "gap") == 1.25
    assert compute_statistic(alone, "val/loss", "delta_t") == 20 - 30
    assert metric_curve(alone, "gap/loss").steps.tolist() == running.steps.tolist()
    assert metric_curve(alone, "gap/loss").values.tolist() == [0, 1.25, 1.75, 1.75]
    assert isnan(compute_statistic(alone, "val/perplexity", "gap"))
