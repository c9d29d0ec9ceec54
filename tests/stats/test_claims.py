"""Claims about metrics: confirmed, refuted or inconclusive by the paired difference; bounds by counting runs."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_a_claim_that_holds_in_every_seed_is_confirmed_with_mean_and_std():
    found = ask(runs([2.0, 2.2, 2.1], [5.5, 5.7, 5.6]))
    assert found.sentence == (
        "Yes: attention distance is 2.1 ± 0.0816 in layer 1, lower than 5.6 ± 0.0816 in layer 4, by 3.5 [3.5, 3.5]; "
        "as claimed in 3 of 3 seeds."
    )
    assert found.numbers["first"]["mean"] == pytest.approx(2.1)
    assert found.n == 6


def test_the_opposite_of_a_confirmed_claim_is_refuted():
    assert ask(runs([2.0, 2.2, 2.1], [5.5, 5.8, 5.6]), expect="higher").sentence.startswith("No: attention distance")


@pytest.mark.parametrize("far", [[2.5, 1.9, 2.2], [2.6]])
def test_disagreeing_seeds_or_a_single_seed_are_inconclusive(far):
    found = ask(runs([2.0, 2.2, 2.1][: len(far)], far))
    assert found.sentence.startswith("Inconclusive: attention distance is")


def test_equal_values_refute_a_claim():
    assert ask(runs([2.0, 2.0], [2.0, 2.0])).sentence.startswith(
        "No: attention distance is 2 ± 0 in layer 1, equal to 2 ± 0 in layer 4; as claimed in 0 of 2 seeds."
    )


def test_bounds_are_met_by_all_some_or_no_runs():
    given = runs([0.1, 0.3, 0.5], [1, 1, 1])
    for bound, verdict in ((0.5, "Yes"), (0.3, "Inconclusive"), (0.0, "No")):
        found = ask(given, and_metric=None, at_most=bound)
        assert found.sentence.startswith(
            f"{verdict}: attention distance is 0.3 ± 0.163 in layer 1, at most {bound:g} in"
        )


def test_a_metric_that_no_run_has_is_reported_as_missing():
    assert "no run has the metric" in ask(runs([1.0], [2.0]), and_metric="attention_distance[layer=9]").sentence
