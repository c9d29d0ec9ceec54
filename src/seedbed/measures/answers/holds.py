"""Whether a claim about a number holds: that it is lower or higher than another of the same runs, or within bounds.

Yes and no need a 95 % interval of the paired difference that leaves 0 out, or a bound that every or no run keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import inf

from seedbed.measures.answers.found import Found
from seedbed.measures.answers.level import meets
from seedbed.measures.answers.said import Subject
from seedbed.measures.catalogue import Metric
from seedbed.measures.compare import Comparison, Spread, compare, over_seeds
from seedbed.measures.groups import balance
from seedbed.measures.summary import RunCurves
from seedbed.measures.values import renamed
from seedbed.measures.words import bracket, number, plural
from seedbed.shown import Question

_PLACES: Mapping[str, str] = {
    "layer": "in layer {}", "head": "in head {}", "from": "from {}", "token": "by {}", "word": "by {}",
    "text": "in text {}", "even": "if all were alike", "tokens": "by a token on average",
    "words": "by a word on average",
}  # fmt: skip
_ORDER = ("from", "token", "word", "tokens", "words", "even", "head", "layer", "text")


def does_it_hold(question: Question, runs: Sequence[RunCurves]) -> Found:
    if question.and_metric is None:
        return _within_bounds(question, [run for run in runs if run.counts])
    subject = Subject(question.metric, question.value)
    other = [renamed(run, question.and_metric, question.metric) for run in runs]
    balanced = balance({"first": runs, "second": other}, subject.number)
    first, second = balanced.by_seed("first"), balanced.by_seed("second")
    if not first or not second:
        return Found("There is no answer yet: no seed has both numbers.", {}, balanced.n, tuple(balanced.notes()))
    found = compare(first, second)
    spreads = over_seeds(first), over_seeds(second)
    numbers = {"first": asdict(spreads[0]), "second": asdict(spreads[1]), "difference": asdict(found)}
    return Found(_compared(question, spreads, found), numbers, balanced.n, tuple(balanced.notes()))


def _compared(question: Question, spreads: tuple[Spread, Spread], found: Comparison) -> str:
    sign = -1 if question.expect == "lower" else 1
    agreeing = sum(sign * (spreads[0].values[seed] - spreads[1].values[seed]) > 0 for seed in found.seeds)
    low, high = sorted((sign * found.low, sign * found.high))
    verdict = "Yes" if low > 0 else "No" if high <= 0 else "Cannot tell"
    is_as = question.expect if sign * found.effect > 0 else "higher" if question.expect == "lower" else "lower"
    one, other = Metric.parse(question.metric), Metric.parse(question.and_metric or "")
    second = "" if one.quantity == other.quantity else f" {_what(other)}"
    how = f"{is_as} than{second} {spread_in_words(spreads[1])}{_where(other)}" if found.effect else "the same as there"
    size = f", by {number(abs(found.effect))}{_interval(found)}" if found.effect else ""
    seeds = f"as claimed in {agreeing} of {plural(len(found.seeds), 'seed')}"
    return f"{verdict}: {_what(one)} is {spread_in_words(spreads[0])}{_where(one)}, {how}{size}; {seeds}."


def _within_bounds(question: Question, runs: Sequence[RunCurves]) -> Found:
    subject, metric = Subject(question.metric, question.value), Metric.parse(question.metric)
    balanced = balance({"all": runs}, subject.number)
    spread, met = over_seeds(balanced.by_seed("all")), sum(meets(question, run) for run in runs)
    verdict = "Yes" if met == len(runs) else "No" if not met else "Cannot tell"
    signs = [f"at least {question.at_least:g}"] if question.at_least is not None else []
    signs += [f"at most {question.at_most:g}"] if question.at_most is not None else []
    said = f"{verdict}: {_what(metric)} is {spread_in_words(spread)}{_where(metric)}, {' and '.join(signs)}"
    return Found(f"{said} in {met} of {plural(len(runs), 'run')}.", {"value": asdict(spread), "met": met}, len(runs))


# ---- in words ----


def spread_in_words(spread: Spread) -> str:
    """`2.1 ± 0.3`; one seed has no spread."""
    return number(spread.mean) + (f" ± {number(spread.std)}" if spread.n > 1 else "")


def _interval(found: Comparison) -> str:
    if found.low == -inf:
        return ""
    low, high = (found.low, found.high) if found.effect > 0 else (-found.high, -found.low)
    return f" {bracket(low, high)}"


def _what(metric: Metric) -> str:
    return f"{metric.split} {metric.quantity.replace('_', ' ')}".strip()


def _where(metric: Metric) -> str:
    """The group of a reading in words.

    >>> _where(Metric.parse("attention_on_operands[layer=2, from==]"))
    ' from = in layer 2'
    """
    parts = [part.partition("=") for part in metric.group.strip("[]").split(", ") if part]
    known = sorted(parts, key=lambda part: _ORDER.index(part[0]) if part[0] in _ORDER else 0)
    return "".join(f" {_PLACES[name].format(value)}" if name in _PLACES else f" at {name}{sign}{value}"
                   for name, sign, value in known)  # fmt: skip
