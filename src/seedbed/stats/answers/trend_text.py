"""A trend along the values of a setting, as a record and as a sentence; `trend` computes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isnan, nan

from seedbed.stats.answers.comparison_text import MetricStatistic
from seedbed.stats.comparison import Comparison, has_width
from seedbed.stats.confounds import Confound
from seedbed.stats.decision import Verdict, decide_difference, is_significant
from seedbed.stats.format import (
    format_count,
    format_interval,
    format_number,
    format_p_value,
    format_signed,
    format_value,
    join_words,
    pluralise,
    short_setting_name,
)
from seedbed.stats.optimum import Optimum
from seedbed.stats.permutation_tests import PValue
from seedbed.stats.survival import MedianTime

MAX_LISTED_LEVELS = 3  # a confidence set with more values that are neighbours is written as a range


@dataclass(frozen=True)
class Trend:
    """A statistic along the levels of a setting, over the seeds that have a value at each of them."""

    levels: tuple[float, ...]
    centres: tuple[float, ...]  # mean of each level; median of times to a threshold
    ends: Comparison | None  # last minus first level
    correlation: float  # Spearman's rank correlation, mean over seeds
    p: PValue | None  # of Page's test; None: not tested
    n: int  # runs
    n_seeds: int
    corrected: float = nan  # p after Holm's correction for the groups of the question
    optimum: Optimum | None = None  # None if no value is better in itself
    times: tuple[MedianTime, ...] = ()  # by level, of times to a threshold
    notes: tuple[str, ...] = ()
    confounds: tuple[Confound, ...] = ()

    @property
    def is_peaked(self) -> bool:
        """Is it best inside the range, and significantly worse at both ends?"""
        if self.optimum is None:
            return False
        return self.optimum.excludes(0) and self.optimum.excludes(len(self.levels) - 1)

    @property
    def verdict(self) -> Verdict | None:
        """Does the statistic depend on the setting? None if that was not tested."""
        if self.p is None:
            return None
        return "yes" if self.is_peaked else decide_difference(self.corrected)


def format_trend(trend: Trend, over: str, statistic: MetricStatistic) -> str:
    """The trend as a clause, without a full stop."""
    name = short_setting_name(over)
    if len(trend.levels) < 2:
        return f"{statistic} has no values with the same seeds at two values of {name}"
    if trend.is_peaked:
        return _format_peak(trend, name, statistic)
    return (
        f"{statistic} {_trend_verb(trend, name)}, from {_format_centre(trend, 0)} to {_format_centre(trend, -1)} "
        f"({_format_evidence(trend)}){_uncertain_size_note(trend)}{_optimum_note(trend)}"
    )


def _format_peak(trend: Trend, name: str, statistic: MetricStatistic) -> str:
    """A statistic that is best inside the range and significantly worse at both ends."""
    assert trend.optimum is not None
    best = trend.optimum.index
    return (
        f"{statistic} is not monotone in {name}: it is best at {_format_level(trend, best)} "
        f"({_format_value(trend, best)}{_format_count_reached(trend, best)}; "
        f"{_format_confidence_set(trend, trend.optimum)}) and worse at both ends, {_format_centre(trend, 0)} and "
        f"{_format_centre(trend, -1)} ({_format_evidence(trend)})"
    )


def _trend_verb(trend: Trend, name: str) -> str:
    if len(set(trend.centres)) == 1 and isnan(trend.correlation):
        return f"does not change with {name}"
    is_rising = trend.centres[-1] > trend.centres[0] if trend.p is None else trend.correlation > 0
    if trend.p is None or is_significant(trend.corrected):
        return f"{'rises' if is_rising else 'falls'} with {name}"
    return f"shows no significant trend with {name}"


def _format_centre(trend: Trend, index: int) -> str:
    """`0.883 at 0.9`; of a time with runs that never got there, `900 at 0.9 (7 of 8 runs)`."""
    index %= len(trend.levels)
    value, level = _format_value(trend, index), _format_level(trend, index)
    return f"{value} at {level}{_format_count_reached(trend, index, ' ({})')}"


def _format_value(trend: Trend, index: int) -> str:
    if not trend.times:
        return format_number(trend.centres[index])
    median = trend.times[index].median
    return "more than half never there" if median == inf else f"a median of {format_count(median)}"


def _format_count_reached(trend: Trend, index: int, template: str = ", {}") -> str:
    """How many runs got there, if not all did."""
    if not trend.times or trend.times[index].n_reached == trend.times[index].n:
        return ""
    time = trend.times[index]
    return template.format(f"{time.n_reached} of {pluralise(time.n, 'run')} got there")


def _format_level(trend: Trend, index: int) -> str:
    return format_value(trend.levels[index])


def _format_evidence(trend: Trend) -> str:
    """The change between the ends, and the test."""
    parts = [_format_change(trend.ends)] if trend.ends else [f"{pluralise(trend.n_seeds, 'seed')}"]
    if trend.p is None:
        parts.append("no test, since these are evaluations of the same runs")
    elif not isnan(trend.correlation):
        correlation = f"rank correlation {format_signed(trend.correlation)} over {len(trend.levels)} values"
        parts.append(f"{correlation}, Page's test {_format_p(trend, trend.p)}")
    return "; ".join(parts)


def _format_p(trend: Trend, p: PValue) -> str:
    more = "" if is_significant(p.least) else ": cannot reach 5 % with so few seeds and values"
    return format_p_value(trend.corrected) + more


def _format_change(ends: Comparison) -> str:
    if ends.n == 1:
        return f"{format_signed(ends.effect)}, one seed, so no interval"
    size = f"paired over {pluralise(ends.n, 'seed')}"
    if not has_width(ends.smallest, ends.largest):
        return f"{format_signed(ends.effect)}, {size}"
    if not ends.has_interval:
        differences = f"{format_signed(ends.smallest)} to {format_signed(ends.largest)}"
        return f"{format_signed(ends.effect)}, {size}, whose differences range from {differences}"
    return f"{format_signed(ends.effect)} {format_interval(ends.low, ends.high)}, {size}"


def _uncertain_size_note(trend: Trend) -> str:
    """The order of the values can be significant while the size of the change is not."""
    ends = trend.ends
    is_uncertain = ends is not None and ends.has_interval and ends.low <= 0 <= ends.high
    return (
        "; the trend is significant, its size is uncertain" if is_significant(trend.corrected) and is_uncertain else ""
    )


def _optimum_note(trend: Trend) -> str:
    """The best level and those that cannot be told from it, unless it is the one at the end of the trend."""
    if trend.optimum is None or len(set(trend.centres)) == 1:
        return ""
    best, members = trend.optimum.index, trend.optimum.confidence_set
    is_at_end = best in (0, len(trend.levels) - 1)
    if is_at_end and (len(members) == 1 or len(members) == len(trend.levels)):
        return ""
    note = f"; it is best at {_format_level(trend, best)} ({_format_value(trend, best)})"
    return note if len(members) == len(trend.levels) else f"{note}, {_format_confidence_set(trend, trend.optimum)}"


def _format_confidence_set(trend: Trend, optimum: Optimum) -> str:
    """`95 % confidence set of the best value: 0.003 to 0.01`."""
    members = optimum.confidence_set
    return f"95 % confidence set of the best value: {_format_levels(trend, members)}"


def _format_levels(trend: Trend, members: Sequence[int]) -> str:
    is_range = members[-1] - members[0] + 1 == len(members) > MAX_LISTED_LEVELS
    shown = [_format_level(trend, index) for index in members]
    return f"{shown[0]} to {shown[-1]}" if is_range else join_words(shown)
