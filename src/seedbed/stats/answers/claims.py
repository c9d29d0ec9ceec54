"""Answers to "does it hold": a metric is lower or higher than another of the same runs, or within bounds.

Yes and No need a 95 % interval of the paired difference that excludes 0, or a bound that every run or no run meets;
anything else is inconclusive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import inf

from seedbed.specs import QuestionSpec
from seedbed.stats.answers.comparison_text import MetricStatistic
from seedbed.stats.answers.finding import Finding
from seedbed.stats.answers.thresholds import meets_condition
from seedbed.stats.comparison import Comparison, SeedSummary, compare_by_seed, summarise_seeds
from seedbed.stats.format import format_interval, format_number, pluralise
from seedbed.stats.groups import balance_groups
from seedbed.stats.metric_registry import MetricName
from seedbed.stats.run_statistics import substitute_metric
from seedbed.stats.summary import RunCurves

_GROUP_PHRASES: Mapping[str, str] = {
    "layer": "in layer {}", "head": "in head {}", "from": "from {}", "token": "by {}", "word": "by {}",
    "text": "in text {}", "even": "under uniform attention", "tokens": "by a token on average",
    "words": "by a word on average",
}  # fmt: skip
_GROUP_KEY_ORDER = ("from", "token", "word", "tokens", "words", "even", "head", "layer", "text")


def answer_does_it_hold(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """Compares two metrics of the same runs, or checks one metric against bounds."""
    if question.and_metric is None:
        return _check_bounds(question, [run for run in runs if run.is_included])
    statistic = MetricStatistic(question.metric, question.value)
    other = [substitute_metric(run, question.and_metric, question.metric) for run in runs]
    balanced = balance_groups({"first": runs, "second": other}, statistic.compute)
    first, second = balanced.mean_by_seed("first"), balanced.mean_by_seed("second")
    notes = tuple(balanced.notes())
    if not first or not second:
        return Finding("There is no answer yet: no seed has both metrics.", {}, balanced.n_runs, notes)
    comparison = compare_by_seed(first, second)
    summaries = summarise_seeds(first), summarise_seeds(second)
    numbers = {"first": asdict(summaries[0]), "second": asdict(summaries[1]), "difference": asdict(comparison)}
    return Finding(_format_claim(question, summaries, comparison), numbers, balanced.n_runs, notes)


def _format_claim(question: QuestionSpec, summaries: tuple[SeedSummary, SeedSummary], comparison: Comparison) -> str:
    sign = -1 if question.expect == "lower" else 1
    n_agreeing = sum(sign * (summaries[0].values[seed] - summaries[1].values[seed]) > 0 for seed in comparison.seeds)
    low, high = sorted((sign * comparison.low, sign * comparison.high))
    verdict = "Yes" if low > 0 else "No" if high <= 0 else "Inconclusive"
    first, second = MetricName.parse(question.metric), MetricName.parse(question.and_metric or "")
    relation = "lower than" if comparison.effect < 0 else "higher than" if comparison.effect > 0 else "equal to"
    name = "" if first.quantity == second.quantity else f" {_metric_phrase(second)}"
    size = f", by {format_number(abs(comparison.effect))}{_format_effect_interval(comparison)}"
    return (
        f"{verdict}: {_metric_phrase(first)} is {format_mean_std(summaries[0])}{_group_phrase(first)}, "
        f"{relation}{name} {format_mean_std(summaries[1])}{_group_phrase(second)}{size if comparison.effect else ''}; "
        f"as claimed in {n_agreeing} of {pluralise(len(comparison.seeds), 'seed')}."
    )


def _check_bounds(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    statistic, metric = MetricStatistic(question.metric, question.value), MetricName.parse(question.metric)
    summary = summarise_seeds(balance_groups({"all": runs}, statistic.compute).mean_by_seed("all"))
    n_met = sum(meets_condition(question, run) for run in runs)
    verdict = "Yes" if n_met == len(runs) else "No" if not n_met else "Inconclusive"
    bounds = [f"at least {question.at_least:g}"] if question.at_least is not None else []
    bounds += [f"at most {question.at_most:g}"] if question.at_most is not None else []
    sentence = (
        f"{verdict}: {_metric_phrase(metric)} is {format_mean_std(summary)}{_group_phrase(metric)}, "
        f"{' and '.join(bounds)} in {n_met} of {pluralise(len(runs), 'run')}."
    )
    return Finding(sentence, {"value": asdict(summary), "met": n_met}, len(runs))


# ---- phrases ----


def format_mean_std(summary: SeedSummary) -> str:
    """`2.1 ± 0.3`; without a std for one seed."""
    return format_number(summary.mean) + (f" ± {format_number(summary.std)}" if summary.n > 1 else "")


def _format_effect_interval(comparison: Comparison) -> str:
    if comparison.low == -inf:
        return ""
    low, high = (comparison.low, comparison.high) if comparison.effect > 0 else (-comparison.high, -comparison.low)
    return f" {format_interval(low, high)}"


def _metric_phrase(metric: MetricName) -> str:
    return f"{metric.split} {metric.quantity.replace('_', ' ')}".strip()


def _group_phrase(metric: MetricName) -> str:
    """The group of a metric as a phrase.

    >>> _group_phrase(MetricName.parse("attention_on_operands[layer=2, from==]"))
    ' from = in layer 2'
    """
    parts = [part.partition("=") for part in metric.group.strip("[]").split(", ") if part]
    parts.sort(key=lambda part: _GROUP_KEY_ORDER.index(part[0]) if part[0] in _GROUP_KEY_ORDER else 0)
    return "".join(f" {_GROUP_PHRASES[name].format(value)}" if name in _GROUP_PHRASES else f" at {name}{sign}{value}"
                   for name, sign, value in parts)  # fmt: skip
