"""Answers to "which scales better": each group's change per doubling of a setting, one slope per seed, compared.

A loss is fitted on log scale, so that its slope is a factor per doubling; an accuracy on linear scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TypeAlias

import numpy as np

from seedbed.specs import QuestionSpec
from seedbed.stats.answers.best_group import comparisons_to_dicts
from seedbed.stats.answers.comparison_text import MetricStatistic, best_key, format_test, oriented_interval
from seedbed.stats.answers.finding import Finding, split_by_setting
from seedbed.stats.comparison import Comparison, compare_all_pairs, summarise_seeds
from seedbed.stats.format import format_interval, format_number, format_signed, join_words, short_setting_name
from seedbed.stats.groups import BalancedTable, balance_groups, group_by_level, is_numeric, largest_complete_table
from seedbed.stats.summary import RunCurves

SlopesBySeed: TypeAlias = Mapping[str, Mapping[int, float]]  # group → seed → change per doubling


def answer_which_scales_better(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """Compares the groups' slopes along the setting `over`."""
    over, statistic = question.over or "", MetricStatistic.from_question(question)
    setting_name = short_setting_name(over)
    levels = {name: group_by_level(group, over) for name, group in split_by_setting(question, runs).items()}
    if len(levels) < 2:
        return Finding(
            f"There is nothing to compare: {short_setting_name(question.between or '')} has fewer than two values here."
        )
    if not all(is_numeric(group) and all(level > 0 for level in group) for group in levels.values()):
        return Finding(f"There is no scaling variable: not all values of {setting_name} are numbers above 0.")
    tables = {name: balance_groups(group, statistic.compute) for name, group in levels.items()}
    is_log = _uses_log_scale(statistic, tables.values())
    slopes = {name: by_seed for name, table in tables.items() if (by_seed := _slopes_by_seed(table, is_log))}
    n = len({run.run.id for run in runs if run.is_included})
    notes = tuple(note for table in tables.values() for note in table.notes())
    if len(slopes) < 2:
        missing = join_words([name for name in tables if name not in slopes])
        return Finding(f"There is no answer yet: {missing} has no seed at two values of {setting_name}.", {}, n, notes)
    pairs = compare_all_pairs(slopes)
    numbers = {
        "per_doubling": {name: asdict(summarise_seeds(by_seed)) for name, by_seed in slopes.items()},
        "is_log2": is_log,
        "pairs": comparisons_to_dicts(pairs),
    }
    return Finding(_format_scaling(slopes, pairs, statistic, setting_name, is_log), numbers, n, notes)


def _uses_log_scale(statistic: MetricStatistic, tables: Iterable[BalancedTable]) -> bool:
    """Log scale is for losses above 0."""
    values = [value for table in tables for rows in table.rows.values() for value in rows.values()]
    is_loss = statistic.direction == "min" and statistic.record.better == "metric"
    return is_loss and all(value > 0 for value in values)


def _slopes_by_seed(table: BalancedTable, is_log: bool) -> dict[int, float]:
    """Each seed's change per doubling: least squares over log₂ of the setting, mean over the other settings."""
    levels, seeds = largest_complete_table({level: {seed for _, seed in rows} for level, rows in table.rows.items()})
    if len(levels) < 2:
        return {}
    x = np.log2(np.array(levels, dtype=float))
    slopes: dict[int, list[float]] = {}
    for key in table.rows[levels[0]]:
        if key[1] in seeds:
            y = np.array([table.rows[level][key] for level in levels])
            slope = float(np.polyfit(x, np.log2(y) if is_log else y, 1)[0])
            slopes.setdefault(key[1], []).append(round(slope, 12))  # equal values then have a slope of exactly 0
    return {seed: float(np.mean(values)) for seed, values in slopes.items()}


def _format_scaling(
    slopes: SlopesBySeed,
    pairs: Mapping[tuple[str, str], Comparison],
    statistic: MetricStatistic,
    setting_name: str,
    is_log: bool,
) -> str:
    means = {name: summarise_seeds(by_seed).mean for name, by_seed in slopes.items()}
    first = best_key(means, statistic.direction)
    second = best_key({name: mean for name, mean in means.items() if name != first}, statistic.direction)
    comparison = pairs.get((first, second)) or pairs[second, first]
    claim = f"{first} scales better with {setting_name} than {second}"
    if not comparison.is_significant:
        claim = f"whether {first} or {second} scales better with {setting_name} is inconclusive"
    slopes_text = join_words([f"{name} {_format_slope(mean, is_log)}" for name, mean in means.items()])
    return (
        f"{claim[0].upper()}{claim[1:]}: per doubling of {setting_name}, {statistic} changes by {slopes_text} "
        f"({_format_slope_difference(comparison, is_log)}; {format_test(comparison, len(pairs))})."
    )


def _format_slope(slope: float, is_log: bool) -> str:
    return f"×{format_number(2**slope)}" if is_log else format_signed(slope)


def _format_slope_difference(comparison: Comparison, is_log: bool) -> str:
    """The absolute difference of the slopes; for factors, their ratio."""
    low, high = oriented_interval(comparison)
    size = abs(comparison.effect)
    if not comparison.has_interval:
        return f"ratio {format_number(2**size)}" if is_log else f"difference {format_number(size)}"
    if is_log:
        return f"ratio {format_number(2**size)} {format_interval(2**low, 2**high)}"
    return f"difference {format_number(size)} {format_interval(low, high)}"
