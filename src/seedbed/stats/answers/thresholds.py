"""The smallest or largest value of a dial where every seed meets a condition, for each setting of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TypeAlias

from seedbed.settings import Value
from seedbed.specs import QuestionSpec
from seedbed.stats.answers.comparison_text import MetricStatistic
from seedbed.stats.answers.finding import Finding, format_clause, join_sentences
from seedbed.stats.comparison import clopper_pearson
from seedbed.stats.format import format_interval, format_value, join_words, pluralise, short_setting_name
from seedbed.stats.groups import group_by_description, group_by_level, group_by_setting, varying_settings
from seedbed.stats.run_statistics import compute_statistic
from seedbed.stats.summary import RunCurves

LevelCounts: TypeAlias = Mapping[Value, tuple[int, int]]  # level → runs that meet the condition, runs that count


def answer_extreme_level(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    over = question.over or ""
    levels = group_by_level(runs, over)
    settings = group_by_description(
        (run for some in levels.values() for run in some), varying_settings(levels.values())
    )
    counts = {name: _count_by_level(question, group_by_setting(some, over)) for name, some in settings.items()}
    clauses = [format_clause(name, _format_level(question, found)) for name, found in counts.items()]
    numbers = {name or "all": _level_to_dict(question, found) for name, found in counts.items()}
    ids = {run.run.id for some in levels.values() for run in some if run.is_included}
    return Finding(join_sentences(clauses), numbers, len(ids))


def _count_by_level(question: QuestionSpec, levels: Mapping[Value, Sequence[RunCurves]]) -> LevelCounts:
    counted = {level: [run for run in runs if run.is_included] for level, runs in levels.items()}
    return {
        level: (sum(meets_condition(question, run) for run in runs), len(runs))
        for level, runs in counted.items()
        if runs
    }


def meets_condition(question: QuestionSpec, run: RunCurves) -> bool:
    """Whether a run meets the condition, or both of them."""
    first = _is_within(compute_statistic(run, question.metric, question.value), question.at_least, question.at_most)
    if not first or question.and_metric is None:
        return first
    second = compute_statistic(run, question.and_metric, question.value)
    return _is_within(second, question.and_at_least, question.and_at_most)


def _is_within(value: float, at_least: float | None, at_most: float | None) -> bool:
    """NaN is within nothing."""
    return (-inf if at_least is None else at_least) <= value <= (inf if at_most is None else at_most)


def _find_level(question: QuestionSpec, counts: LevelCounts) -> Value:
    """The level asked for; None when there is none."""
    good = [level for level, (met, tried) in counts.items() if met == tried]
    return None if not good else good[0] if question.ask == "smallest" else good[-1]


def _level_to_dict(question: QuestionSpec, counts: LevelCounts) -> dict[str, Value]:
    seeds = {format_value(level): {"met": met, "n": tried} for level, (met, tried) in counts.items()}
    return {"level": _find_level(question, counts), "seeds": seeds}


# ---- in words ----


def _format_level(question: QuestionSpec, counts: LevelCounts) -> str:
    word, wanted = short_setting_name(question.over or ""), _format_condition(question)
    if not counts:
        return f"no run along {word} has a record that counts"
    level = _find_level(question, counts)
    if level is None:
        return f"no {word} tried ({join_words([format_value(one) for one in counts])}) has {wanted} in every seed{_closest_level_note(counts)}"
    low, high = clopper_pearson(*counts[level])
    seeds = f"in {_format_seed_count(counts[level])}, 95 % interval of the share {format_interval(low, high)}"
    found = f"the {question.ask} {word} with {wanted} is {format_value(level)} ({seeds}{_next_level_note(question, counts, level)})"
    return found + _exceptions_note(question, counts, level)


def _format_condition(question: QuestionSpec) -> str:
    first = _format_bounds(question.metric, question, question.at_least, question.at_most)
    if question.and_metric is None:
        return first
    return f"{first} and {_format_bounds(question.and_metric, question, question.and_at_least, question.and_at_most)}"


def _format_bounds(metric: str, question: QuestionSpec, at_least: float | None, at_most: float | None) -> str:
    signs = [f"≥ {at_least:g}"] if at_least is not None else []
    signs += [f"≤ {at_most:g}"] if at_most is not None else []
    return f"{MetricStatistic(metric, question.value)} {' and '.join(signs)}"


def _format_seed_count(pair: tuple[int, int]) -> str:
    return f"{pair[0]} of {pluralise(pair[1], 'seed')}"


def _closest_level_note(counts: LevelCounts) -> str:
    most = max(counts, key=lambda level: counts[level][0] / counts[level][1])
    return f"; the closest is {format_value(most)}, in {_format_seed_count(counts[most])}" if counts[most][0] else ""


def _next_level_note(question: QuestionSpec, counts: LevelCounts, level: Value) -> str:
    """How the next level does, which bounds where the change lies."""
    levels = list(counts)
    place = levels.index(level) + (-1 if question.ask == "smallest" else 1)
    return (
        f"; at {format_value(levels[place])} in {_format_seed_count(counts[levels[place]])}"
        if 0 <= place < len(levels)
        else ""
    )


def _exceptions_note(question: QuestionSpec, counts: LevelCounts, level: Value) -> str:
    """Levels on the good side that fail all the same: then one number does not tell the story."""
    levels = list(counts)
    place = levels.index(level)
    good_side = levels[place + 1 :] if question.ask == "smallest" else levels[:place]
    failing = [
        f"{format_value(other)} ({_format_seed_count(counts[other])})"
        for other in good_side
        if counts[other][0] < counts[other][1]
    ]
    return f", but not at {join_words(failing)}" if failing else ""
