"""Answers to "which is better": all pairs of groups of runs compared over seeds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from seedbed.settings import Value
from seedbed.specs import QuestionSpec
from seedbed.stats.answers.comparison_text import (
    MetricStatistic,
    format_pair,
    format_ranking,
    format_without_verdict,
    rank_verdict,
)
from seedbed.stats.answers.finding import Finding, describe_units, withhold_verdict
from seedbed.stats.answers.times import compare_group_times
from seedbed.stats.comparison import Comparison, compare_all_pairs, summarise_seeds
from seedbed.stats.confounds import confounds_to_dicts, find_confounds
from seedbed.stats.curve_statistics import metric_direction
from seedbed.stats.format import format_number, format_setting, join_words, short_setting_name
from seedbed.stats.groups import BalancedTable, RunGroups, balance_groups, group_by_setting, is_numeric
from seedbed.stats.metric_registry import MetricName
from seedbed.stats.summary import RunCurves

UNPAIRED_NOTE: Final = (
    "the groups share too few seeds to be paired: the test presumes that the group with the larger spread is not skewed"
)
MAX_PAIRED_VALUES: Final = 4  # of a numeric setting; more are described by their trend and optimum


def answer_which_is_better(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """Compares the values of the setting `between`, or if there is none, two metrics of the same runs."""
    if question.between is None and question.and_metric is not None:
        return _compare_metrics(question.metric, question.and_metric, question.value, runs)
    setting = question.between or ""
    groups = group_by_setting(runs, setting)
    return compare_setting_values(groups, setting, MetricStatistic.from_question(question), question.allow_confounds)


def _compare_metrics(metric: str, other: str, value: str, runs: Sequence[RunCurves]) -> Finding:
    if metric_direction(metric) != metric_direction(other):
        return Finding(f"There is nothing to compare: lower is better for one of {metric} and {other} only.")
    statistic = MetricStatistic(metric, value, MetricName.parse(metric).quantity)
    return compare_groups({metric: runs, other: runs}, statistic, metrics={metric: metric, other: other})


def compare_setting_values(
    groups: Mapping[Value, Sequence[RunCurves]],
    setting: str,
    statistic: MetricStatistic,
    allow_confounds: bool = False,
) -> Finding:
    """Compares the runs grouped by their value of one setting."""
    if len(groups) < 2:
        value = f" ({format_setting(setting, next(iter(groups)))})" if groups else ""
        return Finding(
            f"There is nothing to compare: {short_setting_name(setting)} has fewer than two values here{value}."
        )
    named = {format_setting(setting, value): runs for value, runs in groups.items()}
    return compare_groups(named, statistic, [setting], allow_confounds)


def compare_groups(
    groups: Mapping[str, Sequence[RunCurves]],
    statistic: MetricStatistic,
    asked: Collection[str] = (),
    allow_confounds: bool = False,
    metrics: Mapping[str, str] | None = None,
) -> Finding:
    """Compares named groups of runs: a sentence about the best group, and all pairs in the numbers.

    `asked` are the settings that define the groups. Without any, as between two studies, a single setting in which the
    groups differ is taken to be the one. If the groups differ in other settings as well, there is no verdict unless
    `allow_confounds`. `metrics` gives each group a metric of its own, in place of the statistic's.
    """
    if metrics is None and (levels := _many_levels(groups, asked)):
        from seedbed.stats.answers.trend import describe_trends  # which compares values that are not numbers here

        return describe_trends({"": levels}, next(iter(asked)), statistic, allow_confounds)
    if statistic.record.threshold is not None:
        return compare_group_times(groups, statistic, asked, allow_confounds, metrics)
    return compare_in_pairs(groups, statistic, asked, allow_confounds, metrics)


def compare_in_pairs(
    groups: Mapping[str, Sequence[RunCurves]],
    statistic: MetricStatistic,
    asked: Collection[str] = (),
    allow_confounds: bool = False,
    metrics: Mapping[str, str] | None = None,
) -> Finding:
    """Compares the means of named groups in pairs, however many there are; arguments are those of `compare_groups`."""
    compute = {
        name: replace(statistic, metric=metrics[name] if metrics else statistic.metric).compute for name in groups
    }
    balanced = balance_groups(groups, compute)
    values = {name: by_seed for name in groups if (by_seed := balanced.mean_by_seed(name))}
    empty = [name for name in groups if name not in values]
    missing_note = f"no value for {join_words(empty)}" if empty else ""
    compared = list(metrics.values()) if metrics else [statistic.metric]
    statistic_note = statistic.record.comparison_note([run for runs in groups.values() for run in runs], compared)
    notes = (*balanced.notes(), *filter(None, (missing_note, statistic_note)))
    if len(values) < 2:
        return Finding(
            f"There is no answer yet: {_describe_missing(empty, statistic, len(groups))}.", {}, balanced.n_runs, notes
        )
    pairs = compare_all_pairs(values)
    if any(comparison.has_interval and not comparison.paired for comparison in pairs.values()):
        notes = (*notes, UNPAIRED_NOTE)
    configs = {name: balanced.configs[name] for name in values}
    confounds = find_confounds(configs, asked)
    has_subject = len(find_confounds(configs)) > len(confounds)  # the groups do differ in a setting asked about
    units = describe_units(groups.values(), statistic) if metrics is None else ""
    withhold = (len(confounds) > (0 if has_subject else 1) or bool(units)) and not allow_confounds
    format_sentence = format_without_verdict if withhold else format_pair if len(values) == 2 else format_ranking
    numbers = {
        "means": {name: asdict(summarise_seeds(by_seed)) for name, by_seed in values.items()},
        "pairs": comparisons_to_dicts(pairs),
        "settings": len(balanced.combinations),
        "confounds": confounds_to_dicts(confounds),
    }
    sentence = format_sentence(values, pairs, statistic)
    sentence += _best_values_note(groups, statistic, metrics) + _averaging_note(balanced)
    n_runs = balanced.n_runs // (len(metrics) if metrics else 1)
    finding = Finding(sentence, numbers, n_runs, notes, rank_verdict(values, pairs, statistic))
    return withhold_verdict(finding, confounds, withhold, has_subject, units)


def _many_levels(groups: Mapping[str, Sequence[RunCurves]], asked: Collection[str]) -> RunGroups:
    """The runs by their value of the setting asked about, if these are many numbers; else empty."""
    if len(groups) <= MAX_PAIRED_VALUES or len(asked) != 1:
        return {}
    levels = group_by_setting((run for runs in groups.values() for run in runs), next(iter(asked)))
    return levels if is_numeric(levels) and len(levels) == len(groups) else {}


def comparisons_to_dicts(pairs: Mapping[tuple[str, str], Comparison]) -> list[dict[str, Any]]:
    return [
        {"first": one, "second": other, **asdict(comparison), "verdict": comparison.verdict}
        for (one, other), comparison in pairs.items()
    ]


def _describe_missing(empty_groups: Sequence[str], statistic: MetricStatistic, n_groups: int) -> str:
    subject = "no group has a" if len(empty_groups) == n_groups else f"{join_words(empty_groups)} lacks a"
    return f"{subject} value of {statistic} with settings and seeds in common"


def _best_values_note(
    groups: Mapping[str, Sequence[RunCurves]], statistic: MetricStatistic, metrics: Mapping[str, str] | None
) -> str:
    """The best values, if the statistic needs them: an early t_f is only as good as the value attained there."""
    if not statistic.record.needs_best:
        return ""
    names = metrics or dict.fromkeys(groups, statistic.metric)
    best = balance_groups(groups, {name: MetricStatistic(names[name], "best").compute for name in groups})
    means = {name: summarise_seeds(best.mean_by_seed(name)).mean for name in groups}
    values = join_words([f"{name} {format_number(mean)}" for name, mean in means.items()])
    return f" Earlier is not better in itself: the best values are {values}."


def _averaging_note(balanced: BalancedTable) -> str:
    n = len(balanced.combinations)
    return f" Each seed's value is its mean over {n} combinations of the other settings." if n > 1 else ""
