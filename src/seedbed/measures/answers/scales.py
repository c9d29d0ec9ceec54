"""Which scales better: each group's change per doubling of a dial, one slope a seed, compared over seeds.

A loss is taken by its logarithm, so that its slope is a factor per doubling; an accuracy by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TypeAlias

import numpy as np

from seedbed.measures.answers.better import pairs_as_list
from seedbed.measures.answers.found import Found, parts_of
from seedbed.measures.answers.said import Subject, best_of, tested
from seedbed.measures.compare import Comparison, compare_all, over_seeds
from seedbed.measures.groups import Balanced, balance, is_numeric, levels_of, most_complete
from seedbed.measures.summary import RunCurves
from seedbed.measures.words import bracket, dial_word, listed, number, signed
from seedbed.shown import Question

Slopes: TypeAlias = Mapping[str, Mapping[int, float]]  # group → seed → change per doubling


def which_scales_better(question: Question, runs: Sequence[RunCurves]) -> Found:
    over, subject = question.over or "", Subject.of(question)
    levels = {name: levels_of(some, over) for name, some in parts_of(question, runs).items()}
    if len(levels) < 2:
        return Found(
            f"There is nothing to compare: {dial_word(question.between or '')} has fewer than two values here."
        )
    if not all(is_numeric(some) and all(level > 0 for level in some) for some in levels.values()):
        return Found(f"There is nothing to scale with: {dial_word(over)} has values that are not numbers above 0.")
    tables = {name: balance(some, subject.number) for name, some in levels.items()}
    is_factor = _is_factor(subject, tables.values())
    slopes = {name: found for name, table in tables.items() if (found := _slopes(table, is_factor))}
    n = len({run.run.id for run in runs if run.counts})
    notes = tuple(note for table in tables.values() for note in table.notes())
    if len(slopes) < 2:
        lacking = listed([name for name in tables if name not in slopes])
        return Found(f"There is no answer yet: {lacking} has no seed at two values of {dial_word(over)}.", {}, n, notes)
    pairs = compare_all(slopes)
    numbers = {
        "per_doubling": {name: asdict(over_seeds(by_seed)) for name, by_seed in slopes.items()},
        "is_log2": is_factor,
        "pairs": pairs_as_list(pairs),
    }
    return Found(_in_words(slopes, pairs, subject, dial_word(over), is_factor), numbers, n, notes)


def _is_factor(subject: Subject, tables: Iterable[Balanced]) -> bool:
    """Losses above 0 go by factors."""
    values = [value for table in tables for rows in table.rows.values() for value in rows.values()]
    return subject.better == "min" and subject.value in ("best", "last") and all(value > 0 for value in values)


def _slopes(balanced: Balanced, is_factor: bool) -> dict[int, float]:
    """Each seed's change per doubling: least squares along log₂ of the dial, mean over the settings."""
    levels, seeds = most_complete({level: {seed for _, seed in rows} for level, rows in balanced.rows.items()})
    if len(levels) < 2:
        return {}
    x = np.log2(np.array(levels, dtype=float))
    found: dict[int, list[float]] = {}
    for key in balanced.rows[levels[0]]:
        if key[1] in seeds:
            y = np.array([balanced.rows[level][key] for level in levels])
            slope = float(np.polyfit(x, np.log2(y) if is_factor else y, 1)[0])
            found.setdefault(key[1], []).append(round(slope, 12))  # equal values then have a slope of exactly 0
    return {seed: float(np.mean(values)) for seed, values in found.items()}


def _in_words(
    slopes: Slopes, pairs: Mapping[tuple[str, str], Comparison], subject: Subject, word: str, is_factor: bool
) -> str:
    means = {name: over_seeds(by_seed).mean for name, by_seed in slopes.items()}
    front = best_of(means, subject.better)
    second = best_of({name: mean for name, mean in means.items() if name != front}, subject.better)
    found = pairs.get((front, second)) or pairs[second, front]
    claim = f"{front} scales better with {word} than {second}"
    if not found.clear:
        claim = f"whether {front} or {second} scales better with {word} cannot be told"
    each = listed([f"{name} {'×' if is_factor else ''}{_factor(mean, is_factor)}" for name, mean in means.items()])
    return (
        f"{claim[0].upper()}{claim[1:]}: per doubling of {word}, {subject} changes by {each} "
        f"({_difference(found, is_factor)}; {tested(found, len(pairs))})."
    )


def _factor(slope: float, is_factor: bool) -> str:
    return number(2**slope) if is_factor else signed(slope)


def _difference(found: Comparison, is_factor: bool) -> str:
    """The difference of the slopes, the larger change first; of factors, their ratio."""
    low, high = (found.low, found.high) if found.effect >= 0 else (-found.high, -found.low)
    size = abs(found.effect)
    if found.n < 2 or not np.isfinite(low):
        return f"ratio {number(2**size)}" if is_factor else f"difference {number(size)}"
    if is_factor:
        return f"ratio {number(2**size)} {bracket(2**low, 2**high)}"
    return f"difference {number(size)} {bracket(low, high)}"
