"""Answers to "which scales better": each group's change per doubling of a setting, one slope per seed, compared.

A loss is fitted on log scale, so that its slope is a factor per doubling; an accuracy on linear scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

import numpy as np

from seedbed.specs import QuestionSpec
from seedbed.stats.answers.best_group import comparisons_to_dicts
from seedbed.stats.answers.comparison_text import (
    MetricStatistic,
    best_key,
    comparisons_with,
    format_test,
    oriented_interval,
)
from seedbed.stats.answers.finding import Finding, describe_units, split_by_setting, withhold_verdict
from seedbed.stats.comparison import Comparison, compare_all_pairs, summarise_seeds
from seedbed.stats.confounds import Confound, confounds_to_dicts, find_confounds
from seedbed.stats.decision import Verdict
from seedbed.stats.format import (
    format_interval,
    format_number,
    format_signed,
    format_value,
    join_words,
    short_setting_name,
)
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
    n = len({run.run.id for run in runs if run.is_complete})
    notes = tuple(note for table in tables.values() for note in table.notes())
    if len(slopes) < 2:
        missing = join_words([name for name in tables if name not in slopes])
        return Finding(f"There is no answer yet: {missing} has no seed at two values of {setting_name}.", {}, n, notes)
    pairs = compare_all_pairs(slopes)
    means_by_level = {name: _means_by_level(tables[name]) for name in slopes}
    confounds = _find_confounds({name: tables[name] for name in slopes}, [over, question.between or ""])
    numbers = {
        "per_doubling": {name: asdict(summarise_seeds(by_seed)) for name, by_seed in slopes.items()},
        "is_log2": is_log,
        "pairs": comparisons_to_dicts(pairs),
        "means": means_by_level,
        "confounds": confounds_to_dicts(confounds),
    }
    text = ScalingText(slopes, pairs, means_by_level, statistic, setting_name, is_log)
    units = describe_units((group for by_level in levels.values() for group in by_level.values()), statistic)
    withhold = (bool(confounds) or bool(units)) and not question.allow_confounds
    sentence = text.format_numbers() if withhold else text.format_sentence()
    return withhold_verdict(Finding(sentence, numbers, n, notes, text.verdict), confounds, withhold, units=units)


def _means_by_level(table: BalancedTable) -> dict[float, float]:
    """The mean over seeds at each level that has values."""
    return {level: float(np.mean(list(rows.values()))) for level, rows in table.rows.items() if rows}


def _find_confounds(tables: Mapping[str, BalancedTable], asked: Sequence[str]) -> tuple[Confound, ...]:
    """The settings that differ between the groups at the same level, or that change along the levels."""
    by_group = {
        name: {(level, one): config for level, configs in table.configs.items() for one, config in configs.items()}
        for name, table in tables.items()
    }
    along = {
        format_value(level): {(name, one): config for name, table in tables.items()
                              for one, config in table.configs.get(level, {}).items()}
        for table in tables.values() for level in table.configs
    }  # fmt: skip
    found = {confound.setting: confound for confound in find_confounds(along, asked)}
    return tuple((found | {one.setting: one for one in find_confounds(by_group, asked)}).values())


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


@dataclass(frozen=True)
class ScalingText:
    """The sentence about the groups' slopes. A steep slope wins only if it leads to the better values."""

    slopes: SlopesBySeed
    pairs: Mapping[tuple[str, str], Comparison]
    means_by_level: Mapping[str, Mapping[float, float]]
    statistic: MetricStatistic
    setting_name: str
    is_log: bool

    @property
    def ranked(self) -> tuple[str, str, Comparison]:
        """The group with the best slope, the next, and their comparison."""
        means = {name: summarise_seeds(by_seed).mean for name, by_seed in self.slopes.items()}
        first = best_key(means, self.statistic.direction)
        others = comparisons_with(first, self.pairs)
        second = best_key({name: means[name] for name in others}, self.statistic.direction)
        return first, second, others[second]

    @property
    def largest_values(self) -> tuple[float, dict[str, float]] | None:
        """The largest level that all groups have, and their means there."""
        common = set.intersection(*(set(means) for means in self.means_by_level.values()))
        if not common:
            return None
        return max(common), {name: means[max(common)] for name, means in self.means_by_level.items()}

    @property
    def is_catching_up(self) -> bool:
        """Is the group with the best slope still behind the next at the largest level?"""
        first, second, _ = self.ranked
        if self.largest_values is None or self.statistic.direction is None:
            return False
        _, means = self.largest_values
        ahead = best_key({name: means[name] for name in (second, first)}, self.statistic.direction)
        return ahead != first and means[first] != means[second]

    @property
    def verdict(self) -> Verdict:
        """Yes if the best slope differs from the next and leads to the better value at the largest level."""
        return "yes" if self.ranked[2].is_significant and not self.is_catching_up else "cannot tell"

    def format_sentence(self) -> str:
        first, second, comparison = self.ranked
        if self.verdict == "yes":
            return f"{first} scales better with {self.setting_name} than {second}: {self.format_numbers(False)}"
        claim = f"Cannot tell whether {first} or {second} scales better with {self.setting_name}: "
        if comparison.is_significant:
            claim += f"{first} changes faster but is still worse at the largest value, so it may only be catching up; "
        return claim + self.format_numbers(False)

    def format_numbers(self, at_start: bool = True) -> str:
        """The slopes, their difference and its test, and the values at the largest level."""
        *_, comparison = self.ranked
        slopes = [f"{name} {self._format_slope(by_seed)}" for name, by_seed in self.slopes.items()]
        text = (
            f"{'P' if at_start else 'p'}er doubling of {self.setting_name}, {self.statistic} changes by "
            f"{join_words(slopes)} ({self._format_difference(comparison)}; {format_test(comparison, len(self.pairs))})."
        )
        if self.largest_values is None:
            return text
        level, means = self.largest_values
        values = join_words([f"{name} has {format_number(mean)}" for name, mean in means.items()])
        return f"{text} At {format_value(level)}, the largest value, {values}."

    def _format_slope(self, by_seed: Mapping[int, float]) -> str:
        slope = summarise_seeds(by_seed).mean
        return f"×{format_number(2**slope)}" if self.is_log else format_signed(slope)

    def _format_difference(self, comparison: Comparison) -> str:
        """The absolute difference of the slopes; for factors, their ratio."""
        low, high = oriented_interval(comparison)
        size = abs(comparison.effect)
        if self.is_log:
            size, low, high = 2**size, 2**low, 2**high
        interval = f" {format_interval(low, high)}" if comparison.shows_interval else ""
        return f"{'ratio' if self.is_log else 'difference'} {format_number(size)}{interval}"
