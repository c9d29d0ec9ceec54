"""The smallest or largest value of a setting at which every seed meets a condition, per combination of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TypeAlias

from seedbed.settings import Settings, Value
from seedbed.specs import QuestionSpec
from seedbed.stats.answers.comparison_text import MetricStatistic
from seedbed.stats.answers.finding import Finding, describe_units, format_clause, join_sentences, withhold_verdict
from seedbed.stats.comparison import clopper_pearson
from seedbed.stats.confounds import Confound, find_confounds
from seedbed.stats.decision import Verdict, combine_verdicts, decide_claim, seeds_needed
from seedbed.stats.format import format_interval, format_value, join_words, pluralise, short_setting_name
from seedbed.stats.groups import (
    group_by_description,
    group_by_level,
    group_by_setting,
    setting_value,
    varying_settings,
)
from seedbed.stats.run_statistics import compute_statistic
from seedbed.stats.summary import RunCurves

LevelCounts: TypeAlias = Mapping[Value, tuple[int, int]]  # level → runs that meet the condition, included runs


def answer_extreme_level(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """Finds the level for each combination of the other settings."""
    over = question.over or ""
    levels = group_by_level(runs, over)
    replayed = [run for group in levels.values() for run in group]  # along alpha, every run once per α
    combinations = group_by_description(replayed, varying_settings(levels.values()))
    counts = {name: _count_by_level(question, group_by_setting(group, over)) for name, group in combinations.items()}
    clauses = [format_clause(name, _format_level(question, by_level)) for name, by_level in counts.items()]
    numbers = {name or "all": _level_to_dict(question, by_level) for name, by_level in counts.items()}
    ids = {run.run.id for run in replayed if run.is_complete}
    verdict = combine_verdicts(_decide_level(question, by_level) for by_level in counts.values())
    finding = Finding(join_sentences(clauses), numbers, len(ids), (), verdict if ids else None)
    confounds = _confounds_along(over, combinations)
    units = describe_units(levels.values(), MetricStatistic.from_question(question))
    return withhold_verdict(finding, confounds, not question.allow_confounds, units=units)


def _confounds_along(over: str, combinations: Mapping[str, Sequence[RunCurves]]) -> tuple[Confound, ...]:
    """The settings that change along the levels as well."""
    by_level: dict[str, dict[str, Settings]] = {}
    for name, group in combinations.items():
        for run in group:
            if run.is_complete:
                by_level.setdefault(format_value(setting_value(run, over)), {})[name] = run.run.settings
    return find_confounds(by_level, [over])


def _count_by_level(question: QuestionSpec, levels: Mapping[Value, Sequence[RunCurves]]) -> LevelCounts:
    included = {level: [run for run in runs if run.is_complete] for level, runs in levels.items()}
    return {
        level: (sum(meets_condition(question, run) for run in runs), len(runs))
        for level, runs in included.items()
        if runs
    }


def meets_condition(question: QuestionSpec, run: RunCurves) -> bool:
    """Does a run meet the condition, or both conditions if there are two?"""
    first = is_within(compute_statistic(run, question.metric, question.value), question.at_least, question.at_most)
    if not first or question.and_metric is None:
        return first
    second = compute_statistic(run, question.and_metric, question.value)
    return is_within(second, question.and_at_least, question.and_at_most)


def is_within(value: float, at_least: float | None, at_most: float | None) -> bool:
    """Is the value within the bounds? False for NaN."""
    return (-inf if at_least is None else at_least) <= value <= (inf if at_most is None else at_most)


def _find_level(question: QuestionSpec, counts: LevelCounts) -> Value:
    """The smallest or largest level where all seeds meet the condition; None if there is none."""
    good = [level for level, (n_met, n) in counts.items() if n_met == n]
    return None if not good else good[0] if question.ask == "smallest" else good[-1]


def _decide_level(question: QuestionSpec, counts: LevelCounts) -> Verdict:
    """Yes if more than half of all seeds meet the condition at the level found, and at all levels beyond it.

    Levels are tested one after the other, from the side where the condition is easiest to meet, so that no correction
    is needed (fixed-sequence testing). No if, at every level, most seeds do not meet it.
    """
    level, levels = _find_level(question, counts), list(counts)
    verdicts = {one: _decide_share(*counts[one]) for one in levels}
    if level is None:
        return "no" if counts and set(verdicts.values()) == {"no"} else "cannot tell"
    index = levels.index(level)
    sequence = levels[index:] if question.ask == "smallest" else levels[: index + 1]
    return "yes" if all(verdicts[one] == "yes" for one in sequence) else "cannot tell"


def _decide_share(n_met: int, n: int) -> Verdict:
    low, high = clopper_pearson(n_met, n)
    return decide_claim(low - 0.5, high - 0.5, "higher")


def _level_to_dict(question: QuestionSpec, counts: LevelCounts) -> dict[str, Value]:
    seeds = {format_value(level): {"met": n_met, "n": n} for level, (n_met, n) in counts.items()}
    return {"level": _find_level(question, counts), "seeds": seeds, "verdict": _decide_level(question, counts)}


# ---- sentences ----


def _format_level(question: QuestionSpec, counts: LevelCounts) -> str:
    setting_name, condition = short_setting_name(question.over or ""), _format_condition(question)
    if not counts:
        return f"no run along {setting_name} has a usable evaluation"
    level = _find_level(question, counts)
    if level is None:
        tried = join_words([format_value(one) for one in counts])
        return f"no {setting_name} tried ({tried}) has {condition} in every seed{_closest_level_note(counts)}"
    interval = format_interval(*clopper_pearson(*counts[level]))
    seeds = f"in {_format_seed_count(counts[level])}, 95 % interval of the fraction {interval}"
    return (
        f"{_doubt(question, counts, level)}the {question.ask} {setting_name} with {condition} is {format_value(level)} "
        f"({seeds}{_next_level_note(question, counts, level)}){_exceptions_note(question, counts, level)}"
    )


def _doubt(question: QuestionSpec, counts: LevelCounts, level: Value) -> str:
    """What a level that is not decided is introduced by."""
    if _decide_level(question, counts) == "yes":
        return ""
    few = counts[level][1] < seeds_needed()
    return f"cannot tell{f', a test needs {seeds_needed()} seeds' if few else ''}: in these seeds, "


def _format_condition(question: QuestionSpec) -> str:
    first = _format_bounds(question.metric, question, question.at_least, question.at_most)
    if question.and_metric is None:
        return first
    return f"{first} and {_format_bounds(question.and_metric, question, question.and_at_least, question.and_at_most)}"


def _format_bounds(metric: str, question: QuestionSpec, at_least: float | None, at_most: float | None) -> str:
    bounds = [f"≥ {at_least:g}"] if at_least is not None else []
    bounds += [f"≤ {at_most:g}"] if at_most is not None else []
    return f"{MetricStatistic(metric, question.value)} {' and '.join(bounds)}"


def _format_seed_count(counts: tuple[int, int]) -> str:
    return f"{counts[0]} of {pluralise(counts[1], 'seed')}"


def _closest_level_note(counts: LevelCounts) -> str:
    closest = max(counts, key=lambda level: counts[level][0] / counts[level][1])
    if not counts[closest][0]:
        return ""
    return f"; the closest is {format_value(closest)}, in {_format_seed_count(counts[closest])}"


def _next_level_note(question: QuestionSpec, counts: LevelCounts, level: Value) -> str:
    """The result at the adjacent failing level, which brackets the true threshold."""
    levels = list(counts)
    index = levels.index(level) + (-1 if question.ask == "smallest" else 1)
    if not 0 <= index < len(levels):
        return ""
    return f"; at {format_value(levels[index])} in {_format_seed_count(counts[levels[index]])}"


def _exceptions_note(question: QuestionSpec, counts: LevelCounts, level: Value) -> str:
    """Levels beyond the threshold that fail nevertheless, so that the condition is not monotonic."""
    levels = list(counts)
    index = levels.index(level)
    good_side = levels[index + 1 :] if question.ask == "smallest" else levels[:index]
    failing = [
        f"{format_value(other)} ({_format_seed_count(counts[other])})"
        for other in good_side
        if counts[other][0] < counts[other][1]
    ]
    return f", but not at {join_words(failing)}" if failing else ""
