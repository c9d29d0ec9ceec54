"""Answers to "which is better": all pairs of groups of runs compared over seeds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from seedbed.format import capitalise, format_setting, join_words, setting_label, setting_noun
from seedbed.settings import Value
from seedbed.specs import QuestionSpec
from seedbed.stats.answers.finding import (
    Finding,
    MetricStatistic,
    best_key,
    describe_units,
    format_difference,
    format_test,
    test_definitions,
    withhold_verdict,
)
from seedbed.stats.answers.times import compare_group_times
from seedbed.stats.comparison import Comparison, compare_all_pairs, summarise_seeds
from seedbed.stats.confounds import confounds_to_dicts, find_confounds
from seedbed.stats.decision import Verdict
from seedbed.stats.groups import RunGroups, balance_groups, group_by_setting, is_numeric
from seedbed.stats.metric_registry import MetricName, metric_direction, metric_label
from seedbed.stats.summary import RunCurves

ValuesBySeed = Mapping[str, Mapping[int, float]]  # group → seed → value
PairComparisons = Mapping[tuple[str, str], Comparison]
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
        names = f"{metric_label(metric)} and {metric_label(other)}"
        return Finding(f"There is nothing to compare: lower is better for one of {names} only.")
    statistic = MetricStatistic(metric, value, metric_label(MetricName.parse(metric).quantity))
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
        return Finding(f"There is nothing to compare: {setting_label(setting)} has fewer than two values here{value}.")
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
    numbers = {
        "means": {name: asdict(summarise_seeds(by_seed)) for name, by_seed in values.items()},
        "pairs": comparisons_to_dicts(pairs),
        "settings": len(balanced.combinations),
        "confounds": confounds_to_dicts(confounds),
    }
    noun = setting_noun(next(iter(asked))) if len(asked) == 1 else "group"
    sentence = _format_comparison(values, pairs, statistic, metrics, withhold, noun)
    sentence += _best_values_note(groups, statistic, metrics)
    n_runs = balanced.n_runs // (len(metrics) if metrics else 1)
    definitions = (statistic.record.legend, *test_definitions(pairs.values()))
    notes = (*notes, *balanced.averaging_note())
    verdict = rank_verdict(values, pairs, statistic)
    finding = Finding(sentence, numbers, n_runs, notes, verdict, tuple(filter(None, definitions)))
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
    subject = (
        "no group has a value of" if len(empty_groups) == n_groups else f"{join_words(empty_groups)} lacks a value of"
    )
    return f"{subject} {statistic} for settings and seeds in common"


def _best_values_note(
    groups: Mapping[str, Sequence[RunCurves]], statistic: MetricStatistic, metrics: Mapping[str, str] | None
) -> str:
    """The best values, if the statistic needs them: an early t_f is only as good as the value attained there."""
    if not statistic.record.needs_best:
        return ""
    names = metrics or dict.fromkeys(groups, statistic.metric)
    subjects = {name: MetricStatistic(names[name], "best", statistic.name) for name in groups}
    best = balance_groups(groups, {name: subject.compute for name, subject in subjects.items()})
    means = [summarise_seeds(best.mean_by_seed(name)).mean for name in groups]
    first = next(iter(subjects.values()))
    labels = [metric_label(name) if metrics else name for name in groups]
    values = [f"{text} for {label}" for label, text in zip(labels, first.format(*means), strict=True)]
    return f" An earlier step is not better in itself: {first} is {join_words(values)}."


# ---- sentences ----


def _format_comparison(
    values: ValuesBySeed,
    pairs: PairComparisons,
    statistic: MetricStatistic,
    metrics: Mapping[str, str] | None,
    withhold: bool,
    noun: str,
) -> str:
    """The sentence; groups that are metrics are named in words."""
    labels = {name: metric_label(name) if metrics else name for name in values}
    values = {labels[name]: by_seed for name, by_seed in values.items()}
    pairs = {(labels[one], labels[other]): comparison for (one, other), comparison in pairs.items()}
    if withhold:
        return _format_numbers(values, pairs, statistic)
    if len(values) == 2:
        return _format_pair(values, pairs, statistic, bool(metrics))
    return _format_ranking(values, pairs, statistic, noun)


def _means(values: ValuesBySeed) -> dict[str, float]:
    return {name: summarise_seeds(by_seed).mean for name, by_seed in values.items()}


def _format_pair(
    values: ValuesBySeed, pairs: PairComparisons, statistic: MetricStatistic, are_metrics: bool = False
) -> str:
    """Two groups, or two metrics of the same runs: which is better, the effect, and the test."""
    [((one, other), comparison)] = pairs.items()
    seeds = {name: comparison.seeds or tuple(by_seed) for name, by_seed in values.items()}
    means = _means({name: {seed: by_seed[seed] for seed in seeds[name]} for name, by_seed in values.items()})
    first = best_key(means, statistic.direction)
    second = other if first == one else one
    apart = f"We cannot tell {first} and {second} apart in {statistic}"
    claim = statistic.record.format_claim(first, second, statistic.label, statistic.direction)
    if are_metrics and statistic.record.claim == "":
        lead, follow = (statistic.record.format_phrase(name) for name in (first, second))
        relation = "higher" if statistic.direction == "max" else "lower"
        apart, claim = f"We cannot tell {lead} and {follow} apart", f"{lead} is {relation} than {follow}"
    if comparison.smallest == comparison.largest == 0:
        size = format_test(comparison).partition(", p ")[0]
        return f"{apart}: it is {statistic.format(means[one])[0]} in every seed of both ({size})."
    texts = " vs ".join(statistic.format(means[first], means[second])) + " steps" * statistic.record.is_step
    details = f"{texts}; {format_difference(comparison, statistic)}, {format_test(comparison)}"
    return f"{capitalise(claim) if comparison.is_significant else apart} ({details})."


def _format_ranking(values: ValuesBySeed, pairs: PairComparisons, statistic: MetricStatistic, noun: str) -> str:
    """Three groups or more: the best, the next, and which ones differ significantly from the best."""
    means = _means(values)
    first = best_key(means, statistic.direction)
    if len(set(means.values())) == 1:
        [shared] = statistic.format(means[first])
        return f"We cannot tell {join_words(list(means))} apart in {statistic}: its mean is {shared} in all of them."
    others = comparisons_with(first, pairs)
    second = best_key({name: means[name] for name in others}, statistic.direction)
    best, next_best = statistic.format(means[first], means[second])
    next_text = f"next is {second} with {next_best}, {format_difference(others[second], statistic)}"
    details = f"{next_text}, {format_test(others[second], len(pairs))}"
    if rank_verdict(values, pairs, statistic) == "yes":
        return f"{capitalise(first)} has the {statistic.superlative()} ({best}; {details}). It differs from all others."
    claim = f"We cannot tell which {noun} has the {statistic.superlative()}"
    return f"{claim}: {first} has the {statistic.extremum} mean ({best}; {details}).{_format_others(others)}"


def _format_others(others: Mapping[str, Comparison]) -> str:
    different = [name for name, comparison in others.items() if comparison.is_significant]
    rest = [name for name, comparison in others.items() if not comparison.is_significant]
    return f" It differs from {join_words(different)}, not clearly from {join_words(rest)}." if different else ""


def _format_numbers(values: ValuesBySeed, pairs: PairComparisons, statistic: MetricStatistic) -> str:
    """The numbers alone, for groups that must not be ranked."""
    means = _means(values)
    texts = statistic.format(*means.values())
    listed = join_words([f"{text} for {name}" for name, text in zip(means, texts, strict=True)])
    test = ""
    if len(pairs) == 1:
        [comparison] = pairs.values()
        test = f" ({format_difference(comparison, statistic)}, {format_test(comparison)})"
    return f"{capitalise(str(statistic))} is {listed}{test}."


def rank_verdict(values: ValuesBySeed, pairs: PairComparisons, statistic: MetricStatistic) -> Verdict:
    """Yes if the best group differs from every other one."""
    others = comparisons_with(best_key(_means(values), statistic.direction), pairs)
    return "yes" if all(comparison.is_significant for comparison in others.values()) else "cannot tell"


def comparisons_with(name: str, pairs: PairComparisons) -> dict[str, Comparison]:
    """The comparisons of one group with every other one, by the name of the other."""
    return {other if one == name else one: pairs[one, other] for one, other in pairs if name in (one, other)}
