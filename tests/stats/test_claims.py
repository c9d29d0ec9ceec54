"""Claims about metrics: decided by the interval of the paired difference; bounds by the sign test."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from seedbed.records import Curve, ParameterCounts, StoredRun
from seedbed.settings import Settings
from seedbed.specs import QuestionSpec
from seedbed.stats.answers import answer_question
from seedbed.stats.summary import RunCurves

NEAR, FAR = "attention_distance[layer=1]", "attention_distance[layer=4]"


def make_run(seed, values):
    run = StoredRun(f"run{seed}", seed, Settings.from_flat({}), ParameterCounts(0, 0), "finished", 9)
    return RunCurves(run, {}, {name: Curve(np.array([9]), np.array([value])) for name, value in values.items()})


def runs(near, far):
    return [make_run(seed, {NEAR: one, FAR: other}) for seed, (one, other) in enumerate(zip(near, far, strict=True))]


def ask(given, **changed):
    return answer_question(
        QuestionSpec(ask="does it hold", metric=NEAR, and_metric=FAR).model_copy(update=changed), given
    )


LOW, HIGH = [2.0, 2.2, 2.1, 2.0, 2.2, 2.1], [5.5, 5.7, 5.6, 5.4, 5.7, 5.7]


def test_a_claim_that_holds_in_every_seed_is_confirmed_with_mean_and_interval():
    found = ask(runs(LOW, HIGH))
    assert found.sentence == (
        "Yes: attention distance in layer 1 is lower than in layer 4 (2.1 ± 0.0816 vs 5.6 ± 0.115; difference −3.5, 95 "
        "% CI −3.6 to −3.4, as claimed in 6 of 6 seeds)."
    )
    assert found.numbers["first"]["mean"] == pytest.approx(2.1)
    assert (found.n, found.verdict) == (6, "yes")


def test_the_opposite_of_a_confirmed_claim_is_refuted():
    found = ask(runs(LOW, HIGH), expect="higher")
    assert found.sentence.startswith("No: attention distance in layer 1 is not higher than in layer 4 (")
    assert found.verdict == "no"


@pytest.mark.parametrize("n", [1, 2, 5])
def test_with_fewer_than_six_seeds_there_is_no_verdict_and_no_interval(n):
    found = ask(runs(LOW[:n], HIGH[:n]))
    assert found.verdict == "cannot tell"
    assert found.sentence.startswith("We cannot tell whether attention distance in layer 1 is lower than in layer 4 (")
    assert found.sentence.endswith("; at least 6 are needed).")
    assert ("−3.5 to −3.4 in single seeds" in found.sentence) == (n == 5)


def test_disagreeing_seeds_cannot_tell():
    found = ask(runs(LOW, [2.5, 1.9, 2.2, 2.4, 1.8, 2.1]))
    assert found.sentence.startswith("We cannot tell whether attention distance in layer 1 is lower than in layer 4 (")
    assert found.numbers["difference"]["low"] < 0 < found.numbers["difference"]["high"]


def test_equal_values_refute_a_claim_with_enough_seeds():
    found = ask(runs([2.0] * 6, [2.0] * 6))
    assert found.sentence == (
        "No: attention distance in layer 1 is not lower than in layer 4 (2 ± 0 vs 2 ± 0; difference 0 in every seed, "
        "as claimed in 0 of 6 seeds)."
    )
    assert ask(runs([2.0] * 2, [2.0] * 2)).verdict == "cannot tell"


@pytest.mark.parametrize("expect", ["higher", "lower"])
def test_a_metric_is_compared_with_the_same_quantity_of_another_split(expect):
    """Renaming one metric to the other's name would overwrite it, so that both are equal."""
    given = [make_run(seed, {"train/accuracy": 1.0, "val/accuracy": 0.1 + seed / 100}) for seed in range(6)]
    for metric, other in (("train/accuracy", "val/accuracy"), ("val/accuracy", "train/accuracy")):
        found = ask(given, metric=metric, and_metric=other, expect=expect)
        is_claimed = (metric == "train/accuracy") == (expect == "higher")
        assert found.verdict == ("yes" if is_claimed else "no")
        assert (found.numbers["first"]["mean"] == 1.0) == (metric == "train/accuracy")
    better = answer_question(QuestionSpec(metric="train/accuracy", and_metric="val/accuracy"), given)
    assert better.sentence.startswith("Best training accuracy is higher than best validation accuracy (1.000 vs 0.1")
    gap = answer_question(QuestionSpec(metric="train/accuracy", and_metric="val/accuracy", value="last"), given)
    assert gap.numbers["means"]["val/accuracy"]["mean"] == pytest.approx(0.125)


@pytest.mark.parametrize(("margin", "verdict"), [(0.3, "yes"), (0.15, "cannot tell"), (0.01, "no")])
def test_the_same_within_a_margin_is_equivalence(margin, verdict):
    shifted = [value + shift for value, shift in zip(LOW, [0.1, 0.2, 0.1, 0.2, 0.1, 0.1], strict=True)]
    found = ask(runs(shifted, LOW), expect="same", margin=margin)
    assert found.verdict == verdict
    assert f"within {margin:g} of that in layer 4 (" in found.sentence
    assert ask(runs(shifted[:5], LOW[:5]), expect="same", margin=9.0).verdict == "cannot tell"


def test_the_values_of_a_setting_can_be_the_same_within_a_margin():
    def make(kind, seed, value):
        settings = Settings.from_flat({"model.kind": kind})
        run = StoredRun(f"{kind}{seed}", seed, settings, ParameterCounts(0, 0), "finished", 9)
        return RunCurves(run, {}, {"val/loss": Curve(np.array([9]), np.array([value]))})

    question = QuestionSpec(ask="does it hold", metric="val/loss", between="model.kind", expect="same", margin=0.1)
    close = [make(kind, seed, 1 + seed + (kind == "gpt") * 0.05) for kind in ("gpt", "lstm") for seed in range(6)]
    found = answer_question(question, close)
    assert found.sentence == (
        "Yes: best validation loss is the same for GPT and LSTM, within ±0.1 (GPT 3.55, LSTM 3.5; difference 0.05, GPT "
        "− LSTM)."
    )
    apart = [make(kind, seed, 1 + seed + (kind == "gpt")) for kind in ("gpt", "lstm") for seed in range(6)]
    assert answer_question(question, apart).verdict == "no"
    assert answer_question(question, close[:4] + close[6:10]).sentence.endswith("; at least 6 seeds are needed).")


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.1] * 6, "yes"),
        ([0.9] * 6, "no"),
        ([0.1] * 5, "cannot tell"),
        ([0.1] * 5 + [0.9], "cannot tell"),
        ([0.1] * 9 + [0.9], "yes"),
    ],
)
def test_a_bound_holds_if_most_seeds_meet_it_by_the_sign_test(values, verdict):
    found = ask(runs(values, values), and_metric=None, at_most=0.5)
    n_met = sum(value <= 0.5 for value in values)
    assert found.verdict == verdict
    assert f"at most 0.5 in most runs (in {n_met} of {len(values)} seeds" in found.sentence
    p = stats.binomtest(n_met, len(values)).pvalue
    assert (p <= 0.05) == (verdict != "cannot tell")


def test_a_metric_that_no_run_has_is_reported_as_missing():
    assert "no run has the metric" in ask(runs([1.0], [2.0]), and_metric="attention_distance[layer=9]").sentence
