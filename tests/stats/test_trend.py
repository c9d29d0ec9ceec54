"""How a metric changes along a setting: monotone trends, optima inside the range, and times to a threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from scipy import stats
from tests.charts.factories import make_run

from seedbed.specs import QuestionSpec
from seedbed.stats.answers import Answer, answer_question
from seedbed.stats.optimum import find_optimum
from seedbed.stats.summary import RunCurves

LR = "train.lr"


def sweep(rows: Mapping[float, Sequence[float]], metric: str = "val/loss", **others: int) -> list[RunCurves]:
    """One run for each value of lr and seed, whose metric ends at this value."""
    start = 9.0 if metric.endswith("loss") else 0.0
    config = {f"model.{name}": value for name, value in others.items()}
    return [
        make_run({LR: lr, **config}, seed, {metric: [start, value]})
        for lr, values in rows.items()
        for seed, value in enumerate(values)
    ]


def ask(runs: Sequence[RunCurves], metric: str = "val/loss", value: str = "best", ask: str = "") -> Answer:
    kind = {"ask": "how does it change", "over": LR} if not ask else {"ask": ask, "between": LR}
    return answer_question(QuestionSpec(metric=metric, value=value, **kind), runs)


def u_shape(n_levels: int = 20, n_seeds: int = 8, noise: float = 0.02) -> dict[float, list[float]]:
    rng, best = np.random.default_rng(0), 0.6 * (n_levels - 1)
    seeds = rng.normal(0, 0.1, n_seeds)
    levels = np.geomspace(1e-4, 0.1, n_levels).round(7)
    return {
        float(level): (1.25 + 0.01 * (i - best) ** 2 + seeds + rng.normal(0, noise, n_seeds)).tolist()
        for i, level in enumerate(levels)
    }


def test_a_rising_metric_is_reported_with_its_end_points_and_pages_test() -> None:
    rows = {0.1: [0.1, 0.2, 0.1], 0.3: [0.4, 0.3, 0.5], 0.5: [0.9, 0.8, 0.95], 0.9: [0.85, 0.9, 0.9]}
    found = ask(sweep(rows, "val/accuracy"), "val/accuracy")
    page = stats.page_trend_test(np.array(list(rows.values())).T, method="exact").pvalue
    assert found.sentence.startswith(
        "Best validation accuracy rises with the learning rate, from 0.133 at 0.1 to 0.883 at 0.9 (change +0.750, "
    )
    assert found.numbers["all"]["p"] == pytest.approx(2 * page)
    assert (found.n, found.verdict) == (12, "yes")


def test_a_u_shape_is_not_monotone_and_its_optimum_has_a_confidence_set() -> None:
    rows = u_shape()
    found = ask(sweep(rows))
    numbers = found.numbers["all"]
    true_best = list(rows)[round(0.6 * 19)]
    assert found.sentence.startswith(
        "Best validation loss is not monotone in the learning rate: 2.57 at 1e-4, lowest (1.28"
    )
    assert f"at {numbers['optimum']['level']}, 1.8" in found.sentence
    assert true_best in numbers["optimum"]["confidence_set"]
    assert 1 < len(numbers["optimum"]["confidence_set"]) < 8
    assert (numbers["not_monotone"], found.verdict) == (True, "yes")


def test_many_values_of_a_number_are_not_compared_pair_by_pair() -> None:
    found = ask(sweep(u_shape()), ask="which is better")
    assert found.sentence.startswith("Best validation loss is not monotone in the learning rate")
    assert "pairs" not in found.numbers
    four = ask(sweep(u_shape(4)), ask="which is better")
    assert len(four.numbers["pairs"]) == 6


def test_noise_around_a_constant_has_no_trend_and_no_optimum() -> None:
    rng = np.random.default_rng(2)
    found = ask(sweep({lr: rng.normal(1, 0.1, 6).tolist() for lr in (0.1, 0.2, 0.3, 0.4, 0.5)}))
    assert found.sentence.startswith(
        "We cannot tell whether best validation loss changes with the learning rate: it goes fr"
    )
    assert "confidence set" not in found.sentence
    assert found.verdict == "cannot tell"


def test_too_few_seeds_are_said_to_be_too_few() -> None:
    found = ask(sweep({0.1: [1.0], 0.2: [0.5], 0.3: [0.9]}))
    assert (
        "(change −0.1, 1 paired seed, rank correlation −0.5 over 3 values, too few seeds and values" in found.sentence
    )


def test_seeds_are_the_units_though_other_settings_vary() -> None:
    """Two seeds of six models: twelve rows of three values would be significant, two are not."""
    runs = [run for dim in range(8, 56, 8) for run in sweep({0.1: [3, 3], 0.2: [2, 2], 0.3: [1, 1]}, dim=dim)]
    found = ask(runs)
    assert found.numbers["all"]["p"] == pytest.approx(2 / 36)
    assert found.numbers["all"]["n_seeds"] == 2
    assert found.sentence.startswith("We cannot tell whether ")


def test_a_setting_that_changes_along_is_a_confound() -> None:
    runs = [make_run({LR: lr, "model.dim": dim}, seed, {"val/loss": [3.0, 1.0 + seed / 10 + lr]})
            for lr, dim in ((0.1, 8), (0.2, 16), (0.3, 24)) for seed in range(6)]  # fmt: skip
    found = ask(runs)
    assert found.sentence.startswith("No verdict: the groups also differ in width")
    assert found.verdict == "no verdict"


# ---- times ----


def late_runs(arrivals: Mapping[float, Sequence[int | None]]) -> list[RunCurves]:
    """Runs of ten evaluations, whose accuracy reaches 0.95 at this one; None: never."""
    return [
        make_run({LR: lr}, seed, {"val/accuracy": [0.3] * n_early + [0.95] * (10 - n_early)})
        for lr, by_seed in arrivals.items()
        for seed, n_early in enumerate(10 if arrival is None else arrival for arrival in by_seed)
    ]


def test_runs_that_never_get_there_count_in_the_trend_of_a_time() -> None:
    arrivals = {0.1: [8, 9, None, None, 9, None], 0.2: [5, 6, 7, 5, 6, 9], 0.3: [2, 1, 2, 1, 3, 2]}
    found = ask(late_runs(arrivals), "val/accuracy", "t_90")
    assert found.sentence.startswith(
        "t_90 of validation accuracy falls with the learning rate, from a median of 90 at 0.1 "
        "(3 of 6 runs got there) to a median of 20 at 0.3 ("
    )
    assert found.verdict == "yes"
    assert [time["n_reached"] for time in found.numbers["all"]["times"]] == [3, 6, 6]


def test_which_is_sooner_counts_the_runs_that_never_get_there() -> None:
    """Without the censored runs the second group would be sooner: its only arrival is the earliest of all."""
    runs = late_runs({0.1: [5, 6, 7, 5, 6, 9], 0.2: [1, None, None, None, None, None]})
    found = ask(runs, "val/accuracy", "t_90", ask="which is better")
    one, other = "learning rate 0.1", "learning rate 0.2"
    medians = (
        f"{one} at a median step of 60 (95 % CI 50 to 90), reached by 6 of 6 runs; {other} in less than half of "
        "its runs (95 % CI 10 to ∞), reached by"
    )
    assert found.sentence.startswith(
        f"We cannot tell whether {one} or {other} reaches a validation accuracy of 0.9 sooner: {medians} 1 of 6 runs ("
    )
    never = ask(late_runs({0.1: [5, 6, 7, 5, 6, 9], 0.2: [None] * 6}), "val/accuracy", "t_90", ask="which is better")
    start = f"Learning rate 0.1 reaches a validation accuracy of 0.9 sooner than {other}: {one} at"
    assert never.sentence.startswith(start)
    assert never.sentence.endswith("(6 paired seeds, p = 0.031).")
    assert any("log-rank test" in definition for definition in never.definitions)
    assert never.verdict == "yes"


def test_few_seeds_get_medians_but_no_verdict_on_which_is_sooner() -> None:
    found = ask(late_runs({0.1: [5, 6, 7], 0.2: [1, 2, 3]}), "val/accuracy", "t_90", ask="which is better")
    assert found.sentence.startswith("We cannot tell whether")
    assert (
        "rate 0.2 at a median step of 20, reached by 3 of 3 runs (3 paired seeds; at least 6 are needed)"
        in found.sentence
    )
    assert found.verdict == "cannot tell"


def test_two_metrics_of_the_same_runs_are_compared_by_their_times() -> None:
    runs = [
        make_run({}, seed, {"val/accuracy[order=2]": [0, 0, 0.5, 1, 1], "val/accuracy[order=3]": [0, 1, 1, 1, 1]})
        for seed in range(6)
    ]
    question = QuestionSpec(
        ask="which is better", metric="val/accuracy[order=2]", and_metric="val/accuracy[order=3]", value="t_90"
    )
    found = answer_question(question, runs)
    assert found.sentence.startswith(
        "Validation accuracy (order=3) reaches an accuracy of 0.9 sooner than validation accuracy (order=2): "
    )


def test_no_run_that_gets_there_is_said_plainly() -> None:
    found = ask(late_runs({0.1: [None] * 6, 0.2: [None] * 6}), "val/accuracy", "t_90", ask="which is better")
    assert found.sentence == (
        "We cannot tell learning rate 0.1 and learning rate 0.2 apart: no run reaches a validation accuracy of 0.9 (6 "
        "of learning rate 0.1 and 6 of learning rate 0.2)."
    )


# ---- the confidence set of the best value ----


@pytest.mark.parametrize("noise", ["normal", "skewed", "heavy-tailed"])
@pytest.mark.parametrize("curvature", [0.0, 0.3])
@pytest.mark.parametrize("n", [5, 8])
def test_the_confidence_set_contains_the_best_value(n: int, curvature: float, noise: str) -> None:
    """At a true coverage of 95 %, fewer than 93 % of 800 have a chance of 1 in 150; the seed fixes the draw."""
    rng, n_levels, n_covered = np.random.default_rng(n), 7, 0
    means = curvature * (np.arange(n_levels) - 3) ** 2
    for _ in range(800):
        shape = (n, n_levels)
        errors = {"normal": rng.normal, "skewed": rng.exponential}.get(noise)
        values = errors(size=shape) if errors else rng.standard_t(2, shape)
        n_covered += 3 in find_optimum(means + values, "min").confidence_set
    assert n_covered / 800 >= 0.93


def test_equal_columns_are_all_best() -> None:
    assert find_optimum(np.ones((6, 4)), "max").confidence_set == (0, 1, 2, 3)


def test_a_question_with_t_max_is_answered_as_if_all_runs_had_stopped_there() -> None:
    runs = [
        make_run({"model.kind": kind}, seed, {"val/loss": values})
        for kind, values in (("gpt", [3.0, 1.0, 0.9]), ("lstm", [3.0, 2.0, 0.1]))
        for seed in range(6)
    ]
    last = int(runs[0].curves["val/loss"].steps[1])
    question = {"metric": "val/loss", "between": "model.kind"}
    whole = answer_question(QuestionSpec(**question), runs)
    until = answer_question(QuestionSpec(**question, t_max=last), runs)
    assert [numbers["mean"] for numbers in whole.numbers["means"].values()] == pytest.approx([0.9, 0.1])
    assert [numbers["mean"] for numbers in until.numbers["means"].values()] == pytest.approx([1.0, 2.0])
    assert f"as if stopped at step {last:,}" in until.warning
    assert "as if stopped" not in whole.warning
