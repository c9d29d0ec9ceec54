"""The rule of all verdicts: claims by intervals, the seeds a test needs, and Holm's levels."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.stats.decision import (
    SIGNIFICANCE_LEVEL,
    Claim,
    Verdict,
    combine_verdicts,
    decide_claim,
    decide_difference,
    holm_levels,
    is_significant,
    seeds_needed,
)
from seedbed.stats.permutation_tests import holm_correction, permutation_test, sign_flip_test


@pytest.mark.parametrize(
    ("low", "high", "expect", "verdict"),
    [
        (0.1, 0.2, "higher", "yes"),
        (0.1, 0.2, "lower", "no"),
        (-0.2, -0.1, "lower", "yes"),
        (-0.2, -0.1, "higher", "no"),
        (-0.1, 0.2, "higher", "cannot tell"),
        (-0.1, 0.2, "lower", "cannot tell"),
        (0.0, 0.2, "higher", "cannot tell"),
        (-0.2, 0.0, "higher", "no"),  # no difference above 0 is left
        (0.0, 0.0, "higher", "no"),
        (0.0, 0.0, "lower", "no"),
        (-inf, inf, "higher", "cannot tell"),
        (nan, nan, "lower", "cannot tell"),
        (-0.1, 0.1, "same", "yes"),
        (-0.1, 0.11, "same", "cannot tell"),
        (0.11, 0.2, "same", "no"),
        (-0.2, -0.11, "same", "no"),
        (-inf, inf, "same", "cannot tell"),
    ],
)
def test_a_claim_is_decided_by_the_interval(low: float, high: float, expect: Claim, verdict: Verdict) -> None:
    assert decide_claim(low, high, expect, margin=0.1) == verdict


def test_a_test_that_does_not_reject_leaves_the_question_open() -> None:
    assert [decide_difference(p) for p in (0.05, 0.051, 1.0, nan)] == ["yes", *["cannot tell"] * 3]


def test_parts_that_disagree_decide_nothing() -> None:
    assert combine_verdicts(["yes", "yes"]) == "yes"
    assert combine_verdicts(["yes", "no"]) == "cannot tell"
    assert combine_verdicts([]) == "cannot tell"


@pytest.mark.parametrize("n_tests", [1, 2, 3, 6, 10])
def test_the_seeds_needed_are_the_fewest_that_can_be_significant(n_tests: int) -> None:
    n = seeds_needed(n_tests)
    assert sign_flip_test([1.0] * n).value * n_tests <= SIGNIFICANCE_LEVEL
    assert sign_flip_test([1.0] * (n - 1)).value * n_tests > SIGNIFICANCE_LEVEL
    n = seeds_needed(n_tests, paired=False)
    assert permutation_test([1.0] * n, [0.0] * n).value * n_tests <= SIGNIFICANCE_LEVEL
    assert permutation_test([1.0] * (n - 1), [0.0] * (n - 1)).value * n_tests > SIGNIFICANCE_LEVEL


@given(st.lists(st.integers(0, 64), min_size=1, max_size=9))
def test_a_p_value_is_below_its_holm_level_exactly_when_its_corrected_p_is_significant(counts: list[int]) -> None:
    p_values = [count / 512 for count in counts]
    for p, level, corrected in zip(p_values, holm_levels(p_values), holm_correction(p_values), strict=True):
        assert is_significant(p, level) == is_significant(corrected)
