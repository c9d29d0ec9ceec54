"""Censored times: against SciPy's estimators, hand-worked medians, and error rates in simulation."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import inf, isnan

import numpy as np
import pytest
from scipy import stats

from seedbed.stats.survival import EventTime, compare_times, kaplan_meier, log_rank_scores, median_time


def censored(times: Sequence[float], ends: Sequence[float]) -> list[EventTime]:
    return [EventTime(min(time, end), time <= end) for time, end in zip(times, ends, strict=True)]


def draw(rng: np.random.Generator, n: int, scale: float = 1.0) -> list[EventTime]:
    return censored(scale * rng.lognormal(0, 1, n), rng.exponential(3, n))


def by_seed(times: Sequence[EventTime], first_seed: int = 0) -> dict[tuple[Hashable, int], EventTime]:
    return {("", seed): time for seed, time in enumerate(times, first_seed)}


def as_scipy(times: Sequence[EventTime]) -> stats.CensoredData:
    return stats.CensoredData.right_censored([time.step for time in times], [not time.reached for time in times])


def test_the_curve_is_that_of_scipy() -> None:
    times = draw(np.random.default_rng(0), 25)
    steps, survival = kaplan_meier(times)
    reference = stats.ecdf(as_scipy(times)).sf
    assert 0 < sum(time.reached for time in times) < 25
    assert survival == pytest.approx(reference.evaluate(steps))


def test_scores_add_up_to_the_log_rank_statistic_of_scipy() -> None:
    """Under permutations, the sum of n₁ of n scores has variance n₁ (n − n₁) / n · s²; SciPy's is hypergeometric."""
    times = draw(np.random.default_rng(1), 30)
    scores = log_rank_scores(times)
    assert scores.sum() == pytest.approx(0)
    steps = sorted({time.step for time in times if time.reached})
    expected = 0.0
    for step in steps:  # observed minus expected events of the first ten runs, by the textbook's table at every step
        at_risk = [time.step >= step for time in times]
        expected += sum(time.step == step and time.reached for time in times) * sum(at_risk[:10]) / sum(at_risk)
    observed = sum(time.reached for time in times[:10])
    assert scores[:10].sum() == pytest.approx(observed - expected)
    assert np.sign(scores[:10].sum()) == np.sign(stats.logrank(as_scipy(times[:10]), as_scipy(times[10:])).statistic)


def test_medians_by_hand() -> None:
    assert median_time([EventTime(step, True) for step in (3, 1, 2)]).median == 2
    assert median_time([EventTime(step, True) for step in (4, 1, 2, 3)]).median == 2.5
    assert median_time(censored([1, 2, 9, 9], [5, 5, 5, 5])).median == 2  # the upper middle one is unknown
    assert median_time(censored([1, 9, 9], [5, 5, 5])).median == inf
    assert isnan(median_time([]).median)


def test_an_early_censored_run_is_neither_left_out_nor_counted_as_there() -> None:
    times = [EventTime(1, True), EventTime(2, False), EventTime(3, True), EventTime(4, True)]
    assert median_time(times).median == 3  # 3/4, then 3/8 after step 3; without the second run it would be 3 of 1, 3, 4
    assert median_time([*times[:2], EventTime(3, False), EventTime(4, True)]).median == 4


def test_the_interval_needs_six_runs_and_is_open_above_if_too_few_got_there() -> None:
    five, six = ([EventTime(step, True) for step in range(1, n + 1)] for n in (5, 6))
    assert (median_time(five).low, median_time(five).high) == (0, inf)
    assert (median_time(six).low, median_time(six).high) == (1, 6)
    assert median_time(censored([1, 2, 3, 4, 5, 9], [7] * 6)).high == inf


@pytest.mark.parametrize("n", [6, 9, 16])
@pytest.mark.parametrize("scheme", ["none", "common", "random"])
def test_the_interval_of_the_median_covers_it(n: int, scheme: str) -> None:
    """At a true coverage of 95 %, fewer than 93 % of 1,500 have a chance of 1 in 2,500."""
    rng, n_covered = np.random.default_rng(n), 0
    for _ in range(1500):
        times = rng.lognormal(0, 1, n)
        ends = {"none": np.full(n, inf), "common": np.full(n, 1.5), "random": rng.exponential(3, n)}[scheme]
        median = median_time(censored(times, ends))
        n_covered += median.low <= 1 <= median.high
    assert n_covered / 1500 >= 0.93


@pytest.mark.parametrize("n", [4, 6, 8])
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("end", [inf, 1.0])
def test_equal_groups_differ_in_at_most_five_percent_of_studies(n: int, paired: bool, end: float) -> None:
    """At a true rate of 5 %, more than 7 % of 600 have a chance of 1 in 80; the seeds fix the draw."""
    rng, n_rejected = np.random.default_rng(n), 0
    for _ in range(600):
        first, second = (censored(rng.lognormal(0, 1, n), [end] * n) for _ in range(2))
        n_rejected += compare_times(by_seed(first), by_seed(second, 0 if paired else n)).p.value <= 0.05
    assert n_rejected / 600 <= 0.07


def test_a_late_group_is_found_though_most_of_it_never_gets_there() -> None:
    fast = censored(np.random.default_rng(0).uniform(100, 200, 8), [1000] * 8)
    slow = [EventTime(900, True), *[EventTime(1000, False)] * 7]
    comparison = compare_times(by_seed(fast), by_seed(slow))
    assert (comparison.sooner, comparison.paired, comparison.n) == (-1, True, 8)
    assert comparison.p.value == comparison.p.least == 2 / 2**8
    assert compare_times(by_seed(slow), by_seed(fast)).sooner == 1
    unpaired = compare_times(by_seed(fast), by_seed(slow, 8))
    assert (unpaired.paired, unpaired.p.value) == (False, pytest.approx(2 / 12870))


def test_runs_are_ranked_within_their_stratum() -> None:
    """One task takes ten times as long as the other; in both, the first group is sooner by a little."""
    rng = np.random.default_rng(0)
    first, second = {}, {}
    for task, scale in (("easy", 100.0), ("hard", 1000.0)):
        for seed in range(6):
            time = scale * rng.uniform(1, 1.2)
            first[task, seed], second[task, seed] = EventTime(time, True), EventTime(1.05 * time, True)
    second["hard", 5] = EventTime(1300.0, False)
    comparison = compare_times(first, second)
    assert (comparison.n, comparison.sooner, comparison.p.value) == (6, -1, 2 / 2**6)


def test_groups_that_never_get_there_do_not_differ() -> None:
    never = by_seed([EventTime(50, False)] * 6)
    comparison = compare_times(never, never)
    assert (comparison.sooner, comparison.p.value) == (0, 1.0)
    assert compare_times(never, {}).p.value == 1.0
