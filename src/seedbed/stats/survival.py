"""Times to an event that some runs never reach: Kaplan–Meier medians with intervals, and log-rank tests of groups.

    times = {("", 0): EventTime(1200, True), ("", 1): EventTime(2501, False), …}  # seed 1 never got there
    median_time(list(times.values()))
    compare_times(times, other_times).p

A run that never reaches the event is censored at its last step: its time is unknown, but later than that. Leaving such
runs out would make slow groups look fast.

With a handful of seeds neither Greenwood's variance nor the χ² distribution of the log-rank statistic can be trusted,
so both the interval and the test are distribution-free. The interval is that of the sign test: between two order
statistics, where a censored time counts as its last step in the lower bound and as infinite in the upper one, which can
only widen it (Brookmeyer and Crowley 1982 without the normal approximation). The test permutes the groups' log-rank
scores.

>>> median_time([EventTime(step, step < 50) for step in (10.0, 20.0, 30.0, 40.0, 50.0, 50.0, 50.0)])
MedianTime(median=40.0, low=10.0, high=inf, n_reached=4, n=7)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, inf, nan
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seedbed.stats.decision import SIGNIFICANCE_LEVEL
from seedbed.stats.permutation_tests import PValue, permutation_test, sign_flip_test

Floats = NDArray[np.float64]
MIN_PAIRS = 2  # fewer matching seeds are compared unpaired


@dataclass(frozen=True)
class EventTime:
    """The step of an event, or the last step of a run that had not reached it by then."""

    step: float
    reached: bool


TimesByRun: TypeAlias = Mapping[tuple[Any, int], EventTime]  # (stratum, seed) → time; any hashable stratum


@dataclass(frozen=True)
class MedianTime:
    """The median time with its 95 % interval; infinite if fewer than half of the runs got there, NaN if unknown."""

    median: float
    low: float
    high: float
    n_reached: int
    n: int


def kaplan_meier(times: Sequence[EventTime]) -> tuple[Floats, Floats]:
    """The steps at which events happened, and the estimated fraction of runs that have not got there after each.

    >>> steps, survival = kaplan_meier([EventTime(1, True), EventTime(2, False), EventTime(3, True)])
    >>> steps.tolist(), survival.round(3).tolist()
    ([1.0, 3.0], [0.667, 0.0])
    """
    steps, n_events, n_at_risk = _count_events(times)
    return steps, np.asarray(np.cumprod(1 - n_events / n_at_risk), dtype=np.float64)


def _count_events(times: Sequence[EventTime]) -> tuple[Floats, Floats, Floats]:
    """Distinct event steps, the events at each, and the runs that were neither there nor censored before it."""
    reached = np.array([time.step for time in times if time.reached], dtype=float)
    steps, counts = np.unique(reached, return_counts=True)
    ends = np.array([time.step for time in times], dtype=float)
    return steps, counts.astype(float), (ends[None, :] >= steps[:, None]).sum(1).astype(float)


def median_time(times: Sequence[EventTime]) -> MedianTime:
    """The Kaplan–Meier median: where the curve crosses one half; the middle of the step if it is exactly one half."""
    n, n_reached = len(times), sum(time.reached for time in times)
    low, high = _median_interval(times)
    steps, survival = kaplan_meier(times)
    below = np.flatnonzero(survival <= 0.5 + 1e-12)
    if not below.size:
        return MedianTime(inf if n else nan, low, high, n_reached, n)
    first = int(below[0])
    is_exactly_half = abs(survival[first] - 0.5) < 1e-12 and first + 1 < len(steps)
    median = (steps[first] + steps[first + 1]) / 2 if is_exactly_half else steps[first]
    return MedianTime(float(median), low, high, n_reached, n)


def _median_interval(times: Sequence[EventTime]) -> tuple[float, float]:
    """The order statistics that enclose the median with at least 95 %; 0 and infinity with fewer than six runs."""
    n, rank = len(times), 0  # the number of order statistics outside the interval on either side
    while 2 * sum(comb(n, k) for k in range(rank + 1)) <= SIGNIFICANCE_LEVEL * 2**n:
        rank += 1
    if not rank:
        return 0.0, inf
    earliest = sorted(time.step for time in times)
    latest = sorted(time.step if time.reached else inf for time in times)
    return earliest[rank - 1], latest[n - rank]


# ---- two groups ----


@dataclass(frozen=True)
class TimeComparison:
    """A permutation test that two groups reach the event at the same times; `sooner` is −1 if the first group does."""

    p: PValue
    sooner: int  # −1: the first group, 1: the second, 0: neither
    paired: bool
    n: int  # pairs, or runs of both groups together
    method: str


def log_rank_scores(times: Sequence[EventTime]) -> Floats:
    """Each run's log-rank score: 1 if it got there, less the cumulative hazard up to its step; late runs are negative.

    The scores of a group add up to its observed minus its expected number of events, the log-rank statistic
    (Peto and Peto 1972).
    """
    steps, n_events, n_at_risk = _count_events(times)
    hazard = np.concatenate([[0.0], np.cumsum(n_events / n_at_risk)])
    ends = np.array([time.step for time in times], dtype=float)
    reached = np.array([time.reached for time in times], dtype=float)
    return np.asarray(reached - hazard[np.searchsorted(steps, ends, side="right")])


def compare_times(first: TimesByRun, second: TimesByRun) -> TimeComparison:
    """Compares two groups: by sign flips within seeds if at least two match, else by permutations.

    The scores are the steps themselves where seeds match and every run got there, and log-rank scores otherwise. Runs
    are ranked within their stratum, and a seed's scores are added up, so that seeds are the units.
    """
    common = {seed for _, seed in first} & {seed for _, seed in second}
    is_paired = len(common) >= MIN_PAIRS
    groups = [
        {key: time for key, time in group.items() if not is_paired or key[1] in common} for group in (first, second)
    ]
    if not all(groups):
        return TimeComparison(PValue(1.0, 1.0, 1, True), 0, False, sum(map(len, groups)), "")
    is_complete = all(time.reached for group in groups for time in group.values())
    one, other = _scores_by_seed(groups, uses_steps=is_paired and is_complete)
    sooner = -int(np.sign(round(float(np.mean(list(one.values())) - np.mean(list(other.values()))), 12)))
    if is_paired:
        method = "sign-flip test" if is_complete else "log-rank test with sign flips within seeds"
        p = sign_flip_test([one[seed] - other[seed] for seed in sorted(common)])
        return TimeComparison(p, sooner, True, len(common), method)
    p = permutation_test(list(one.values()), list(other.values()))
    return TimeComparison(p, sooner, False, len(one) + len(other), "log-rank permutation test")


def _scores_by_seed(groups: Sequence[TimesByRun], uses_steps: bool) -> tuple[dict[int, float], dict[int, float]]:
    """Each group's scores by seed, added up over strata; early times have high scores."""
    totals: tuple[dict[int, float], dict[int, float]] = ({}, {})
    for stratum in dict.fromkeys(stratum for group in groups for stratum, _ in group):
        runs = [
            (index, seed, time)
            for index, group in enumerate(groups)
            for (own, seed), time in group.items()
            if own == stratum
        ]
        times = [time for _, _, time in runs]
        scores = -np.array([time.step for time in times]) if uses_steps else log_rank_scores(times)
        for (index, seed, _), score in zip(runs, scores, strict=True):
            totals[index][seed] = totals[index].get(seed, 0.0) + float(score)
    return totals
