"""Answers to "how does it change": a metric along the values of a setting, its trend, and where it is best.

A trend is tested by Page's test with one row per seed, the mean over the other settings: under the null hypothesis a
seed's values are exchangeable along the setting. A metric that is best inside the range and significantly worse at both
ends is called not monotone, whatever the trend. `stats.optimum` says which values cannot be told from the best one.
Along α there is no test, since all values come from the same run and its best value so far can only improve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf, isnan, nan

import numpy as np
from numpy.typing import NDArray

from seedbed.format import (
    capitalise,
    format_p_value,
    format_signed,
    format_value,
    join_words,
    pluralise,
    setting_noun,
    setting_with_article,
)
from seedbed.settings import Value
from seedbed.specs import QuestionSpec
from seedbed.stats.answers.best_group import compare_setting_values
from seedbed.stats.answers.finding import (
    CONFIDENCE_SET,
    TREND_TEST,
    Finding,
    MetricStatistic,
    describe_units,
    format_difference,
    join_clauses,
    split_by_setting,
    test_definitions,
    withhold_verdict,
)
from seedbed.stats.answers.times import balance_times
from seedbed.stats.comparison import Comparison, compare_by_seed
from seedbed.stats.confounds import Confound, confounds_to_dicts, find_confounds, merge_confounds
from seedbed.stats.decision import Verdict, combine_verdicts, decide_difference, is_significant
from seedbed.stats.groups import (
    BalancedTable,
    RunGroups,
    balance_groups,
    group_by_level,
    is_numeric,
    largest_complete_table,
)
from seedbed.stats.optimum import Optimum, find_optimum
from seedbed.stats.permutation_tests import PValue, average_ranks, holm_correction, page_trend_test
from seedbed.stats.summary import RunCurves
from seedbed.stats.survival import MedianTime, TimesByRun, median_time

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


def answer_how_it_changes(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """The trend along the setting `over` in each group; values that are not numbers are compared instead."""
    over, statistic = question.over or "", MetricStatistic.from_question(question)
    levels = group_by_level(runs, over)
    if len(levels) < 2 or not is_numeric(levels):
        return compare_setting_values(levels, over, statistic, question.allow_confounds)
    groups = split_by_setting(question, runs).items()
    by_group = {name: group_by_level(group, over) for name, group in groups}
    return describe_trends(by_group, over, statistic, question.allow_confounds)


def describe_trends(
    groups: Mapping[str, RunGroups], over: str, statistic: MetricStatistic, allow_confounds: bool = False
) -> Finding:
    """The trend of each group, whose runs are given by level; an unnamed group stands for all runs."""
    trends = _correct_p_values({name: _compute_trend(levels, over, statistic) for name, levels in groups.items()})
    clauses = {name: _format_trend(trend, over, statistic, is_named=bool(name)) for name, trend in trends.items()}
    verdicts = [trend.verdict for trend in trends.values() if trend.verdict]
    numbers = {name or "all": _trend_to_dict(trend) for name, trend in trends.items()}
    notes = tuple(dict.fromkeys(note for trend in trends.values() for note in trend.notes))
    n = sum(trend.n for trend in trends.values())
    verdict = combine_verdicts(verdicts) if verdicts else None
    confounds = merge_confounds(confound for trend in trends.values() for confound in trend.confounds)
    units = next(filter(None, (describe_units(levels.values(), statistic) for levels in groups.values())), "")
    ends = [trend.ends for trend in trends.values() if trend.ends]
    definitions = [statistic.record.legend, *test_definitions(ends)[:1], *([TREND_TEST] if verdicts else [])]
    definitions += [CONFIDENCE_SET] if any(trend.optimum for trend in trends.values()) else []
    finding = Finding(join_clauses(clauses), numbers, n, notes, verdict, tuple(filter(None, definitions)))
    return withhold_verdict(finding, confounds, not allow_confounds, units=units)


def _trend_to_dict(trend: Trend) -> dict[str, object]:
    document = asdict(replace(trend, confounds=(), notes=()))
    document |= {"means": dict(zip(trend.levels, trend.centres, strict=True)), "p": trend.p and trend.p.value}
    if trend.optimum is not None:
        members = [trend.levels[index] for index in trend.optimum.confidence_set]
        document["optimum"] = {"level": trend.levels[trend.optimum.index], "confidence_set": members}
    return document | {"confounds": confounds_to_dicts(trend.confounds), "not_monotone": trend.is_peaked}


def _correct_p_values(trends: Mapping[str, Trend]) -> dict[str, Trend]:
    """The trends with p-values corrected by Holm's method for the number of groups tested."""
    p_values = {name: trend.p.value for name, trend in trends.items() if trend.p}
    corrected = dict(zip(p_values, holm_correction(list(p_values.values())), strict=True))
    return {name: replace(trend, corrected=corrected.get(name, nan)) for name, trend in trends.items()}


def _compute_trend(levels: RunGroups, over: str, statistic: MetricStatistic) -> Trend:
    evaluated = {level: runs for level, runs in levels.items() if any(run.is_complete for run in runs)}
    balanced, times = _balance_levels(evaluated, statistic)
    kept, seeds = largest_complete_table({level: {seed for _, seed in balanced.rows[level]} for level in evaluated})
    notes = (*balanced.notes(), *_dropped_levels_note(levels, kept))
    if len(kept) < 2:
        return Trend((), (), None, nan, None, 0, 0, notes=notes)
    by_level = {level: balanced.mean_by_seed(level) for level in kept}
    table = np.array([[by_level[level][seed] for level in kept] for seed in sorted(seeds)])
    medians = tuple(
        median_time([time for (_, seed), time in times[level].items() if seed in seeds]) for level in kept if times
    )
    is_replay = over == "alpha"
    direction = None if is_replay or len(kept) < 3 else statistic.direction
    n = sum(seed in seeds for level in kept for _, seed in balanced.rows[level])
    last, first = ({seed: by_level[level][seed] for seed in sorted(seeds)} for level in (kept[-1], kept[0]))
    return Trend(
        levels=tuple(kept),
        centres=tuple(time.median for time in medians) or tuple(float(mean) for mean in table.mean(0)),
        ends=None if any(time.n_reached < time.n for time in medians) else compare_by_seed(last, first),
        correlation=_mean_spearman(table),
        p=None if is_replay else page_trend_test(list(table)),
        n=n // len(kept) if is_replay else n,
        n_seeds=len(seeds),
        optimum=find_optimum(table, direction) if direction else None,
        times=medians,
        notes=notes,
        confounds=find_confounds({format_value(level): balanced.configs[level] for level in kept}, [over]),
    )


def _balance_levels(levels: RunGroups, statistic: MetricStatistic) -> tuple[BalancedTable, Mapping[Value, TimesByRun]]:
    """The balanced table; for times to a threshold also the times, whose censored ones rank after all others in it."""
    if statistic.record.threshold is None:
        return balance_groups(levels, statistic.compute), {}
    times, balanced = balance_times(levels, statistic, dict.fromkeys(levels, statistic.metric))
    rows = {
        level: {key: time.step + (not time.reached) for key, time in by_run.items()} for level, by_run in times.items()
    }
    return replace(balanced, rows=rows), times


def _dropped_levels_note(levels: RunGroups, kept: Sequence[Value]) -> list[str]:
    missing = [format_value(level) for level in levels if level not in kept]
    return [f"no value with the same seeds at {join_words(missing)}"] if missing else []


def _mean_spearman(table: NDArray[np.float64]) -> float:
    """Spearman's rank correlation with the column order, mean over the rows that are not constant."""
    columns = np.arange(table.shape[1])
    correlations = [np.corrcoef(average_ranks(row), columns)[0, 1] for row in table if row.min() < row.max()]
    return float(np.mean(correlations)) if correlations else nan


# ---- sentences ----


def _format_trend(trend: Trend, over: str, statistic: MetricStatistic, is_named: bool) -> str:
    """The trend as a clause, without a full stop; `is_named` if a group's name precedes it."""
    name, along = setting_noun(over), setting_with_article(over)
    if len(trend.levels) < 2:
        return f"there is no answer yet: {statistic} has no values with the same seeds at two values of {along}"
    subject = str(statistic) if is_named else capitalise(str(statistic))
    ends = f"from {_centre(trend, 0, statistic)} to {_centre(trend, -1, statistic)}"
    evidence = _format_evidence(trend, statistic)
    if trend.is_peaked and trend.optimum is not None:
        best = f"{statistic.extremum} ({_value(trend, trend.optimum.index, statistic)}) at "
        best += format_value(trend.levels[trend.optimum.index])
        first, last = (_centre(trend, index, statistic) for index in (0, -1))
        chosen = _format_confidence_set(trend, trend.optimum, name)
        seeds = f"{pluralise(trend.n_seeds, 'paired seed')}, both ends are significantly worse"
        return f"{subject} is not monotone in {along}: {first}, {best}, {last} ({seeds}; {chosen})"
    is_constant = len(set(trend.centres)) == 1 and isnan(trend.correlation)
    is_rising = trend.centres[-1] > trend.centres[0] if trend.p is None else trend.correlation > 0
    verb = "does not change" if is_constant else "rises" if is_rising else "falls"
    if trend.p is None or trend.verdict == "yes":
        uncertain = "; its size is uncertain" if _has_uncertain_size(trend) else ""
        return f"{subject} {verb} with {along}, {ends} ({evidence}){uncertain}{_optimum_note(trend, statistic, name)}"
    claim = f"{'we' if is_named else 'We'} cannot tell whether {statistic} changes with {along}"
    if is_constant:
        return f"{claim}: it is {_value(trend, 0, statistic)} at each of {len(trend.levels)} values ({evidence})"
    return f"{claim}: it goes {ends} ({evidence}){_optimum_note(trend, statistic, name)}"


def _centre(trend: Trend, index: int, statistic: MetricStatistic) -> str:
    """`0.883 at 0.9`; of a time with runs that never got there, `900 at 0.9 (7 of 8 runs got there)`."""
    index %= len(trend.levels)
    text = f"{_value(trend, index, statistic)} at {format_value(trend.levels[index])}"
    if not trend.times or trend.times[index].n_reached == trend.times[index].n:
        return text
    return f"{text} ({trend.times[index].n_reached} of {pluralise(trend.times[index].n, 'run')} got there)"


def _value(trend: Trend, index: int, statistic: MetricStatistic) -> str:
    if not trend.times:
        ends = (trend.centres[0], trend.centres[-1])
        return statistic.format(trend.centres[index], *(end for end in ends if end != trend.centres[index]))[0]
    median = trend.times[index].median
    return "more than half never there" if median == inf else f"a median of {statistic.format(median)[0]}"


def _format_evidence(trend: Trend, statistic: MetricStatistic) -> str:
    """The change between the ends, and the test."""
    seeds = pluralise(trend.n_seeds, "paired seed")
    change = format_difference(trend.ends, statistic, signed=True) if trend.ends and trend.ends.effect else ""
    parts = [change.replace("difference ", "change +" if trend.ends and trend.ends.effect > 0 else "change ", 1), seeds]
    if trend.p is None:
        parts.append("no test, since these are evaluations of the same runs")
    elif not isnan(trend.correlation):
        parts.append(f"rank correlation {format_signed(trend.correlation)} over {len(trend.levels)} values")
        can_tell = is_significant(trend.p.least)
        parts.append(format_p_value(trend.corrected) if can_tell else "too few seeds and values for a test")
    return ", ".join(filter(None, parts))


def _has_uncertain_size(trend: Trend) -> bool:
    """The order of the values can be significant while the size of the change is not."""
    ends = trend.ends
    return is_significant(trend.corrected) and ends is not None and ends.has_interval and ends.low <= 0 <= ends.high


def _optimum_note(trend: Trend, statistic: MetricStatistic, name: str) -> str:
    """The best level and those that cannot be told from it, unless it is the one at the end of the trend."""
    if trend.optimum is None or len(set(trend.centres)) == 1:
        return ""
    best, members = trend.optimum.index, trend.optimum.confidence_set
    is_at_end = best in (0, len(trend.levels) - 1)
    if is_at_end and (len(members) == 1 or len(members) == len(trend.levels)):
        return ""
    level = format_value(trend.levels[best])
    note = f"; it is {statistic.extremum} ({_value(trend, best, statistic)}) at {level}"
    if len(members) == len(trend.levels):
        return note
    return f"{note}, {_format_confidence_set(trend, trend.optimum, name)}"


def _format_confidence_set(trend: Trend, optimum: Optimum, name: str) -> str:
    """`95 % confidence set of the best learning rate: 0.003 to 0.01`."""
    members = optimum.confidence_set
    is_range = members[-1] - members[0] + 1 == len(members) > MAX_LISTED_LEVELS
    shown = [format_value(trend.levels[index]) for index in members]
    return f"95 % confidence set of the best {name}: {f'{shown[0]} to {shown[-1]}' if is_range else join_words(shown)}"
