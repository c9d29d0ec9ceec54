"""Answers to "does it hold": a metric is lower, higher or the same as another one of the same runs, or within bounds.

A claim about a difference is decided by its interval (`decision.decide_claim`). A bound holds if more than half of all
seeds would meet it, by the sign test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import isfinite

from seedbed.specs import QuestionSpec
from seedbed.stats.answers.best_group import compare_in_pairs
from seedbed.stats.answers.comparison_text import MetricStatistic, format_effect, oriented_interval
from seedbed.stats.answers.finding import Finding, format_verdict
from seedbed.stats.answers.thresholds import is_within
from seedbed.stats.comparison import (
    Comparison,
    SeedSummary,
    clopper_pearson,
    compare_by_seed,
    has_width,
    summarise_seeds,
)
from seedbed.stats.decision import Verdict, combine_verdicts, decide_claim, seeds_needed
from seedbed.stats.format import format_interval, format_number, format_setting, join_words, pluralise
from seedbed.stats.groups import balance_groups, group_by_setting
from seedbed.stats.metric_registry import MetricName
from seedbed.stats.summary import RunCurves

_GROUP_PHRASES: Mapping[str, str] = {
    "layer": "in layer {}", "head": "in head {}", "from": "from {}", "token": "by {}", "word": "by {}",
    "text": "in text {}", "even": "under uniform attention", "tokens": "by a token on average",
    "words": "by a word on average",
}  # fmt: skip
_GROUP_KEY_ORDER = ("from", "token", "word", "tokens", "words", "even", "head", "layer", "text")


def answer_does_it_hold(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """Compares two metrics of the same runs, or the values of a setting, or checks one metric against bounds."""
    if question.and_metric is not None:
        return _compare_metrics(question, question.and_metric, runs)
    if question.between is not None and question.expect == "same":
        return _compare_values(question, question.between, runs)
    return _check_bounds(question, runs)


def _compare_metrics(question: QuestionSpec, other: str, runs: Sequence[RunCurves]) -> Finding:
    compute = {"first": MetricStatistic(question.metric, question.value).compute}
    compute["second"] = MetricStatistic(other, question.value).compute
    balanced = balance_groups({"first": runs, "second": runs}, compute)
    by_seed = [balanced.mean_by_seed(name) for name in compute]
    common = by_seed[0].keys() & by_seed[1].keys()
    first, second = ({seed: values[seed] for seed in common} for values in by_seed)
    notes = tuple(balanced.notes())
    if not common:
        return Finding("There is no answer yet: no seed has both metrics.", {}, balanced.n_runs, notes)
    comparison = compare_by_seed(first, second)
    summaries = summarise_seeds(first), summarise_seeds(second)
    numbers = {"first": asdict(summaries[0]), "second": asdict(summaries[1]), "difference": asdict(comparison)}
    verdict = decide_claim(comparison.low, comparison.high, question.expect, question.margin or 0.0)
    sentence = _format_claim(question, summaries, comparison, verdict)
    return Finding(sentence, numbers, len(balanced.rows["first"]), notes, verdict)


def _format_claim(
    question: QuestionSpec, summaries: tuple[SeedSummary, SeedSummary], comparison: Comparison, verdict: Verdict
) -> str:
    differences = [summaries[0].values[seed] - summaries[1].values[seed] for seed in comparison.seeds]
    n_agreeing = sum(_is_as_claimed(question, difference) for difference in differences)
    first, second = MetricName.parse(question.metric), MetricName.parse(question.and_metric or "")
    relation = "lower than" if comparison.effect < 0 else "higher than" if comparison.effect > 0 else "equal to"
    name = "" if (first.split, first.quantity) == (second.split, second.quantity) else f" {_metric_phrase(second)}"
    size = f", by {format_effect(comparison)}{_format_range(comparison)}" if comparison.effect else ""
    within = f"; the margin is {format_number(question.margin)}" if question.margin else ""
    needed = "" if comparison.has_interval else f"; a test needs {seeds_needed()} seeds"
    return (
        f"{format_verdict(verdict)}: {_metric_phrase(first)} is {format_mean_std(summaries[0])}{_group_phrase(first)}, "
        f"{relation}{name} {format_mean_std(summaries[1])}{_group_phrase(second)}{size}; "
        f"as claimed in {n_agreeing} of {pluralise(len(comparison.seeds), 'seed')}{within}{needed}."
    )


def _format_range(comparison: Comparison) -> str:
    """The range of the single differences, where there are too few for an interval."""
    if comparison.has_interval or comparison.n < 2:
        return ""
    low, high = oriented_interval(comparison)
    return f" ({format_number(low)} to {format_number(high)} in single seeds)"


def _is_as_claimed(question: QuestionSpec, difference: float) -> bool:
    if question.expect == "same":
        return abs(difference) <= (question.margin or 0.0)
    return difference < 0 if question.expect == "lower" else difference > 0


def _compare_values(question: QuestionSpec, between: str, runs: Sequence[RunCurves]) -> Finding:
    """Is the metric the same, within the margin, for all values of a setting?"""
    statistic, margin = MetricStatistic.from_question(question), question.margin or 0.0
    groups = {format_setting(between, value): group for value, group in group_by_setting(runs, between).items()}
    found = compare_in_pairs(groups, statistic, [between], question.allow_confounds)
    if found.verdict in (None, "no verdict"):
        return found
    pairs = found.numbers["pairs"]
    verdicts = [decide_claim(pair["low"], pair["high"], "same", margin) for pair in pairs]
    verdict: Verdict = "no" if "no" in verdicts else combine_verdicts(verdicts)
    widest = max(pairs, key=lambda pair: max(abs(pair["low"]), abs(pair["high"])))
    means = join_words([f"{name} {format_number(one['mean'])}" for name, one in found.numbers["means"].items()])
    has_interval = isfinite(widest["low"])
    is_shown = has_interval and has_width(widest["low"], widest["high"])
    interval = f" {format_interval(widest['low'], widest['high'])}" if is_shown else ""
    needed = "" if has_interval else f"; a test needs {seeds_needed(len(pairs), widest['paired'])} seeds"
    sentence = (
        f"{format_verdict(verdict)}: {statistic} is {means}; the largest difference is "
        f"{format_number(widest['effect'])}{interval} ({widest['first']} − {widest['second']}), "
        f"the margin {format_number(margin)}{needed}."
    )
    return replace(found, sentence=sentence, verdict=verdict)


def _check_bounds(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """Are the bounds met by more than half of all seeds? A sign test, which holds for values of any distribution."""
    statistic, metric = MetricStatistic.from_question(question), MetricName.parse(question.metric)
    balanced = balance_groups({"all": runs}, statistic.compute)
    summary = summarise_seeds(balanced.mean_by_seed("all"))
    if not summary.n:
        return Finding(f"There is no answer yet: no complete run has a value of {statistic}.", {}, 0)
    n_met = sum(is_within(value, question.at_least, question.at_most) for value in summary.values.values())
    low, high = clopper_pearson(n_met, summary.n)  # excludes 1/2 exactly when the two-sided sign test rejects
    enough = summary.n >= seeds_needed()
    verdict = decide_claim(low - 0.5, high - 0.5, "higher") if enough else "cannot tell"
    bounds = [f"at least {question.at_least:g}"] if question.at_least is not None else []
    bounds += [f"at most {question.at_most:g}"] if question.at_most is not None else []
    share = f" (95 % interval of the fraction {format_interval(low, high)})" if enough else ""
    needed = "" if enough else f"; a test needs {seeds_needed()} seeds"
    sentence = (
        f"{format_verdict(verdict)}: {_metric_phrase(metric)} is {format_mean_std(summary)}{_group_phrase(metric)}, "
        f"{' and '.join(bounds)} in {n_met} of {pluralise(summary.n, 'seed')}{share}{needed}."
    )
    numbers = {"value": asdict(summary), "met": n_met, "n_seeds": summary.n}
    return Finding(sentence, numbers, balanced.n_runs, tuple(balanced.notes()), verdict)


# ---- phrases ----


def format_mean_std(summary: SeedSummary) -> str:
    """`2.1 ± 0.3`; without a std for one seed."""
    return format_number(summary.mean) + (f" ± {format_number(summary.std)}" if summary.n > 1 else "")


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
