"""Which scales better: each group's change per doubling of a dial, one slope a seed, compared over seeds.

A loss is taken by its logarithm, so that its slope is a factor per doubling; an accuracy by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TypeAlias

import numpy as np

from seedbed.specs import QuestionSpec
from seedbed.stats.answers.best_group import comparisons_to_dicts
from seedbed.stats.answers.comparison_text import MetricStatistic, best_key, format_test
from seedbed.stats.answers.finding import Finding, split_by_setting
from seedbed.stats.comparison import Comparison, compare_all_pairs, summarise_seeds
from seedbed.stats.format import format_interval, format_number, format_signed, join_words, short_setting_name
from seedbed.stats.groups import BalancedTable, balance_groups, group_by_level, is_numeric, largest_complete_table
from seedbed.stats.summary import RunCurves

SlopesBySeed: TypeAlias = Mapping[str, Mapping[int, float]]  # group → seed → change per doubling


def answer_which_scales_better(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    over, subject = question.over or "", MetricStatistic.from_question(question)
    levels = {name: group_by_level(some, over) for name, some in split_by_setting(question, runs).items()}
    if len(levels) < 2:
        return Finding(
            f"There is nothing to compare: {short_setting_name(question.between or '')} has fewer than two values here."
        )
    if not all(is_numeric(some) and all(level > 0 for level in some) for some in levels.values()):
        return Finding(
            f"There is nothing to scale with: {short_setting_name(over)} has values that are not numbers above 0."
        )
    tables = {name: balance_groups(some, subject.compute) for name, some in levels.items()}
    is_factor = _uses_log_scale(subject, tables.values())
    slopes = {name: found for name, table in tables.items() if (found := _slopes_by_seed(table, is_factor))}
    n = len({run.run.id for run in runs if run.is_included})
    notes = tuple(note for table in tables.values() for note in table.notes())
    if len(slopes) < 2:
        lacking = join_words([name for name in tables if name not in slopes])
        return Finding(
            f"There is no answer yet: {lacking} has no seed at two values of {short_setting_name(over)}.", {}, n, notes
        )
    pairs = compare_all_pairs(slopes)
    numbers = {
        "per_doubling": {name: asdict(summarise_seeds(by_seed)) for name, by_seed in slopes.items()},
        "is_log2": is_factor,
        "pairs": comparisons_to_dicts(pairs),
    }
    return Finding(_format_scaling(slopes, pairs, subject, short_setting_name(over), is_factor), numbers, n, notes)


def _uses_log_scale(statistic: MetricStatistic, tables: Iterable[BalancedTable]) -> bool:
    """Losses above 0 go by factors."""
    values = [value for table in tables for rows in table.rows.values() for value in rows.values()]
    return (
        statistic.direction == "min" and statistic.statistic in ("best", "last") and all(value > 0 for value in values)
    )


def _slopes_by_seed(table: BalancedTable, is_log: bool) -> dict[int, float]:
    """Each seed's change per doubling: least squares along log₂ of the dial, mean over the settings."""
    levels, seeds = largest_complete_table({level: {seed for _, seed in rows} for level, rows in table.rows.items()})
    if len(levels) < 2:
        return {}
    x = np.log2(np.array(levels, dtype=float))
    found: dict[int, list[float]] = {}
    for key in table.rows[levels[0]]:
        if key[1] in seeds:
            y = np.array([table.rows[level][key] for level in levels])
            slope = float(np.polyfit(x, np.log2(y) if is_log else y, 1)[0])
            found.setdefault(key[1], []).append(round(slope, 12))  # equal values then have a slope of exactly 0
    return {seed: float(np.mean(values)) for seed, values in found.items()}


def _format_scaling(
    slopes: SlopesBySeed,
    pairs: Mapping[tuple[str, str], Comparison],
    statistic: MetricStatistic,
    setting_name: str,
    is_log: bool,
) -> str:
    means = {name: summarise_seeds(by_seed).mean for name, by_seed in slopes.items()}
    front = best_key(means, statistic.direction)
    second = best_key({name: mean for name, mean in means.items() if name != front}, statistic.direction)
    found = pairs.get((front, second)) or pairs[second, front]
    claim = f"{front} scales better with {setting_name} than {second}"
    if not found.is_significant:
        claim = f"whether {front} or {second} scales better with {setting_name} cannot be told"
    each = join_words([f"{name} {'×' if is_log else ''}{_format_slope(mean, is_log)}" for name, mean in means.items()])
    return (
        f"{claim[0].upper()}{claim[1:]}: per doubling of {setting_name}, {statistic} changes by {each} "
        f"({_format_slope_difference(found, is_log)}; {format_test(found, len(pairs))})."
    )


def _format_slope(slope: float, is_log: bool) -> str:
    return format_number(2**slope) if is_log else format_signed(slope)


def _format_slope_difference(comparison: Comparison, is_log: bool) -> str:
    """The difference of the slopes, the larger change first; of factors, their ratio."""
    low, high = (comparison.low, comparison.high) if comparison.effect >= 0 else (-comparison.high, -comparison.low)
    size = abs(comparison.effect)
    if comparison.n < 2 or not np.isfinite(low):
        return f"ratio {format_number(2**size)}" if is_log else f"difference {format_number(size)}"
    if is_log:
        return f"ratio {format_number(2**size)} {format_interval(2**low, 2**high)}"
    return f"difference {format_number(size)} {format_interval(low, high)}"
