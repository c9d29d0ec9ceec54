"""Answers to questions about synthetic runs: numbers, sentences, and missing data; and the commands that print them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from seedbed.cli import app
from seedbed.models.model_size import count_parameters
from seedbed.records import Curve, EvaluationEvent, FinishEvent, Pack, Placement, RunStatus, StoredRun, to_jsonable
from seedbed.settings import Settings, Value
from seedbed.specs import QuestionSpec
from seedbed.stats.answers import answer_question, format_question
from seedbed.stats.summary import RunCurves
from seedbed.store import open_store
from seedbed.study.plan import plan_named
from seedbed.study.read import read_study
from seedbed.study.study_files import shipped_studies

STEPS = (0, 10, 20, 30, 40)


def run(
    config: Mapping[str, Value],
    seed: int,
    metrics: Mapping[str, Sequence[float]] | float,
    status: RunStatus = "finished",
    seconds: float = nan,
) -> RunCurves:
    """A run with these metrics; a single number is the val/accuracy at its last step."""
    rows = metrics if isinstance(metrics, Mapping) else {"val/accuracy": [0.0, 0.0, 0.0, 0.0, metrics]}
    settings = Settings.from_flat({"train.steps": 40, **config})
    stored = StoredRun(f"{config}{seed}", seed, settings, count_parameters(settings), status, 40)
    curves = {name: Curve(np.array(STEPS[: len(row)]), np.array(row, dtype=float)) for name, row in rows.items()}
    return RunCurves(stored, config, curves, {"compute": seconds})


def two_kinds(gpt: Sequence[float], lstm: Sequence[float]) -> list[RunCurves]:
    values = {"gpt": gpt, "lstm": lstm}
    return [run({"model.kind": kind}, seed, value) for kind in values for seed, value in enumerate(values[kind])]


BETTER = QuestionSpec(ask="which is better", metric="val/accuracy", between="model.kind")
ALONG = {"over": "task.train_fraction"}


# ---- which is better ----


def test_a_clear_difference_is_reported_with_effect_interval_test_and_n() -> None:
    gpt, lstm = np.array([0.91, 0.93, 0.92, 0.95, 0.90, 0.94]), np.array([0.80, 0.86, 0.83, 0.81, 0.84, 0.85])
    found = answer_question(BETTER, two_kinds(gpt.tolist(), lstm.tolist()))
    assert found.sentence == (
        f"GPT is better than LSTM in best validation accuracy ({gpt.mean():.3f} vs {lstm.mean():.3f}; difference "
        f"{np.mean(gpt - lstm):.3f}, 95 % CI {min(gpt - lstm):.3f} to {max(gpt - lstm):.3f}, 6 paired "
        "seeds, p = 0.031)."
    )
    assert (found.n, found.warning, found.verdict) == (12, "", "yes")
    assert [definition.partition(":")[0] for definition in found.definitions] == ["best", "95 % CI and p, paired seeds"]
    pair = found.numbers["pairs"][0]
    assert (pair["first"], pair["second"], pair["n"], pair["paired"]) == ("GPT", "LSTM", 6, True)
    assert pair["effect"] == pytest.approx(np.mean(gpt - lstm))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_with_fewer_than_six_paired_seeds_there_is_no_interval_and_nothing_is_told(n: int) -> None:
    found = answer_question(BETTER, two_kinds([0.99, 0.98, 0.99, 0.99, 0.98][:n], [0.1, 0.2, 0.1, 0.2, 0.1][:n]))
    assert found.sentence.startswith("We cannot tell GPT and LSTM apart in best validation accuracy (0.9")
    seeds = "1 paired seed" if n == 1 else f"{n} paired seeds"
    assert found.sentence.endswith(f"{seeds}; at least 6 are needed).")
    assert ("0.780 to 0.890 in single seeds" in found.sentence) == (n > 1)
    assert "CI" not in found.sentence
    assert "p =" not in found.sentence
    assert found.verdict == "cannot tell"


def test_six_overlapping_seeds_cannot_tell_and_their_interval_holds_zero() -> None:
    found = answer_question(BETTER, two_kinds([0.9, 0.8, 0.9, 0.8, 0.9, 0.8], [0.8, 0.9, 0.8, 0.85, 0.85, 0.9]))
    assert found.sentence.startswith(
        "We cannot tell GPT and LSTM apart in best validation accuracy (0.850 vs 0.850; diff"
    )
    assert "95 % CI −0.100 to 0.100" in found.sentence
    assert found.verdict == "cannot tell"


def test_the_smaller_loss_and_the_smaller_time_are_ahead() -> None:
    losses = {"gpt": 0.5, "lstm": 0.75}
    runs = [
        run({"model.kind": kind}, seed, {"val/loss": [3, loss]}) for kind, loss in losses.items() for seed in (0, 1)
    ]
    sentence = answer_question(QuestionSpec(metric="val/loss", between="model.kind"), runs).sentence
    assert sentence.startswith(
        "We cannot tell GPT and LSTM apart in best validation loss (0.5 vs 0.75; difference 0.25"
    )
    timed = [
        run({"model.kind": kind}, seed, 1.0, seconds=s) for kind, s in (("gpt", 9.0), ("lstm", 4.0)) for seed in (0, 1)
    ]
    found = answer_question(QuestionSpec(value="seconds", between="model.kind"), timed)
    assert "LSTM and GPT apart in compute time in seconds (4 vs 9; difference 5 in every seed" in found.sentence
    assert "share its time equally" in found.warning
    alone = [
        run({"model.kind": kind, "train.exclusive": True}, seed, 1.0, seconds=s)
        for kind, s in (("gpt", 9.0), ("lstm", 4.0))
        for seed in (0, 1)
    ]
    assert "share" not in (answer_question(QuestionSpec(value="seconds", between="model.kind"), alone).warning or "")


def test_an_early_step_is_early_and_not_better() -> None:
    slow, fast = {"val/accuracy": [0, 0.1, 0.1, 0.1, 1.0]}, {"val/accuracy": [0, 0.2, 0.2, 0.2, 0.2]}
    runs = [run({"model.kind": kind}, seed, row) for kind, row in (("gpt", slow), ("lstm", fast)) for seed in (0, 1)]
    sentence = answer_question(BETTER.model_copy(update={"value": "t_f"}), runs).sentence
    assert sentence.startswith(
        "We cannot tell LSTM and GPT apart in t_f of validation accuracy (10 vs 40 steps; difference 30"
    )
    best = "best validation accuracy is 1.000 for GPT and 0.200 for LSTM."
    assert sentence.endswith(f" An earlier step is not better in itself: {best}")


@pytest.mark.parametrize("n", [1, 2, 8])
def test_equal_groups_cannot_be_told_apart(n: int) -> None:
    found = answer_question(BETTER, two_kinds([1.0] * n, [1.0] * n))
    seeds = {1: "1 paired seed; at least 6 are needed", 2: "2 paired seeds; at least 6 are needed", 8: "8 paired seeds"}
    equal = f"it is 1.000 in every seed of both ({seeds[n]})."
    assert found.sentence == f"We cannot tell GPT and LSTM apart in best validation accuracy: {equal}"
    assert found.verdict == "cannot tell"


def test_three_groups_are_ranked_and_corrected_for_their_pairs() -> None:
    dims = {32: 0.1, 64: 0.5, 128: 0.505}
    runs = [
        run({"model.dim": dim}, seed, value + 0.02 * ((seed * dim) % 7))
        for dim, value in dims.items()
        for seed in range(9)
    ]
    found = answer_question(QuestionSpec(between="model.dim"), runs)
    claim = "We cannot tell which width has the best validation accuracy: width 128 has the highest mean ("
    assert found.sentence.startswith(claim)
    assert "next is width 64" in found.sentence
    assert "after Holm's correction for 3 pairs" in found.sentence
    assert "It differs from width 32, not clearly from width 64." in found.sentence
    assert found.verdict == "cannot tell"
    clear = [run({"model.dim": dim}, seed, dim / 1000 + seed / 1e4) for dim in dims for seed in range(7)]
    found = answer_question(QuestionSpec(between="model.dim"), clear)
    assert found.sentence.startswith("Width 128 has the best validation accuracy (0.128; next is width 64 with 0.064")
    assert found.verdict == "yes"
    few = answer_question(QuestionSpec(between="model.dim"), [one for one in clear if one.run.seed < 6])
    assert "6 paired seeds; at least 7 are needed for 3 pairs" in few.sentence


def test_seeds_that_do_not_match_are_compared_unpaired() -> None:
    runs = [run({"model.kind": "gpt"}, seed, 0.9) for seed in range(4)]
    runs += [run({"model.kind": "lstm"}, seed, 0.5 + 0.01 * seed) for seed in (7, 8, 9, 10)]
    found = answer_question(BETTER, runs)
    assert "8 unpaired runs, p = 0.029)" in found.sentence
    assert "the groups share too few seeds to be paired" in found.warning
    few = answer_question(BETTER, runs[1:7]).sentence
    needed = "6 unpaired runs; at least 4 seeds per group are needed)"
    assert f"0.310 to 0.330 in single pairs of runs, {needed}" in few


def test_settings_are_averaged_within_each_seed_so_that_seeds_are_counted() -> None:
    runs = [
        run({"model.kind": kind, "task.train_fraction": share}, seed, base + share / 10 + seed / 100)
        for kind, base in (("gpt", 0.5), ("lstm", 0.3))
        for share in (0.3, 0.5, 0.7)
        for seed in (0, 1)
    ]
    found = answer_question(BETTER, runs)
    assert "difference 0.200 in every seed, 2 paired seeds" in found.sentence
    assert "mean over 3 combinations of the other settings" in found.warning
    assert found.n == 12


def test_two_metrics_of_the_same_runs_can_be_compared() -> None:
    metrics = {"val/accuracy[order=2]": [0, 0, 0, 1.0, 1.0], "val/accuracy[order=3]": [0, 1.0, 1.0, 1.0, 1.0]}
    question = QuestionSpec(metric="val/accuracy[order=2]", and_metric="val/accuracy[order=3]", value="t_f")
    found = answer_question(question, [run({}, seed, metrics) for seed in range(6)])
    assert found.sentence.startswith(
        "Validation accuracy (order=3) reaches its best accuracy earlier than validation accuracy (order=2) "
        "(10 vs 30 steps; difference 20 in every seed, 6 paired seeds, p = 0.031)."
    )


# ---- how does it change ----


def shares(rows: Mapping[float, Sequence[float]], kind: str = "gpt") -> list[RunCurves]:
    return [
        run({"model.kind": kind, "task.train_fraction": share}, seed, value)
        for share, values in rows.items()
        for seed, value in enumerate(values)
    ]


def test_a_trend_is_reported_with_its_end_points_and_pages_test() -> None:
    rows = {0.1: [0.1, 0.2, 0.1], 0.3: [0.4, 0.3, 0.5], 0.5: [0.9, 0.8, 0.95], 0.9: [0.85, 0.9, 0.9]}
    found = answer_question(QuestionSpec(ask="how does it change", **ALONG), shares(rows))
    table = np.array(list(rows.values())).T
    page = stats.page_trend_test(table, method="exact").pvalue
    assert found.sentence.startswith(
        "Best validation accuracy rises with the training fraction, from 0.133 at 0.1 to 0.883 at 0.9 (change +0.750, "
        "0.700 to 0.800 in single seeds, 3 paired seeds, rank correlation "
    )
    assert found.numbers["all"]["p"] == pytest.approx(2 * page)
    assert found.n == 12


def test_no_trend_is_called_one_and_a_best_value_inside_is_named() -> None:
    rows = {0.1: [0.1, 0.2], 0.3: [0.9, 0.9], 0.5: [0.2, 0.1]}
    sentence = answer_question(QuestionSpec(ask="how does it change", **ALONG), shares(rows)).sentence
    assert sentence.startswith(
        "We cannot tell whether best validation accuracy changes with the training fraction: it goes"
    )
    assert sentence.endswith("; it is highest (0.900) at 0.3.")


def test_a_trend_whose_size_is_unknown_is_called_so() -> None:
    rows = {
        0.1: [0.1] * 6,
        0.3: [0.2, 0.11, 0.2, 0.2, 0.2, 0.2],
        0.5: [0.5, 0.12, 0.5, 0.5, 0.5, 0.5],
        0.9: [0.9, 0.09, 0.9, 0.9, 0.9, 0.9],
    }
    sentence = answer_question(QuestionSpec(ask="how does it change", **ALONG), shares(rows)).sentence
    assert sentence.startswith("Best validation accuracy rises with the training fraction")
    assert "; its size is uncertain" in sentence


def test_each_value_of_between_gets_its_own_sentence() -> None:
    runs = shares({0.1: [0.1], 0.5: [0.5], 0.9: [0.9]}) + shares({0.1: [0.3], 0.5: [0.3], 0.9: [0.3]}, "lstm")
    found = answer_question(QuestionSpec(ask="how does it change", between="model.kind", **ALONG), runs)
    claim = "we cannot tell whether best validation accuracy changes with the training fraction: it"
    assert found.sentence.startswith(
        f"GPT: {claim} goes from 0.100 at 0.1 to 0.900 at 0.9 (change +0.800, 1 paired seed"
    )
    assert f"LSTM: {claim} is 0.300 at each of 3 values (1 paired seed)" in found.sentence


def test_replays_along_alpha_are_not_tested() -> None:
    runs = [run({}, seed, {"val/loss": [4, 3, 2, 1, 1]}) for seed in (0, 1)]
    found = answer_question(QuestionSpec(ask="how does it change", metric="val/loss", over="alpha"), runs)
    assert found.sentence == (
        "Best validation loss falls with α, from 4 at 0.1 to 1 at 1 (change −3 in every seed, 2 paired seeds, "
        "no test, since these are evaluations of the same runs)."
    )
    assert found.n == 2


def test_a_categorical_setting_is_compared_instead() -> None:
    question = QuestionSpec(ask="how does it change", over="model.kind")
    assert "(0.850 vs 0.150; " in answer_question(question, two_kinds([0.9, 0.8], [0.1, 0.2])).sentence


# ---- smallest and largest ----


def test_the_smallest_value_is_the_first_where_every_seed_passes() -> None:
    rows = {0.1: [0.1, 0.2], 0.3: [0.95, 0.8], 0.5: [0.9, 0.95], 0.9: [1.0, 1.0]}
    found = answer_question(QuestionSpec(ask="smallest", at_least=0.9, **ALONG), shares(rows))
    assert found.sentence == (
        "We cannot tell for certain which is the smallest training fraction with best validation accuracy ≥ 0.9: of "
        "the values tried it is 0.5 in these seeds (in 2 of 2 seeds, 95 % CI 16 to 100 % of seeds; at 0.3 in 1 of 2 "
        "seeds; at least 6 seeds are needed)."
    )
    assert (found.numbers["all"]["level"], found.verdict) == (0.5, "cannot tell")
    six = answer_question(
        QuestionSpec(ask="smallest", at_least=0.9, **ALONG), shares({share: row * 3 for share, row in rows.items()})
    )
    smallest = (
        "Of the values tried, 0.5 is the smallest training fraction with best validation accuracy ≥ 0.9 (in 6 of 6"
    )
    assert six.sentence.startswith(smallest)
    assert six.verdict == "yes"
    none = shares({0.1: [0.1] * 6, 0.3: [0.2] * 6})
    assert answer_question(QuestionSpec(ask="smallest", at_least=0.9, **ALONG), none).verdict == "no"


def test_values_that_fail_on_the_good_side_are_named() -> None:
    rows = {0.1: [0.1, 0.2], 0.3: [0.95, 0.9], 0.5: [0.9, 0.2]}
    sentence = answer_question(QuestionSpec(ask="smallest", at_least=0.9, **ALONG), shares(rows)).sentence
    assert sentence.endswith(", but not at 0.5 (1 of 2 seeds).")


def test_the_largest_value_can_need_two_conditions_for_each_setting() -> None:
    def memorising(kind: str, share: float, train: float, val: float) -> RunCurves:
        metrics = {"train/accuracy": [0, train], "val/accuracy": [0, val]}
        return run({"model.kind": kind, "task.train_fraction": share}, 0, metrics)

    runs = [memorising("gpt", 0.1, 1.0, 0.1), memorising("gpt", 0.3, 1.0, 0.4), memorising("gpt", 0.5, 1.0, 0.9)]
    runs += [memorising("lstm", 0.1, 0.5, 0.1), memorising("lstm", 0.3, 1.0, 0.9), memorising("lstm", 0.5, 1.0, 0.9)]
    question = QuestionSpec(ask="largest", at_most=0.5, and_metric="train/accuracy", and_at_least=0.99, **ALONG)
    found = answer_question(question, runs)
    condition = "best validation accuracy ≤ 0.5 and best training accuracy ≥ 0.99"
    assert (
        f"for certain which is the largest training fraction with {condition}: of the values tried it is 0.3 in these"
        in found.sentence
    )
    assert "LSTM: no training fraction tried (0.1, 0.3 and 0.5) has" in found.sentence
    assert found.numbers["LSTM"]["level"] is None


# ---- which scales better ----


def test_slopes_per_doubling_are_compared_over_seeds() -> None:
    runs = [
        run({"model.kind": kind, "model.dim": dim}, seed, slope * np.log2(dim / 32) + 0.01 * ((seed * (dim // 32)) % 5))
        for kind, slope in (("gpt", 0.2), ("lstm", 0.05))
        for dim in (32, 64, 128, 256)
        for seed in range(6)
    ]
    found = answer_question(QuestionSpec(ask="which scales better", over="model.dim", between="model.kind"), runs)
    assert found.sentence.startswith(
        "GPT scales better with the width than LSTM: each doubling changes best validation accuracy by +0.2 for GPT "
    )
    assert "At the largest value, 256, it is 0.617 for GPT and 0.167 for LSTM." in found.sentence
    assert found.verdict == "yes"
    slopes = found.numbers["per_doubling"]["GPT"]["values"]
    y = [0.2 * power + 0.01 * ((3 * 2**power) % 5) for power in range(4)]
    assert slopes[3] == pytest.approx(stats.linregress(range(4), y).slope)


def test_losses_scale_by_factors() -> None:
    runs = [
        run({"model.kind": kind, "model.dim": dim}, seed, {"val/loss": [9.0, (1 + seed / 10) * dim**-power]})
        for kind, power in (("gpt", 1.0), ("lstm", 0.5))
        for dim in (32, 64, 128)
        for seed in (0, 1)
    ]
    question = QuestionSpec(ask="which scales better", metric="val/loss", over="model.dim", between="model.kind")
    sentence = answer_question(question, runs).sentence
    assert (
        "by 0.5 for GPT and 0.707 for LSTM (ratio of these factors 1.41, 2 paired seeds; at least 6 are needed)"
        in sentence
    )
    assert sentence.startswith(
        "We cannot tell whether GPT or LSTM scales better with the width: each doubling multiplies"
    )


def test_a_steeper_slope_does_not_win_while_it_is_behind_everywhere() -> None:
    values = {"gpt": {32: 0.98, 64: 0.99, 128: 1.0}, "lstm": {32: 0.1, 64: 0.3, 128: 0.5}}
    runs = [
        run({"model.kind": kind, "model.dim": dim}, seed, value - seed / 1000)
        for kind, row in values.items()
        for dim, value in row.items()
        for seed in range(6)
    ]
    found = answer_question(QuestionSpec(ask="which scales better", over="model.dim", between="model.kind"), runs)
    assert found.sentence.startswith(
        "We cannot tell whether LSTM or GPT scales better with the width: LSTM changes faster but is still worse at "
        "the largest value, so it may only be catching up; each doubling"
    )
    assert found.numbers["pairs"][0]["verdict"] == "yes"  # the slopes do differ
    assert found.verdict == "cannot tell"


# ---- grokking and stopping ----


def test_labels_are_counted_with_the_delay_and_the_definition() -> None:
    grokked = {"train/accuracy": [0, 1, 1, 1, 1], "val/accuracy": [0, 0, 0, 1, 1]}
    memorised = {"train/accuracy": [0, 1, 1, 1, 1], "val/accuracy": [0, 0, 0, 0, 0]}
    found = answer_question(
        QuestionSpec(ask="grokking"), [run({}, 0, grokked), run({}, 1, grokked), run({}, 2, memorised)]
    )
    assert found.sentence == (
        "2 of 3 runs grokked (95 % CI 9 to 99 % of runs), on average 20 steps after they had memorised; of the others, "
        "1 only memorised."
    )
    assert found.definitions[0].startswith("grokked: validation accuracy is at most 0.5 when")
    assert found.numbers["all"]["labels"] == {"not learned": 0, "memorised": 1, "grokked": 2, "generalised": 0}


def test_stopping_is_advised_for_each_point() -> None:
    runs = [
        run({"model.kind": kind}, seed, {"val/loss": [4, 2, best + seed / 10, 2.5, 3]})
        for kind, best in (("gpt", 1.0), ("lstm", 1.5))
        for seed in (0, 1)
    ]
    found = answer_question(QuestionSpec(ask="stopping", metric="val/loss"), runs)
    assert found.sentence.startswith("GPT: stop at step 20: validation loss is best there (1.05 ± 0.05, 2 seeds), and")
    assert "the 20 steps after it brought no improvement" in found.sentence
    assert found.numbers["LSTM"]["best"] == 20
    assert (
        "neither a low nor a high L2 norm of the weights is better"
        in answer_question(QuestionSpec(ask="stopping", metric="norm"), [run({}, 0, {"norm": [1]})]).sentence
    )


# ---- too little to tell ----

EVERY_KIND = [
    BETTER,
    QuestionSpec(ask="how does it change", **ALONG),
    QuestionSpec(ask="how does it change", over="alpha"),
    QuestionSpec(ask="smallest", at_least=0.9, **ALONG),
    QuestionSpec(ask="largest", at_most=0.9, **ALONG),
    QuestionSpec(ask="which scales better", between="model.kind", **ALONG),
    QuestionSpec(ask="grokking"),
    QuestionSpec(ask="stopping"),
    QuestionSpec(ask="does it hold", and_metric="train/accuracy"),
    QuestionSpec(ask="does it hold", at_least=0.5),
    QuestionSpec(ask="does it hold", between="model.kind", expect="same", margin=0.1),
    QuestionSpec(ask="what law", metric="val/accuracy", **ALONG),
]


@pytest.mark.parametrize("question", EVERY_KIND, ids=lambda question: question.ask)
@pytest.mark.parametrize(
    "runs",
    [
        [],
        [run({}, 0, {}, "planned")],
        [run({}, 0, {"val/accuracy": [nan]}, "diverged")],
        [run({}, 0, {"val/loss": [1.0]})],
        [run({}, 0, {"val/accuracy": [nan, nan]})],
        [run({}, 0, {"val/accuracy": [0.5]})],
        [run({"model.kind": kind}, 0, {"val/accuracy": [nan]}) for kind in ("gpt", "lstm")],
        [run({"model.kind": "gpt"}, 0, 0.5), run({"model.kind": "lstm"}, 0, 0.5, "failed")],
        [run({"model.kind": "gpt"}, 0, 0.5), run({"model.kind": "lstm"}, 1, 0.7)],
        [*shares({0.1: [0.1], 0.9: [nan]}), *shares({0.1: [nan, nan, 0.3]}, "lstm")],
        [run({"model.kind": kind}, 0, {"val/accuracy": [0.5], "train/accuracy": [1]}) for kind in ("gpt", "lstm")],
        [run({"model.kind": kind}, 0, 0.5, "stopped") for kind in ("gpt", "lstm")],
        [run({"model.kind": kind}, seed, nan, "diverged") for kind in ("gpt", "lstm") for seed in range(6)],
        two_kinds([0.5] * 8, [0.5] * 8),
        [*shares({0.1: [0.5] * 8, 0.9: [0.5] * 8}), *shares({0.1: [0.5] * 8, 0.9: [0.5] * 8}, "lstm")],
    ],
    ids=[
        "nothing",
        "planned",
        "diverged",
        "no metric",
        "nan",
        "one step",
        "all nan",
        "failed",
        "lone",
        "holes",
        "one seed",
        "unfinished",
        "all diverged",
        "ties",
        "ties along",
    ],
)
def test_every_kind_of_question_gets_a_sentence_even_with_missing_data(
    question: QuestionSpec, runs: list[RunCurves]
) -> None:
    found = answer_question(question, runs)
    assert found.sentence.endswith((".", ".)"))
    assert len(found.sentence) > 20
    assert found.verdict in (None, "cannot tell", "yes", "no")
    if found.verdict in ("yes", "no"):  # only what eight equal seeds decide: bounds, and claims that equality settles
        assert found.n >= 6
        assert question.ask in ("does it hold", "smallest", "largest")
    json.dumps(to_jsonable(found.numbers), allow_nan=False)


def test_runs_left_out_are_counted_in_the_warning() -> None:
    runs = two_kinds([0.9, 0.8, 0.9], [0.1, 0.2, 0.1])
    runs[2] = run({"model.kind": "gpt"}, 2, 0.9, "diverged")
    found = answer_question(BETTER, runs)
    assert "(0.850 vs 0.150; difference 0.700, 0.600 to 0.800 in single seeds, 2 paired seeds" in found.sentence
    assert found.warning.startswith("left out: 1 of 6 runs diverged")


def test_an_unknown_metric_is_answered_with_the_available_ones() -> None:
    sentence = answer_question(QuestionSpec(metric="val/acuracy", between="model.kind"), two_kinds([1], [1])).sentence
    assert sentence == "There is no answer: no run has the metric val/acuracy; available: val/accuracy."


def test_only_narrows_the_runs() -> None:
    question = QuestionSpec(ask="smallest", at_least=0.9, only={"model.kind": "lstm"}, **ALONG)
    runs = shares({0.1: [0.95]}) + shares({0.1: [0.1], 0.5: [0.95]}, "lstm")
    assert "is 0.5" in answer_question(question, runs).sentence
    assert "no run has the settings" in answer_question(question, shares({0.1: [0.95]})).sentence


def test_a_question_without_text_gets_a_default_text() -> None:
    assert format_question(BETTER) == "Which model has the best validation accuracy?"
    assert format_question(QuestionSpec(ask="grokking", text="Does it grok?")) == "Does it grok?"
    claim = QuestionSpec(ask="does it hold", metric="train/loss", and_metric="val/loss")
    assert format_question(claim) == "Is best training loss lower than validation loss?"
    bound = QuestionSpec(ask="does it hold", at_least=0.9)
    assert format_question(bound) == "Is best validation accuracy at least 0.9 in most runs?"
    same = QuestionSpec(ask="does it hold", between="model.kind", expect="same", margin=0.1)
    assert format_question(same) == "Is best validation accuracy the same for every model, within ±0.1?"
    texts = [format_question(question) for question in EVERY_KIND]
    assert all(text.endswith("?") and "_" not in text and "/" not in text for text in texts)
    assert texts[1] == "How does best validation accuracy change with the training fraction?"


@pytest.mark.parametrize("name", [name for name in shipped_studies() if name.startswith("arithmetic/")])
def test_every_shipped_question_has_an_answer_before_any_run(name: str) -> None:
    for question in read_study(shipped_studies()[name]).questions:
        assert answer_question(question, []).sentence.startswith("There is no answer yet")


# ---- the commands ----

METRICS = ("train/loss", "val/loss", "train/accuracy", "val/accuracy", "norm")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the four runs of arithmetic/sanity, as if they had been trained."""
    folder = tmp_path_factory.mktemp("home")
    plan = plan_named("arithmetic/sanity", ["seeds=[0,42]"])
    values = np.random.default_rng(1).random((len(plan.runs), len(METRICS)))
    with open_store(folder) as store:
        store.register(plan)
        [pack] = store.claim([Pack("p", plan.runs, 1)], lambda _: Placement())
        with store.lock(pack.id):
            slots = tuple(range(len(plan.runs)))
            evaluations = [EvaluationEvent(step, slots, METRICS, values / (1 + step)) for step in (0, 10)]
            store.record(pack.id, [*evaluations, *(FinishEvent(slot, 10) for slot in slots)])
            store.finish(pack.id)
    return folder


def call(home: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments, "--home", str(home)])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_answer_prints_each_question_with_its_sentence(home: Path) -> None:
    text = call(home, "answer", "arithmetic/sanity")
    assert "Which model reaches the lower validation loss?\n  " in text
    assert "2 paired seeds; at least 6 are needed" in text
    assert text.count("95 % CI: of the fraction by Clopper and Pearson") == 1
    document = json.loads(call(home, "answer", "arithmetic/sanity", "--json"))
    assert [one["asked"]["report"] for one in document["answers"]] == ["D 2"] * 4 + ["D 1"] + ["D 8b"] * 9
    keys = {"question", "asked", "verdict", "sentence", "warning", "definitions", "n", "numbers"}
    assert document["answers"][0].keys() == keys


def test_filters_select_the_runs_of_an_answer(home: Path) -> None:
    assert "1 paired seed" in call(home, "answer", "arithmetic/sanity", "--only", "seed=42")


@pytest.mark.parametrize(
    "names",
    [
        ("model.kind=gpt", "model.kind=lstm"),
        ("model.kind",),
        ("model.kind=gpt seed=0,42", "model.kind=lstm seed=0,42"),
    ],
)
def test_compare_takes_filters_or_a_setting_of_a_study(home: Path, names: tuple[str, ...]) -> None:
    document = json.loads(call(home, "compare", "arithmetic/sanity", *names, "--metric", "val/loss", "--json"))
    assert [len(ids) for ids in document["groups"].values()] == [2, 2]
    assert document["numbers"]["pairs"][0]["n"] == 2
    text = call(home, "compare", "arithmetic/sanity", *names, "--metric", "val/loss")
    assert text.startswith(f"[{document['verdict']}] {document['sentence']}\n")


def test_compare_takes_runs_and_a_study_whole(home: Path) -> None:
    ids = [one["id"] for one in json.loads(call(home, "ls", "arithmetic/sanity", "--json"))["runs"]]
    assert ids[0] in call(home, "compare", ids[0], ids[2], "--metric", "val/loss")
    assert "arithmetic/sanity" in call(home, "compare", "arithmetic/sanity", ids[0], "--metric", "val/loss")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["model.kind=gpt", "model.kind=lstm"], 2, "name a stored study before"),
        (["arithmetic/sanity"], 2, "only one group"),
        (["arithmetic/sanity", "nonsense"], 4, "nonsense is neither a stored study, a run, a setting nor key=value"),
        (["arithmetic/sanity", "model.kind", "--value", "bst"], 2, r"(did you mean best?)"),
        (
            ["arithmetic/sanity", "model.kind", "--metric", "val/acc"],
            2,
            "--metric val/acc: no run has this metric (did you mean val/accuracy?); available: val/accuracy, val/loss",
        ),
    ],
)
def test_compare_reports_bad_arguments(home: Path, arguments: list[str], code: int, message: str) -> None:
    done = CliRunner().invoke(app, ["compare", *arguments, "--home", str(home)])
    assert done.exit_code == code
    assert message in done.stderr


def store_studies(home: Path, texts: Mapping[str, str], metrics: Mapping[str, Sequence[str]]) -> None:
    """Stores each study as if all of its runs had finished, with random values of its metrics."""
    for name, text in texts.items():
        (home / f"{name}.toml").write_text(text)
        plan = plan_named(str(home / f"{name}.toml"))
        values = np.random.default_rng(2).random((len(plan.runs), len(metrics[name])))
        with open_store(home) as store:
            store.register(plan)
            [pack] = store.claim([Pack(name, plan.runs, 1)], lambda _: Placement())
            with store.lock(pack.id):
                slots = tuple(range(len(plan.runs)))
                evaluation = EvaluationEvent(10, slots, tuple(metrics[name]), values)
                store.record(pack.id, [evaluation, *(FinishEvent(slot, 10) for slot in slots)])
                store.finish(pack.id)


SMALL = "[base]\nmodel = { dim = 16, layers = 1 }\ntask = { p = 7 }\ntrain = { steps = 10 }\n"


def test_groups_that_share_nothing_are_refused(tmp_path: Path) -> None:
    texts = {
        "one": f"seeds = 2\n{SMALL}[grid]\ntrain.lr = [0.1, 0.01]\n",
        "two": f"seeds = 2\n{SMALL}[grid]\ntrain.lr = [0.2, 0.02]\n",
        "other": f"seeds = 2\n{SMALL}[grid]\ntrain.weight_decay = [0.5]\n",
    }
    store_studies(
        tmp_path, texts, {"one": ["val/accuracy", "val/loss"], "two": ["val/accuracy"], "other": ["val/loss"]}
    )
    for arguments, message in {
        ("one", "two"): "one and two share nothing to compare: no combination of their settings is in all of them",
        (
            "one",
            "other",
            "--metric",
            "val/accuracy",
        ): "--metric val/accuracy: other has no such metric; available: val/loss",
        ("two", "other"): "--metric val/accuracy: other has no such metric; the groups have no metric in common",
    }.items():
        done = CliRunner().invoke(app, ["compare", *arguments, "--home", str(tmp_path)])
        assert (done.exit_code, done.stdout) == (2, "")
        assert message in " ".join(done.stderr.split())


def test_a_study_without_questions_gets_default_answers(tmp_path: Path) -> None:
    grid = "[grid]\nmodel.kind = ['gpt', 'lstm']\ntrain.lr = [0.1, 0.01, 0.001]\n"
    texts = {
        "grid": f"seeds = 2\n{SMALL}{grid}",
        "zipped": f"seeds = 2\n{SMALL}[[zip]]\ntask.operator = ['+', '-']\ntrain.lr = [0.1, 0.01]\n",
        "single": f"seeds = 2\n{SMALL}[grid]\ntask.train_fraction = [0.4]\n",
    }
    store_studies(tmp_path, texts, dict.fromkeys(texts, METRICS))

    def asked(study: str) -> list[tuple[str, str | None, str | None]]:
        answers = json.loads(call(tmp_path, "answer", study, "--json"))["answers"]
        assert all("a default question, since the study has no [[questions]]" in one["warning"] for one in answers)
        questions = [QuestionSpec(**one["asked"]) for one in answers]
        assert {question.metric for question in questions} == {"val/accuracy"}
        return [(question.ask, question.between, question.over) for question in questions]

    assert asked("grid") == [
        ("which is better", "model.kind", None),
        ("how does it change", None, "train.lr"),
    ]
    assert asked("zipped") == [("which is better", "task.operator", None)]  # what varies together is asked about once
    assert "No verdict: the groups also differ in learning rate (0.1 vs 0.01)." in call(tmp_path, "answer", "zipped")
    assert asked("single") == [("stopping", None, None)]
    text = call(tmp_path, "answer", "grid")
    assert text.startswith("Which model has the best validation accuracy?\n  [cannot tell] We cannot tell ")
