"""The smallest or largest value of a dial where every seed meets a condition, for each setting of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TypeAlias

from seedbed.measures.answers.found import Found, clause, in_sentences
from seedbed.measures.answers.said import Subject
from seedbed.measures.compare import share_interval
from seedbed.measures.groups import by_setting, group_by, inner_dials, levels_of
from seedbed.measures.summary import RunCurves
from seedbed.measures.values import run_value
from seedbed.measures.words import bracket, dial_word, listed, plain, plural
from seedbed.settings import Value
from seedbed.shown import Question

Counts: TypeAlias = Mapping[Value, tuple[int, int]]  # level → runs that meet the condition, runs that count


def extreme_level(question: Question, runs: Sequence[RunCurves]) -> Found:
    over = question.over or ""
    levels = levels_of(runs, over)
    settings = by_setting((run for some in levels.values() for run in some), inner_dials(levels.values()))
    counts = {name: _count(question, group_by(some, over)) for name, some in settings.items()}
    clauses = [clause(name, _in_words(question, found)) for name, found in counts.items()]
    numbers = {name or "all": _as_numbers(question, found) for name, found in counts.items()}
    ids = {run.run.id for some in levels.values() for run in some if run.counts}
    return Found(in_sentences(clauses), numbers, len(ids))


def _count(question: Question, levels: Mapping[Value, Sequence[RunCurves]]) -> Counts:
    counted = {level: [run for run in runs if run.counts] for level, runs in levels.items()}
    return {level: (sum(meets(question, run) for run in runs), len(runs)) for level, runs in counted.items() if runs}


def meets(question: Question, run: RunCurves) -> bool:
    """Whether a run meets the condition, or both of them."""
    first = _within(run_value(run, question.metric, question.value), question.at_least, question.at_most)
    if not first or question.and_metric is None:
        return first
    second = run_value(run, question.and_metric, question.value)
    return _within(second, question.and_at_least, question.and_at_most)


def _within(value: float, at_least: float | None, at_most: float | None) -> bool:
    """NaN is within nothing."""
    return (-inf if at_least is None else at_least) <= value <= (inf if at_most is None else at_most)


def _level(question: Question, counts: Counts) -> Value:
    """The level asked for; None when there is none."""
    good = [level for level, (met, tried) in counts.items() if met == tried]
    return None if not good else good[0] if question.ask == "smallest" else good[-1]


def _as_numbers(question: Question, counts: Counts) -> dict[str, Value]:
    seeds = {plain(level): {"met": met, "n": tried} for level, (met, tried) in counts.items()}
    return {"level": _level(question, counts), "seeds": seeds}


# ---- in words ----


def _in_words(question: Question, counts: Counts) -> str:
    word, wanted = dial_word(question.over or ""), _condition(question)
    if not counts:
        return f"no run along {word} has a record that counts"
    level = _level(question, counts)
    if level is None:
        return (
            f"no {word} tried ({listed([plain(one) for one in counts])}) has {wanted} in every seed{_closest(counts)}"
        )
    low, high = share_interval(*counts[level])
    seeds = f"in {_of(counts[level])}, 95 % interval of the share {bracket(low, high)}"
    found = f"the {question.ask} {word} with {wanted} is {plain(level)} ({seeds}{_beyond(question, counts, level)})"
    return found + _exceptions(question, counts, level)


def _condition(question: Question) -> str:
    first = _bounds(question.metric, question, question.at_least, question.at_most)
    if question.and_metric is None:
        return first
    return f"{first} and {_bounds(question.and_metric, question, question.and_at_least, question.and_at_most)}"


def _bounds(metric: str, question: Question, at_least: float | None, at_most: float | None) -> str:
    signs = [f"≥ {at_least:g}"] if at_least is not None else []
    signs += [f"≤ {at_most:g}"] if at_most is not None else []
    return f"{Subject(metric, question.value)} {' and '.join(signs)}"


def _of(pair: tuple[int, int]) -> str:
    return f"{pair[0]} of {plural(pair[1], 'seed')}"


def _closest(counts: Counts) -> str:
    most = max(counts, key=lambda level: counts[level][0] / counts[level][1])
    return f"; the closest is {plain(most)}, in {_of(counts[most])}" if counts[most][0] else ""


def _beyond(question: Question, counts: Counts, level: Value) -> str:
    """How the next level does, which bounds where the change lies."""
    levels = list(counts)
    place = levels.index(level) + (-1 if question.ask == "smallest" else 1)
    return f"; at {plain(levels[place])} in {_of(counts[levels[place]])}" if 0 <= place < len(levels) else ""


def _exceptions(question: Question, counts: Counts, level: Value) -> str:
    """Levels on the good side that fail all the same: then one number does not tell the story."""
    levels = list(counts)
    place = levels.index(level)
    good_side = levels[place + 1 :] if question.ask == "smallest" else levels[:place]
    failing = [f"{plain(other)} ({_of(counts[other])})" for other in good_side if counts[other][0] < counts[other][1]]
    return f", but not at {listed(failing)}" if failing else ""
