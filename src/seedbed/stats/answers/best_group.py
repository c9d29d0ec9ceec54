"""Which is better: groups of runs compared over seeds, every pair of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from seedbed.settings import Value
from seedbed.specs import QuestionSpec
from seedbed.stats.answers.comparison_text import MetricStatistic, format_pair, format_ranking
from seedbed.stats.answers.finding import Finding
from seedbed.stats.comparison import Comparison, compare_all_pairs, summarise_seeds
from seedbed.stats.format import format_number, format_setting, join_words, short_setting_name
from seedbed.stats.groups import BalancedTable, balance_groups, group_by_setting
from seedbed.stats.metric_registry import MetricName
from seedbed.stats.run_statistics import substitute_metric
from seedbed.stats.summary import RunCurves


def answer_which_is_better(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """The values of a dial, or without one, two metrics of the same runs."""
    if question.between is None and question.and_metric is not None:
        subject = MetricStatistic(question.metric, question.value, MetricName.parse(question.metric).quantity)
        as_first = [substitute_metric(run, question.and_metric, question.metric) for run in runs]
        return compare_groups({question.metric: runs, question.and_metric: as_first}, subject)
    return compare_setting_values(
        group_by_setting(runs, question.between or ""), question.between or "", MetricStatistic.from_question(question)
    )


def compare_setting_values(
    groups: Mapping[Value, Sequence[RunCurves]], setting: str, statistic: MetricStatistic
) -> Finding:
    """The groups of one dial's values."""
    if len(groups) < 2:
        value = f" ({format_setting(setting, next(iter(groups)))})" if groups else ""
        return Finding(
            f"There is nothing to compare: {short_setting_name(setting)} has fewer than two values here{value}."
        )
    return compare_groups({format_setting(setting, value): runs for value, runs in groups.items()}, statistic)


def compare_groups(groups: Mapping[str, Sequence[RunCurves]], statistic: MetricStatistic) -> Finding:
    """Any named groups of runs: the sentence about the best of them, and every pair in the numbers."""
    balanced = balance_groups(groups, statistic.compute)
    values = {name: by_seed for name in groups if (by_seed := balanced.mean_by_seed(name))}
    empty = [name for name in groups if name not in values]
    notes = (
        *balanced.notes(),
        *([f"no number for {join_words(empty)}"] if empty else []),
        *_shared_time_note(statistic, groups),
    )
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
    return Finding(
        sentence + _best_values_note(groups, statistic) + _averaging_note(balanced), numbers, balanced.n_runs, notes
    )


def comparisons_to_dicts(pairs: Mapping[tuple[str, str], Comparison]) -> list[dict[str, Any]]:
    return [{"first": one, "second": other, **asdict(found)} for (one, other), found in pairs.items()]


def _describe_missing(empty_groups: Sequence[str], statistic: MetricStatistic, n_groups: int) -> str:
    who = "no group" if len(empty_groups) == n_groups else join_words(empty_groups)
    return (
        f"{who} {'has a' if who == 'no group' else 'lacks a'} number for {statistic}, with settings and seeds in common"
    )


def _shared_time_note(statistic: MetricStatistic, groups: Mapping[str, Sequence[RunCurves]]) -> tuple[str, ...]:
    told = "runs of one pack share its time equally, so their spread says little of its noise"
    alone = all(run.run.settings.train.exclusive for runs in groups.values() for run in runs)
    return (told,) if statistic.statistic == "seconds" and not alone else ()


def _best_values_note(groups: Mapping[str, Sequence[RunCurves]], statistic: MetricStatistic) -> str:
    """An early step is worth what is attained there, so that is said too."""
    if statistic.statistic != "t_f":
        return ""
    best = balance_groups(groups, MetricStatistic(statistic.metric, "best").compute)
    means = {name: summarise_seeds(best.mean_by_seed(name)).mean for name in groups}
    said = join_words([f"{name} {format_number(mean)}" for name, mean in means.items()])
    return f" Early is not better in itself: the best values are {said}."


def _averaging_note(balanced: BalancedTable) -> str:
    n = len(balanced.combinations)
    return f" Each seed's number is its mean over {n} settings of the other dials." if n > 1 else ""
