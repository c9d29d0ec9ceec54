"""Answers to "does it hold", "smallest" and "largest": claims about a metric, and where along a setting one holds.

A claim about a difference is decided by its interval (`decision.decide_claim`). A bound holds if more than half of all
seeds would meet it, by the sign test; along a setting, the level is the first or last that every seed meets it at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import inf, isfinite
from typing import TypeAlias

from seedbed.format import (
    format_number,
    format_setting,
    format_value,
    join_words,
    pluralise,
    setting_noun,
    setting_with_article,
)
from seedbed.settings import Settings, Value
from seedbed.specs import QuestionSpec
from seedbed.stats.answers.best_group import compare_in_pairs
from seedbed.stats.answers.finding import (
    FRACTION,
    PAIRED_TEST,
    SPREAD,
    Finding,
    MetricStatistic,
    describe_units,
    format_bounds,
    format_difference,
    join_clauses,
    withhold_verdict,
)
from seedbed.stats.comparison import (
    Comparison,
    SeedSummary,
    clopper_pearson,
    compare_by_seed,
    has_width,
    summarise_seeds,
)
from seedbed.stats.confounds import Confound, find_confounds
from seedbed.stats.decision import Verdict, combine_verdicts, decide_claim, seeds_needed
from seedbed.stats.groups import (
    balance_groups,
    group_by_description,
    group_by_level,
    group_by_setting,
    setting_value,
    varying_settings,
)
from seedbed.stats.metric_registry import MetricName, metric_label
from seedbed.stats.run_statistics import compute_statistic
from seedbed.stats.summary import RunCurves

LevelCounts: TypeAlias = Mapping[Value, tuple[int, int]]  # level → runs that meet the condition, included runs
_GROUP_PHRASES: Mapping[str, str] = {
    "layer": "in layer {}", "head": "in head {}", "from": "from {}", "token": "by {}", "word": "by {}",
    "text": "in text {}", "even": "under uniform attention", "tokens": "by a token on average",
    "words": "by a word on average", "length": "with a context of {} tokens",
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
    statistic = MetricStatistic.from_question(question)
    compute = {"first": statistic.compute, "second": MetricStatistic(other, question.value).compute}
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
    notes = (*notes, *balanced.averaging_note())
    return Finding(sentence, numbers, len(balanced.rows["first"]), notes, verdict, _definitions(comparison, statistic))


def _definitions(comparison: Comparison, statistic: MetricStatistic) -> tuple[str, ...]:
    legend = statistic.record.legend if statistic.statistic != "best" else ""
    shown = (legend, PAIRED_TEST if comparison.has_interval else "", SPREAD if comparison.n > 1 else "")
    return tuple(filter(None, shown))


def _format_claim(
    question: QuestionSpec, summaries: tuple[SeedSummary, SeedSummary], comparison: Comparison, verdict: Verdict
) -> str:
    statistic = MetricStatistic.from_question(question)
    differences = [summaries[0].values[seed] - summaries[1].values[seed] for seed in comparison.seeds]
    n_agreeing = sum(_is_as_claimed(question, difference) for difference in differences)
    first, second = MetricName.parse(question.metric), MetricName.parse(question.and_metric or "")
    is_same_quantity = (first.split, first.quantity) == (second.split, second.quantity)
    subject = f"{_metric_phrase(first, statistic)}{_group_phrase(first)}"
    other = f"{'' if is_same_quantity else _metric_phrase(second, statistic)}{_group_phrase(second)}".strip()
    relation = f"{question.expect} than"
    if question.expect == "same":
        relation = f"within {format_number(question.margin)} of" if question.margin else "the same as"
        other = f"that {other}" if is_same_quantity else other
    values = " vs ".join(
        statistic.format(one.mean)[0]
        if "even" in metric.group.strip("[]").split(", ")
        else statistic.format_spread(one)
        for metric, one in zip((first, second), summaries, strict=True)
    )  # attention that is uniform has no spread
    size = pluralise(len(comparison.seeds), "seed")
    details = [values, f"{format_difference(comparison, statistic, signed=True)}, as claimed in {n_agreeing} of {size}"]
    details += [] if comparison.has_interval else [f"at least {seeds_needed()} are needed"]
    return f"{_begin(verdict, subject, f'{relation} {other}')} ({'; '.join(details)})."


def _begin(verdict: Verdict, subject: str, claim: str) -> str:
    """`Yes: A is lower than B`, `No: A is not lower than B`, or `We cannot tell whether A is lower than B`."""
    if verdict == "cannot tell":
        return f"We cannot tell whether {subject} is {claim}"
    return f"Yes: {subject} is {claim}" if verdict == "yes" else f"No: {subject} is not {claim}"


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
    centres = {name: one["mean"] for name, one in found.numbers["means"].items()}
    texts = zip(centres, statistic.format(*centres.values()), strict=True)
    has_interval = isfinite(widest["low"])
    effect, low, high = (statistic.format(widest[name])[0] for name in ("effect", "low", "high"))
    is_shown = has_interval and has_width(widest["low"], widest["high"])
    interval = f", 95 % CI {low} to {high}" if is_shown else ""
    needed = "" if has_interval else f"; at least {seeds_needed(len(pairs), widest['paired'])} seeds are needed"
    claim = f"the same for {join_words(list(groups))}, within ±{format_number(margin)}"
    which = "difference" if len(pairs) == 1 else "largest difference"
    sentence = (
        f"{_begin(verdict, str(statistic), claim)} ({', '.join(f'{name} {text}' for name, text in texts)}; {which} "
        f"{effect}{interval}, {widest['first']} − {widest['second']}{needed})."
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
    verdict, enough = _decide_share(n_met, summary.n), summary.n >= seeds_needed()
    share = f", {_format_fraction(n_met, summary.n)}" if enough else ""
    needed = "" if enough else f"; at least {seeds_needed()} are needed"
    subject = f"{_metric_phrase(metric, statistic)}{_group_phrase(metric)}"
    claim = f"{format_bounds(question.at_least, question.at_most)} in most runs"
    sentence = (
        f"{_begin(verdict, subject, claim)} (in {n_met} of "
        f"{pluralise(summary.n, 'seed')}{share}; {'mean ' if summary.n > 1 else ''}{statistic.format_spread(summary)}"
        f"{needed})."
    )
    numbers = {"value": asdict(summary), "met": n_met, "n_seeds": summary.n}
    definitions = (*([FRACTION] if enough else []), *([SPREAD] if summary.n > 1 else []))
    return Finding(sentence, numbers, balanced.n_runs, tuple(balanced.notes()), verdict, definitions)


def _format_fraction(n_met: int, n: int) -> str:
    low, high = clopper_pearson(n_met, n)
    return f"95 % CI {100 * low:.0f} to {100 * high:.0f} % of seeds"


def _metric_phrase(metric: MetricName, statistic: MetricStatistic) -> str:
    """The metric without its group, in words; its statistic only if it is not the best value."""
    label = metric_label(f"{metric.split}/{metric.quantity}" if metric.split else metric.quantity)
    return label if statistic.statistic == "best" else statistic.record.format_phrase(label)


def _group_phrase(metric: MetricName) -> str:
    """The group of a metric as a phrase.

    >>> _group_phrase(MetricName.parse("attention_on_operands[layer=2, from==]"))
    ' from = in layer 2'
    """
    parts = [part.partition("=") for part in metric.group.strip("[]").split(", ") if part]
    parts.sort(key=lambda part: _GROUP_KEY_ORDER.index(part[0]) if part[0] in _GROUP_KEY_ORDER else 0)
    return "".join(f" {_GROUP_PHRASES[name].format(value)}" if name in _GROUP_PHRASES else f" at {name}{sign}{value}"
                   for name, sign, value in parts)  # fmt: skip


# ---- the smallest or largest value of a setting at which every seed meets a condition ----


def answer_extreme_level(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """Finds the level for each combination of the other settings."""
    over = question.over or ""
    levels = group_by_level(runs, over)
    replayed = [run for group in levels.values() for run in group]  # along alpha, every run once per α
    combinations = group_by_description(replayed, varying_settings(levels.values()))
    counts = {name: _count_by_level(question, group_by_setting(group, over)) for name, group in combinations.items()}
    clauses = {name: _format_level(question, by_level) for name, by_level in counts.items()}
    numbers = {name or "all": _level_to_dict(question, by_level) for name, by_level in counts.items()}
    ids = {run.run.id for run in replayed if run.is_complete}
    verdict = combine_verdicts(_decide_level(question, by_level) for by_level in counts.values())
    is_found = any(_find_level(question, by_level) is not None for by_level in counts.values())
    finding = Finding(
        join_clauses(clauses), numbers, len(ids), (), verdict if ids else None, (FRACTION,) if is_found else ()
    )
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
    """Do more than half of all seeds meet the condition? The two-sided sign test."""
    low, high = clopper_pearson(n_met, n)  # excludes 1/2 exactly when the test rejects
    return decide_claim(low - 0.5, high - 0.5, "higher")


def _level_to_dict(question: QuestionSpec, counts: LevelCounts) -> dict[str, Value]:
    seeds = {format_value(level): {"met": n_met, "n": n} for level, (n_met, n) in counts.items()}
    return {"level": _find_level(question, counts), "seeds": seeds, "verdict": _decide_level(question, counts)}


def _format_level(question: QuestionSpec, counts: LevelCounts) -> str:
    name, condition = setting_noun(question.over or ""), _format_condition(question)
    if not counts:
        return f"no run along {setting_with_article(question.over or '')} has a usable evaluation"
    level = _find_level(question, counts)
    if level is None:
        tried = join_words([format_value(one) for one in counts])
        return f"no {name} tried ({tried}) has {condition} {_closest_level_note(counts)}"
    seeds = f"in {_format_seed_count(counts[level])}, {_format_fraction(*counts[level])}"
    seeds += _next_level_note(question, counts, level)
    exceptions = _exceptions_note(question, counts, level)
    subject = f"the {question.ask} {name} with {condition}"
    if _decide_level(question, counts) == "yes":
        return f"of the values tried, {format_value(level)} is {subject} ({seeds}){exceptions}"
    needed = f"; at least {pluralise(seeds_needed(), 'seed')} are needed" if counts[level][1] < seeds_needed() else ""
    found = f"of the values tried it is {format_value(level)} in these seeds ({seeds}{needed}){exceptions}"
    return f"we cannot tell for certain which is {subject}: {found}"


def _format_condition(question: QuestionSpec) -> str:
    first = _format_bounds(question.metric, question, question.at_least, question.at_most)
    if question.and_metric is None:
        return first
    return f"{first} and {_format_bounds(question.and_metric, question, question.and_at_least, question.and_at_most)}"


def _format_bounds(metric: str, question: QuestionSpec, at_least: float | None, at_most: float | None) -> str:
    bounds = [f"≥ {format_number(at_least)}"] if at_least is not None else []
    bounds += [f"≤ {format_number(at_most)}"] if at_most is not None else []
    return f"{MetricStatistic(metric, question.value)} {' and '.join(bounds)}"


def _format_seed_count(counts: tuple[int, int]) -> str:
    return f"{counts[0]} of {pluralise(counts[1], 'seed')}"


def _closest_level_note(counts: LevelCounts) -> str:
    closest = max(counts, key=lambda level: counts[level][0] / counts[level][1])
    if not counts[closest][0]:
        n = min(n for _, n in counts.values())
        return f"in any of {n} seeds ({_format_fraction(0, n)} at each)" if n > 1 else "in the only seed"
    return f"in every seed; the closest is {format_value(closest)}, in {_format_seed_count(counts[closest])}"


def _next_level_note(question: QuestionSpec, counts: LevelCounts, level: Value) -> str:
    """The result at the adjacent failing level, which brackets the true threshold."""
    levels = list(counts)
    index = levels.index(level) + (-1 if question.ask == "smallest" else 1)
    if not 0 <= index < len(levels):
        return f"; no {'smaller' if question.ask == 'smallest' else 'larger'} one was tried"
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
