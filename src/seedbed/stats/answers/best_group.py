"""Answers to "which is better": all pairs of groups of runs compared over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from seedbed.settings import Value
from seedbed.specs import QuestionSpec
from seedbed.stats.answers.comparison_text import MetricStatistic, format_pair, format_ranking, rank_verdict
from seedbed.stats.answers.finding import Finding
from seedbed.stats.comparison import Comparison, compare_all_pairs, summarise_seeds
from seedbed.stats.format import format_number, format_setting, join_words, short_setting_name
from seedbed.stats.groups import BalancedTable, balance_groups, group_by_setting
from seedbed.stats.metric_registry import MetricName
from seedbed.stats.run_statistics import substitute_metric
from seedbed.stats.summary import RunCurves


def answer_which_is_better(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """Compares the values of the setting `between`, or if there is none, two metrics of the same runs."""
    if question.between is None and question.and_metric is not None:
        statistic = MetricStatistic(question.metric, question.value, MetricName.parse(question.metric).quantity)
        # the second metric under the first one's name, so that one statistic applies to both groups
        substituted = [substitute_metric(run, question.and_metric, question.metric) for run in runs]
        return compare_groups({question.metric: runs, question.and_metric: substituted}, statistic)
    setting = question.between or ""
    return compare_setting_values(group_by_setting(runs, setting), setting, MetricStatistic.from_question(question))


def compare_setting_values(
    groups: Mapping[Value, Sequence[RunCurves]], setting: str, statistic: MetricStatistic
) -> Finding:
    """Compares the runs grouped by their value of one setting."""
    if len(groups) < 2:
        value = f" ({format_setting(setting, next(iter(groups)))})" if groups else ""
        return Finding(
            f"There is nothing to compare: {short_setting_name(setting)} has fewer than two values here{value}."
        )
    return compare_groups({format_setting(setting, value): runs for value, runs in groups.items()}, statistic)


def compare_groups(groups: Mapping[str, Sequence[RunCurves]], statistic: MetricStatistic) -> Finding:
    """Compares named groups of runs: a sentence about the best group, and all pairs in the numbers."""
    balanced = balance_groups(groups, statistic.compute)
    values = {name: by_seed for name in groups if (by_seed := balanced.mean_by_seed(name))}
    empty = [name for name in groups if name not in values]
    missing_note = f"no value for {join_words(empty)}" if empty else ""
    statistic_note = statistic.record.comparison_note([run for runs in groups.values() for run in runs])
    notes = (*balanced.notes(), *filter(None, (missing_note, statistic_note)))
    if len(values) < 2:
        return Finding(
            f"There is no answer yet: {_describe_missing(empty, statistic, len(groups))}.", {}, balanced.n_runs, notes
        )
    pairs = compare_all_pairs(values)
    sentence = format_pair(values, pairs, statistic) if len(values) == 2 else format_ranking(values, pairs, statistic)
    numbers = {
        "means": {name: asdict(summarise_seeds(by_seed)) for name, by_seed in values.items()},
        "pairs": comparisons_to_dicts(pairs),
        "settings": len(balanced.combinations),
    }
    sentence += _best_values_note(groups, statistic) + _averaging_note(balanced)
    return Finding(sentence, numbers, balanced.n_runs, notes, rank_verdict(values, pairs, statistic))


def comparisons_to_dicts(pairs: Mapping[tuple[str, str], Comparison]) -> list[dict[str, Any]]:
    return [{"first": one, "second": other, **asdict(comparison)} for (one, other), comparison in pairs.items()]


def _describe_missing(empty_groups: Sequence[str], statistic: MetricStatistic, n_groups: int) -> str:
    subject = "no group has a" if len(empty_groups) == n_groups else f"{join_words(empty_groups)} lacks a"
    return f"{subject} value of {statistic} with settings and seeds in common"


def _best_values_note(groups: Mapping[str, Sequence[RunCurves]], statistic: MetricStatistic) -> str:
    """The best values, if the statistic needs them: an early t_f is only as good as the value attained there."""
    if not statistic.record.needs_best:
        return ""
    best = balance_groups(groups, MetricStatistic(statistic.metric, "best").compute)
    means = {name: summarise_seeds(best.mean_by_seed(name)).mean for name in groups}
    values = join_words([f"{name} {format_number(mean)}" for name, mean in means.items()])
    return f" Earlier is not better in itself: the best values are {values}."


def _averaging_note(balanced: BalancedTable) -> str:
    n = len(balanced.combinations)
    return f" Each seed's value is its mean over {n} combinations of the other settings." if n > 1 else ""
