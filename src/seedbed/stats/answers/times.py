"""Which group reaches a threshold sooner, where some runs may never reach it: medians, shares and log-rank tests.

    compare_group_times({"GPT": gpt_runs, "LSTM": lstm_runs}, MetricStatistic("val/accuracy", "t_90"))

Called by the comparison of groups for statistics with a threshold; `stats.survival` has the estimators and tests.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from math import inf, isfinite, nan
from typing import Final, Literal, TypeVar

from seedbed.format import capitalise, format_count, format_p_value, join_words, pluralise
from seedbed.stats.answers.finding import HOLM, Finding, MetricStatistic, format_sample, withhold_verdict
from seedbed.stats.confounds import confounds_to_dicts, find_confounds
from seedbed.stats.decision import Verdict, is_significant
from seedbed.stats.groups import BalancedTable, balance_groups
from seedbed.stats.metric_registry import metric_label
from seedbed.stats.permutation_tests import holm_correction
from seedbed.stats.summary import RunCurves, time_to_accuracy
from seedbed.stats.survival import EventTime, MedianTime, TimeComparison, TimesByRun, compare_times, median_time

Key = TypeVar("Key", bound=Hashable)
TIME_TEST: Final = (
    "median step: by Kaplan and Meier, in which runs that never get there count too; p of a log-rank test, by "
    "sign flips within paired seeds or by permutation"
)


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
    numbers = {
        "medians": {name: asdict(median) for name, median in medians.items()},
        "pairs": [
            {"first": pair.groups[0], "second": pair.groups[1], "corrected": pair.corrected, **asdict(pair.comparison)}
            for pair in pairs
        ],
        "settings": len(balanced.combinations),
        "confounds": confounds_to_dicts(confounds),
    }
    text = TimesText(first, verdict, medians, pairs, statistic, len(balanced.combinations), bool(metrics))
    sentence = text.format_numbers() if is_withheld else text.format_sentence()
    definitions = (statistic.record.legend, TIME_TEST, *([HOLM] if len(pairs) > 1 else []))
    notes = (*notes, *balanced.averaging_note())
    finding = Finding(sentence, numbers, balanced.n_runs, notes, verdict, definitions)
    return withhold_verdict(finding, confounds, is_withheld, bool(asked))


def balance_times(
    groups: Mapping[Key, Sequence[RunCurves]], statistic: MetricStatistic, metrics: Mapping[Key, str]
) -> tuple[dict[Key, TimesByRun], BalancedTable]:
    """Each group's times by combination of the other settings and seed, and the balanced table behind them."""
    threshold = statistic.record.threshold or 0.0
    steps, reached = (
        balance_groups(groups, {name: partial(_time_field, field, metrics[name], threshold) for name in groups})
        for field in ("step", "reached")
    )
    times: dict[Key, TimesByRun] = {}
    for name in groups:
        times[name] = {key: EventTime(step, bool(reached.rows[name][key])) for key, step in steps.rows[name].items()}
    return times, steps


def _time_field(field: Literal["step", "reached"], metric: str, threshold: float, run: RunCurves) -> float:
    time = time_to_accuracy(run, metric, threshold)
    return nan if time is None else float(getattr(time, field))


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


@dataclass(frozen=True)
class TimesText:
    """The sentence about which group gets to the threshold sooner; groups that are metrics are named in words."""

    first: str
    verdict: Verdict
    medians: Mapping[str, MedianTime]
    pairs: Sequence[_Pair]
    statistic: MetricStatistic
    n_combinations: int
    are_metrics: bool

    def format_sentence(self) -> str:
        first, others = self._name(self.first), [self._name(name) for name in self.medians if name != self.first]
        names = [self._name(name) for name in self.medians]
        threshold = f"{self._article()} {self.statistic.label} of {self.statistic.record.threshold:g}"
        if self.verdict == "yes":
            claim = f"{first} reaches {threshold} sooner than {others[0] if len(others) == 1 else 'all others'}"
        elif not any(median.n_reached for median in self.medians.values()):
            counts = [f"{time.n} of {name}" for name, time in zip(names, self.medians.values(), strict=True)]
            return f"We cannot tell {join_words(names)} apart: no run reaches {threshold} ({join_words(counts)})."
        else:
            which = f"whether {join_words(names, 'or')}" if len(others) == 1 else f"which of {join_words(names)}"
            claim = f"We cannot tell {which} reaches {threshold} sooner"
        return f"{capitalise(claim)}: {self._format_medians()} ({self._format_test()}).{self._format_others()}"

    def _article(self) -> str:
        return "an" if self.statistic.label[:1] in "aeiou" else "a"

    def format_numbers(self) -> str:
        """The numbers alone, for groups that must not be ranked."""
        return f"{capitalise(str(self.statistic))}: {self._format_medians()} ({self._format_test()})."

    def _name(self, group: str) -> str:
        return metric_label(group) if self.are_metrics else group

    def _format_medians(self) -> str:
        """The median of each group with its interval, unless its runs share seeds, and the runs that got there."""
        texts = []
        for group, time in self.medians.items():
            name, runs = self._name(group), f"{time.n_reached} of {pluralise(time.n, 'run')}"
            if not time.n_reached:
                texts.append(f"{name} in none of {pluralise(time.n, 'run')}")
                continue
            high = format_count(time.high) if isfinite(time.high) else "∞"
            is_shown = time.low > 0 and self.n_combinations == 1
            bounds = f" (95 % CI {format_count(time.low)} to {high})" if is_shown else ""
            median = (
                "in less than half of its runs"
                if time.median == inf
                else f"at a median step of {format_count(time.median)}"
            )
            texts.append(f"{name} {median}{bounds}, reached by {runs}")
        return "; ".join(texts)

    def _own(self) -> list[_Pair]:
        return [pair for pair in self.pairs if self.first in pair.groups]

    def _format_test(self) -> str:
        """The test of the closest competitor: sample size and p-value, or how many seeds a test needs."""
        pair = max(self._own(), key=lambda pair: pair.corrected)
        comparison = pair.comparison
        can_tell = is_significant(comparison.p.least * len(self.pairs))
        p = format_p_value(pair.corrected) if can_tell else ""
        return format_sample(comparison.n, comparison.paired, len(self.pairs), p)

    def _format_others(self) -> str:
        """Which groups differ significantly from the soonest, if there are three or more."""
        own = self._own()
        different = [name for pair in own if pair.is_significant for name in pair.groups if name != self.first]
        if len(self.medians) < 3 or not different or len(different) == len(own):
            return ""
        return f" {self.first} is significantly sooner than {join_words(different)}."
