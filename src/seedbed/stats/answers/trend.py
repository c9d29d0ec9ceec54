"""Answers to "how does it change": a metric from the first to the last value of a setting, and the trend over all.

The trend is tested by Page's test: under the null hypothesis a seed's values are exchangeable along the setting. Along
α there is no test, since all values come from the same run and its best value so far can only improve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan, nan

import numpy as np
from numpy.typing import NDArray

from seedbed.settings import Value
from seedbed.specs import QuestionSpec
from seedbed.stats.answers.best_group import compare_setting_values
from seedbed.stats.answers.comparison_text import MetricStatistic, best_key
from seedbed.stats.answers.finding import Finding, format_clause, join_sentences, split_by_setting
from seedbed.stats.comparison import ConfidenceInterval, mean_confidence_interval
from seedbed.stats.decision import SIGNIFICANCE_LEVEL
from seedbed.stats.format import (
    format_interval,
    format_number,
    format_p_value,
    format_signed,
    format_value,
    join_words,
    pluralise,
    short_setting_name,
)
from seedbed.stats.groups import RunGroups, balance_groups, group_by_level, is_numeric, largest_complete_table
from seedbed.stats.permutation_tests import average_ranks, holm_correction, page_trend_test
from seedbed.stats.summary import RunCurves


def answer_how_it_changes(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """The trend along the setting `over` in each group; values that are not numbers are compared instead."""
    over, statistic = question.over or "", MetricStatistic.from_question(question)
    levels = group_by_level(runs, over)
    if len(levels) < 2 or not is_numeric(levels):
        return compare_setting_values(levels, over, statistic)
    trends = {
        name: _compute_trend(group_by_level(group, over), over, statistic)
        for name, group in split_by_setting(question, runs).items()
    }
    corrected = _correct_p_values({name: trend.p for name, trend in trends.items()})
    clauses = [
        format_clause(name, _format_trend(trend, corrected[name], over, statistic)) for name, trend in trends.items()
    ]
    numbers = {name or "all": asdict(trend) | {"corrected": corrected[name]} for name, trend in trends.items()}
    notes = tuple(note for trend in trends.values() for note in trend.notes)
    return Finding(join_sentences(clauses), numbers, sum(trend.n for trend in trends.values()), notes)


def _correct_p_values(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm-corrected p-values of the groups; NaN (not tested) stays NaN."""
    tested = [name for name, p in p_values.items() if not isnan(p)]
    return {**p_values, **dict(zip(tested, holm_correction([p_values[name] for name in tested]), strict=True))}


@dataclass(frozen=True)
class Trend:
    """Means by level, last minus first level over seeds, and the trend over all levels."""

    means: Mapping[float, float]
    ends: ConfidenceInterval
    correlation: float  # Spearman's rank correlation, mean over seeds
    p: float
    n: int
    notes: tuple[str, ...]


def _compute_trend(levels: RunGroups, over: str, statistic: MetricStatistic) -> Trend:
    evaluated = {level: runs for level, runs in levels.items() if any(run.is_included for run in runs)}
    balanced = balance_groups(evaluated, statistic.compute)
    kept, seeds = largest_complete_table({level: {seed for _, seed in balanced.rows[level]} for level in evaluated})
    notes = (*balanced.notes(), *_dropped_levels_note(levels, kept))
    if len(kept) < 2:
        return Trend({}, mean_confidence_interval([]), nan, 1.0, 0, notes)
    by_level = {level: balanced.mean_by_seed(level) for level in kept}
    means = {level: float(np.mean([by_seed[seed] for seed in seeds])) for level, by_seed in by_level.items()}
    keys = [key for key in balanced.rows[kept[0]] if key[1] in seeds]
    table = np.array([[balanced.rows[level][key] for level in kept] for key in keys])
    ends = mean_confidence_interval([by_level[kept[-1]][seed] - by_level[kept[0]][seed] for seed in sorted(seeds)])
    is_replay = over == "alpha"
    p = nan if is_replay else page_trend_test(list(table)).value
    return Trend(means, ends, _mean_spearman(table), p, len(keys) if is_replay else table.size, notes)


def _dropped_levels_note(levels: RunGroups, kept: Sequence[Value]) -> list[str]:
    missing = [format_value(level) for level in levels if level not in kept]
    return [f"no value with the same seeds at {join_words(missing)}"] if missing else []


def _mean_spearman(table: NDArray[np.float64]) -> float:
    """Spearman's rank correlation with the column order, mean over the rows that are not constant."""
    columns = np.arange(table.shape[1])
    correlations = [np.corrcoef(average_ranks(row), columns)[0, 1] for row in table if row.min() < row.max()]
    return float(np.mean(correlations)) if correlations else nan


# ---- sentences ----


def _format_trend(trend: Trend, p: float, over: str, statistic: MetricStatistic) -> str:
    setting_name = short_setting_name(over)
    if len(trend.means) < 2:
        return f"{statistic} has no values with the same seeds at two values of {setting_name}"
    (first, start), *_, (last, end) = trend.means.items()
    return (
        f"{statistic} {_trend_verb(trend, p, setting_name)}, "
        f"from {format_number(start)} at {format_value(first)} to {format_number(end)} at {format_value(last)} "
        f"({_format_change(trend.ends)}{_format_trend_test(trend, p)})"
        f"{_uncertain_size_note(trend, p)}{_best_level_note(trend, statistic)}"
    )


def _trend_verb(trend: Trend, p: float, setting_name: str) -> str:
    if len(set(trend.means.values())) == 1:
        return f"does not change with {setting_name}"
    rises = trend.ends.mean > 0 if isnan(p) else trend.correlation > 0
    if isnan(p) or p <= SIGNIFICANCE_LEVEL:
        return f"{'rises' if rises else 'falls'} with {setting_name}"
    return f"shows no significant trend with {setting_name}"


def _format_change(ends: ConfidenceInterval) -> str:
    if ends.n == 1:
        return f"{format_signed(ends.mean)}, one seed, so no interval"
    return f"{format_signed(ends.mean)} {format_interval(ends.low, ends.high)}, paired over {pluralise(ends.n, 'seed')}"


def _format_trend_test(trend: Trend, p: float) -> str:
    if isnan(p):
        return "; no test, since these are evaluations of the same runs"
    if isnan(trend.correlation):
        return ""
    correlation = f"rank correlation {format_signed(trend.correlation)} over {len(trend.means)} values"
    return f"; {correlation}, Page's test {format_p_value(p)}"


def _uncertain_size_note(trend: Trend, p: float) -> str:
    """The order of the values can be significant while the size of the change is not."""
    spans_zero = trend.ends.n > 1 and trend.ends.low <= 0 <= trend.ends.high
    return "; the trend is significant, its size is uncertain" if p <= SIGNIFICANCE_LEVEL and spans_zero else ""


def _best_level_note(trend: Trend, statistic: MetricStatistic) -> str:
    """The best level, if it is not the first or the last."""
    if statistic.direction is None:
        return ""
    means = list(trend.means.values())
    best = best_key(trend.means, statistic.direction)
    is_inside = trend.means[best] not in (means[0], means[-1])
    return f"; it is best at {format_value(best)} ({format_number(trend.means[best])})" if is_inside else ""
