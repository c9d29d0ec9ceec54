"""Which group reaches a threshold sooner, where some runs may never reach it: medians, shares and log-rank tests.

    compare_group_times({"GPT": gpt_runs, "LSTM": lstm_runs}, MetricStatistic("val/accuracy", "t_90"))

Called by the comparison of groups for statistics with a threshold; `stats.survival` has the estimators and tests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from math import inf, isfinite, nan
from typing import TypeVar

from seedbed.stats.answers.comparison_text import MetricStatistic
from seedbed.stats.answers.finding import Finding, withhold_verdict
from seedbed.stats.confounds import confounds_to_dicts, find_confounds
from seedbed.stats.decision import Verdict, is_significant, seeds_needed
from seedbed.stats.format import format_count, format_p_value, join_words, pluralise
from seedbed.stats.groups import BalancedTable, balance_groups
from seedbed.stats.permutation_tests import holm_correction
from seedbed.stats.summary import RunCurves, time_to_accuracy
from seedbed.stats.survival import EventTime, MedianTime, TimeComparison, TimesByRun, compare_times, median_time

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class _Pair:
    """Two groups, how they compare, and the p-value corrected for all pairs."""

    groups: tuple[str, str]
    comparison: TimeComparison
    corrected: float

    @property
    def is_significant(self) -> bool:
        return is_significant(self.corrected)

    @property
    def sooner(self) -> str:
        """The group that gets there sooner; empty if neither does."""
        return {-1: self.groups[0], 1: self.groups[1], 0: ""}[self.comparison.sooner]


def compare_group_times(
    groups: Mapping[str, Sequence[RunCurves]],
    statistic: MetricStatistic,
    asked: Collection[str] = (),
    allow_confounds: bool = False,
    metrics: Mapping[str, str] | None = None,
) -> Finding:
    """Compares named groups of runs by the first step at a threshold; the arguments are those of `compare_groups`."""
    names = metrics or dict.fromkeys(groups, statistic.metric)
    times, balanced = balance_times(groups, statistic, names)
    filled = {name: by_run for name, by_run in times.items() if by_run}
    notes = tuple(balanced.notes())
    if len(filled) < 2:
        missing = join_words([name for name in groups if name not in filled])
        sentence = f"There is no answer yet: {missing} lacks a value of {statistic} with settings and seeds in common."
        return Finding(sentence, {}, balanced.n_runs, notes)
    pairs = _compare_all_pairs(filled)
    medians = {name: median_time(list(by_run.values())) for name, by_run in filled.items()}
    confounds = find_confounds({name: balanced.configs[name] for name in filled}, asked)
    is_withheld = (bool(confounds) if asked else len(confounds) > 1) and not allow_confounds
    first = _soonest(medians, pairs)
    verdict = _verdict(first, pairs)
    clause = f"{statistic}: {_format_medians(medians, len(balanced.combinations))}"
    claim = f"{clause[0].upper()}{clause[1:]}" if is_withheld else _format_claim(first, verdict, medians, clause)
    numbers = {
        "medians": {name: asdict(median) for name, median in medians.items()},
        "pairs": [
            {"first": pair.groups[0], "second": pair.groups[1], "corrected": pair.corrected, **asdict(pair.comparison)}
            for pair in pairs
        ],
        "settings": len(balanced.combinations),
        "confounds": confounds_to_dicts(confounds),
    }
    is_reached = any(median.n_reached for median in medians.values())
    test = f" ({_format_tests(first, pairs)})" if is_reached else ""
    sentence = f"{claim}{test}.{_format_others(first, pairs, medians)}"
    finding = Finding(sentence, numbers, balanced.n_runs, notes, verdict)
    return withhold_verdict(finding, confounds, is_withheld, bool(asked))


def balance_times(
    groups: Mapping[Key, Sequence[RunCurves]], statistic: MetricStatistic, metrics: Mapping[Key, str]
) -> tuple[dict[Key, TimesByRun], BalancedTable]:
    """Each group's times by combination of the other settings and seed, and the balanced table behind them."""
    threshold = statistic.record.threshold or 0.0
    find_time = {name: partial(time_to_accuracy, metric=metrics[name], threshold=threshold) for name in groups}
    steps = balance_groups(groups, {name: partial(_step, find_time=find_time[name]) for name in groups})
    reached = balance_groups(groups, {name: partial(_is_reached, find_time=find_time[name]) for name in groups})
    times: dict[Key, TimesByRun] = {}
    for name in groups:
        times[name] = {key: EventTime(step, bool(reached.rows[name][key])) for key, step in steps.rows[name].items()}
    return times, steps


def _step(run: RunCurves, find_time: Callable[[RunCurves], EventTime | None]) -> float:
    time = find_time(run)
    return nan if time is None else time.step


def _is_reached(run: RunCurves, find_time: Callable[[RunCurves], EventTime | None]) -> float:
    time = find_time(run)
    return nan if time is None else float(time.reached)


def _compare_all_pairs(times: Mapping[str, TimesByRun]) -> list[_Pair]:
    pairs = {(one, other): compare_times(times[one], times[other]) for one, other in combinations(times, 2)}
    corrected = holm_correction([comparison.p.value for comparison in pairs.values()])
    return [_Pair(names, comparison, p) for (names, comparison), p in zip(pairs.items(), corrected, strict=True)]


def _soonest(medians: Mapping[str, MedianTime], pairs: Sequence[_Pair]) -> str:
    """The group that is sooner in most comparisons; of several, that with the earliest median."""
    wins = {name: sum(pair.sooner == name for pair in pairs) for name in medians}
    return min(medians, key=lambda name: (-wins[name], medians[name].median))


def _verdict(first: str, pairs: Sequence[_Pair]) -> Verdict:
    own = [pair for pair in pairs if first in pair.groups]
    return "yes" if all(pair.is_significant and pair.sooner == first for pair in own) else "cannot tell"


# ---- sentences ----


def _format_claim(first: str, verdict: Verdict, medians: Mapping[str, MedianTime], clause: str) -> str:
    others = [name for name in medians if name != first]
    if verdict == "yes":
        rest = others[0] if len(others) == 1 else "all others"
        return f"{first} gets there sooner than {rest}: {clause}"
    if not any(median.n_reached for median in medians.values()):
        return f"Cannot tell {join_words(list(medians))} apart, since no run gets there: {clause}"
    which = f"whether {join_words(list(medians), 'or')}" if len(others) == 1 else "which"
    return f"Cannot tell {which} gets there sooner: {clause}"


def _format_medians(medians: Mapping[str, MedianTime], n_combinations: int) -> str:
    """The median of each group with its interval, unless its runs share seeds, and the runs that got there."""
    texts = []
    for name, time in medians.items():
        if not time.n_reached:
            texts.append(f"{name} none of {pluralise(time.n, 'run')}")
            continue
        median = "more than half never got there" if time.median == inf else f"median {format_count(time.median)}"
        bounds = (
            f" [{format_count(time.low)}, {_format_bound(time.high)}]" if time.low > 0 and n_combinations == 1 else ""
        )
        texts.append(f"{name} {median}{bounds}, {time.n_reached} of {pluralise(time.n, 'run')}")
    return "; ".join(texts)


def _format_bound(step: float) -> str:
    return format_count(step) if isfinite(step) else "∞"


def _format_tests(first: str, pairs: Sequence[_Pair]) -> str:
    """The test of the closest competitor: sample size, method and p-value, or how many seeds a test needs."""
    pair = max((pair for pair in pairs if first in pair.groups), key=lambda pair: pair.corrected)
    comparison = pair.comparison
    size = f"paired over {pluralise(comparison.n, 'seed')}" if comparison.paired else f"{comparison.n} runs, unpaired"
    if not is_significant(comparison.p.least * len(pairs)):
        per_group = "" if comparison.paired else " per group"
        return f"{size}: a test needs {seeds_needed(len(pairs), comparison.paired)} seeds{per_group}"
    correction = f" after Holm's correction for {len(pairs)} pairs" if len(pairs) > 1 else ""
    return f"{size}, {comparison.method}, {format_p_value(pair.corrected)}{correction}"


def _format_others(first: str, pairs: Sequence[_Pair], medians: Mapping[str, MedianTime]) -> str:
    """Which groups differ significantly from the soonest, if there are three or more."""
    own = [pair for pair in pairs if first in pair.groups]
    different = [name for pair in own if pair.is_significant for name in pair.groups if name != first]
    if len(medians) < 3 or not different or len(different) == len(own):
        return ""
    return f" {first} is significantly sooner than {join_words(different)}."
