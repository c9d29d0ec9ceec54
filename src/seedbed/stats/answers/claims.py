"""Whether a claim about a number holds: that it is lower or higher than another of the same runs, or within bounds.

Yes and no need a 95 % interval of the paired difference that leaves 0 out, or a bound that every or no run keeps.
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
    "text": "in text {}", "even": "if all were alike", "tokens": "by a token on average",
    "words": "by a word on average",
}  # fmt: skip
_GROUP_KEY_ORDER = ("from", "token", "word", "tokens", "words", "even", "head", "layer", "text")


def answer_does_it_hold(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    if question.and_metric is None:
        return _check_bounds(question, [run for run in runs if run.is_included])
    subject = MetricStatistic(question.metric, question.value)
    other = [substitute_metric(run, question.and_metric, question.metric) for run in runs]
    balanced = balance_groups({"first": runs, "second": other}, subject.compute)
    first, second = balanced.mean_by_seed("first"), balanced.mean_by_seed("second")
    if not first or not second:
        return Finding(
            "There is no answer yet: no seed has both numbers.", {}, balanced.n_runs, tuple(balanced.notes())
        )
    found = compare_by_seed(first, second)
    spreads = summarise_seeds(first), summarise_seeds(second)
    numbers = {"first": asdict(spreads[0]), "second": asdict(spreads[1]), "difference": asdict(found)}
    return Finding(_format_claim(question, spreads, found), numbers, balanced.n_runs, tuple(balanced.notes()))


def _format_claim(question: QuestionSpec, summaries: tuple[SeedSummary, SeedSummary], comparison: Comparison) -> str:
    sign = -1 if question.expect == "lower" else 1
    agreeing = sum(sign * (summaries[0].values[seed] - summaries[1].values[seed]) > 0 for seed in comparison.seeds)
    low, high = sorted((sign * comparison.low, sign * comparison.high))
    verdict = "Yes" if low > 0 else "No" if high <= 0 else "Cannot tell"
    is_as = question.expect if sign * comparison.effect > 0 else "higher" if question.expect == "lower" else "lower"
    one, other = MetricName.parse(question.metric), MetricName.parse(question.and_metric or "")
    second = "" if one.quantity == other.quantity else f" {_metric_phrase(other)}"
    how = (
        f"{is_as} than{second} {format_mean_std(summaries[1])}{_group_phrase(other)}"
        if comparison.effect
        else "the same as there"
    )
    size = (
        f", by {format_number(abs(comparison.effect))}{_format_effect_interval(comparison)}"
        if comparison.effect
        else ""
    )
    seeds = f"as claimed in {agreeing} of {pluralise(len(comparison.seeds), 'seed')}"
    return f"{verdict}: {_metric_phrase(one)} is {format_mean_std(summaries[0])}{_group_phrase(one)}, {how}{size}; {seeds}."


def _check_bounds(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    subject, metric = MetricStatistic(question.metric, question.value), MetricName.parse(question.metric)
    balanced = balance_groups({"all": runs}, subject.compute)
    spread, met = summarise_seeds(balanced.mean_by_seed("all")), sum(meets_condition(question, run) for run in runs)
    verdict = "Yes" if met == len(runs) else "No" if not met else "Cannot tell"
    signs = [f"at least {question.at_least:g}"] if question.at_least is not None else []
    signs += [f"at most {question.at_most:g}"] if question.at_most is not None else []
    said = f"{verdict}: {_metric_phrase(metric)} is {format_mean_std(spread)}{_group_phrase(metric)}, {' and '.join(signs)}"
    return Finding(
        f"{said} in {met} of {pluralise(len(runs), 'run')}.", {"value": asdict(spread), "met": met}, len(runs)
    )


# ---- in words ----


def format_mean_std(summary: SeedSummary) -> str:
    """`2.1 ± 0.3`; one seed has no spread."""
    return format_number(summary.mean) + (f" ± {format_number(summary.std)}" if summary.n > 1 else "")


def _format_effect_interval(comparison: Comparison) -> str:
    if comparison.low == -inf:
        return ""
    low, high = (comparison.low, comparison.high) if comparison.effect > 0 else (-comparison.high, -comparison.low)
    return f" {format_interval(low, high)}"


def _metric_phrase(metric: MetricName) -> str:
    return f"{metric.split} {metric.quantity.replace('_', ' ')}".strip()


def _group_phrase(metric: MetricName) -> str:
    """The group of a reading in words.

    >>> _where(Metric.parse("attention_on_operands[layer=2, from==]"))
    ' from = in layer 2'
    """
    parts = [part.partition("=") for part in metric.group.strip("[]").split(", ") if part]
    known = sorted(parts, key=lambda part: _GROUP_KEY_ORDER.index(part[0]) if part[0] in _GROUP_KEY_ORDER else 0)
    return "".join(f" {_GROUP_PHRASES[name].format(value)}" if name in _GROUP_PHRASES else f" at {name}{sign}{value}"
                   for name, sign, value in known)  # fmt: skip
