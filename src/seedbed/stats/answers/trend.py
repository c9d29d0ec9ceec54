"""Answers to "how does it change": a metric along the values of a setting, its trend, and where it is best.

A trend is tested by Page's test with one row per seed, the mean over the other settings: under the null hypothesis a
seed's values are exchangeable along the setting. A metric that is best inside the range and significantly worse at both
ends is called not monotone, whatever the trend. `stats.optimum` says which values cannot be told from the best one.
Along α there is no test, since all values come from the same run and its best value so far can only improve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import nan

import numpy as np
from numpy.typing import NDArray

from seedbed.settings import Value
from seedbed.specs import QuestionSpec
from seedbed.stats.answers.best_group import compare_setting_values
from seedbed.stats.answers.comparison_text import MetricStatistic
from seedbed.stats.answers.finding import (
    Finding,
    describe_units,
    format_clause,
    join_sentences,
    split_by_setting,
    withhold_verdict,
)
from seedbed.stats.answers.times import balance_times
from seedbed.stats.answers.trend_text import Trend, format_trend
from seedbed.stats.comparison import compare_by_seed
from seedbed.stats.confounds import confounds_to_dicts, find_confounds
from seedbed.stats.decision import combine_verdicts
from seedbed.stats.format import format_value, join_words
from seedbed.stats.groups import (
    BalancedTable,
    RunGroups,
    balance_groups,
    group_by_level,
    is_numeric,
    largest_complete_table,
)
from seedbed.stats.optimum import find_optimum
from seedbed.stats.permutation_tests import average_ranks, holm_correction, page_trend_test
from seedbed.stats.summary import RunCurves
from seedbed.stats.survival import TimesByRun, median_time


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
    clauses = [format_clause(name, format_trend(trend, over, statistic)) for name, trend in trends.items()]
    verdicts = [trend.verdict for trend in trends.values() if trend.verdict]
    numbers = {name or "all": _trend_to_dict(trend) for name, trend in trends.items()}
    notes = tuple(dict.fromkeys(note for trend in trends.values() for note in trend.notes))
    n = sum(trend.n for trend in trends.values())
    verdict = combine_verdicts(verdicts) if verdicts else None
    confounds = list({confound.setting: confound for trend in trends.values() for confound in trend.confounds}.values())
    units = next(filter(None, (describe_units(levels.values(), statistic) for levels in groups.values())), "")
    finding = Finding(join_sentences(clauses), numbers, n, notes, verdict)
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
