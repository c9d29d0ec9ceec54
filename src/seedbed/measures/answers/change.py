"""How one metric changes along a dial: from its first to its last value over seeds, and the trend over all of them.

The trend is Page's test: under no effect, a seed's values are in any order along the dial. Along α there is no test,
since the values are of one run, and the best so far can only improve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan, nan

import numpy as np
from numpy.typing import NDArray

from seedbed.measures.answers.better import compare_by
from seedbed.measures.answers.found import Found, clause, in_sentences, parts_of
from seedbed.measures.answers.said import Subject, best_of
from seedbed.measures.compare import LEVEL, Interval, interval
from seedbed.measures.exact import average_ranks, holm, trend
from seedbed.measures.groups import Groups, balance, is_numeric, levels_of, most_complete
from seedbed.measures.summary import RunCurves
from seedbed.measures.words import bracket, chance, dial_word, listed, number, plain, plural, signed
from seedbed.settings import Value
from seedbed.shown import Question


def how_does_it_change(question: Question, runs: Sequence[RunCurves]) -> Found:
    over, subject = question.over or "", Subject.of(question)
    levels = levels_of(runs, over)
    if len(levels) < 2 or not is_numeric(levels):
        return compare_by(levels, over, subject)
    changes = {name: _change(levels_of(some, over), over, subject) for name, some in parts_of(question, runs).items()}
    corrected = _corrected({name: change.p for name, change in changes.items()})
    clauses = [clause(name, _in_words(change, corrected[name], over, subject)) for name, change in changes.items()]
    numbers = {name or "all": asdict(change) | {"corrected": corrected[name]} for name, change in changes.items()}
    notes = tuple(note for change in changes.values() for note in change.notes)
    return Found(in_sentences(clauses), numbers, sum(change.n for change in changes.values()), notes)


def _corrected(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's correction for the clauses; NaN, no test, stays."""
    tested = [name for name, p in p_values.items() if not isnan(p)]
    return {**p_values, **dict(zip(tested, holm([p_values[name] for name in tested]), strict=True))}


@dataclass(frozen=True)
class Change:
    """Means by level, last minus first over seeds, and the trend over all levels."""

    means: Mapping[float, float]
    ends: Interval
    correlation: float  # Spearman's, mean over seeds
    p: float
    n: int
    notes: tuple[str, ...]


def _change(levels: Groups, over: str, subject: Subject) -> Change:
    full = {level: runs for level, runs in levels.items() if any(run.counts for run in runs)}
    balanced = balance(full, subject.number)
    kept, seeds = most_complete({level: {seed for _, seed in balanced.rows[level]} for level in full})
    notes = (*balanced.notes(), *_not_kept(levels, kept))
    if len(kept) < 2:
        return Change({}, interval([]), nan, 1.0, 0, notes)
    by_level = {level: balanced.by_seed(level) for level in kept}
    means = {level: float(np.mean([by_seed[seed] for seed in seeds])) for level, by_seed in by_level.items()}
    keys = [key for key in balanced.rows[kept[0]] if key[1] in seeds]
    table = np.array([[balanced.rows[level][key] for level in kept] for key in keys])
    ends = interval([by_level[kept[-1]][seed] - by_level[kept[0]][seed] for seed in sorted(seeds)])
    is_replay = over == "alpha"
    p = nan if is_replay else trend(list(table)).value
    return Change(means, ends, _correlation(table), p, len(keys) if is_replay else table.size, notes)


def _not_kept(levels: Groups, kept: Sequence[Value]) -> list[str]:
    missing = [plain(level) for level in levels if level not in kept]
    return [f"no number with the same seeds at {listed(missing)}"] if missing else []


def _correlation(table: NDArray[np.float64]) -> float:
    """Spearman's rank correlation with the order of the columns, over the rows that vary at all."""
    places = np.arange(table.shape[1])
    found = [np.corrcoef(average_ranks(row), places)[0, 1] for row in table if row.min() < row.max()]
    return float(np.mean(found)) if found else nan


# ---- in words ----


def _in_words(change: Change, p: float, over: str, subject: Subject) -> str:
    word = dial_word(over)
    if len(change.means) < 2:
        return f"{subject} has no numbers with the same seeds at two values of {word}"
    (first, start), *_, (last, end) = change.means.items()
    moved = f"from {number(start)} at {plain(first)} to {number(end)} at {plain(last)}"
    how = f"{_size(change.ends)}{_test(change, p)}"
    return f"{subject} {_verb(change, p, word)}, {moved} ({how}){_unsure(change, p)}{_best(change, subject)}"


def _verb(change: Change, p: float, word: str) -> str:
    if len(set(change.means.values())) == 1:
        return f"does not change with {word}"
    rises = change.ends.mean > 0 if isnan(p) else change.correlation > 0
    if isnan(p) or p <= LEVEL:
        return f"{'rises' if rises else 'falls'} with {word}"
    return f"shows no clear trend with {word}"


def _size(ends: Interval) -> str:
    if ends.n == 1:
        return f"{signed(ends.mean)}, one seed, so no interval"
    return f"{signed(ends.mean)} {bracket(ends.low, ends.high)}, paired over {plural(ends.n, 'seed')}"


def _test(change: Change, p: float) -> str:
    if isnan(p):
        return "; no test, since these are records of the same runs"
    if isnan(change.correlation):
        return ""
    return f"; rank correlation {signed(change.correlation)} over {len(change.means)} values, Page's test {chance(p)}"


def _unsure(change: Change, p: float) -> str:
    """The order of the values can be clear where their size is not."""
    spans_zero = change.ends.n > 1 and change.ends.low <= 0 <= change.ends.high
    return "; the trend is clear, its size is not" if p <= LEVEL and spans_zero else ""


def _best(change: Change, subject: Subject) -> str:
    """The best value, where it is not at an end."""
    if subject.better is None:
        return ""
    means = list(change.means.values())
    at = best_of(change.means, subject.better)
    inside = change.means[at] not in (means[0], means[-1])
    return f"; it is best at {plain(at)} ({number(change.means[at])})" if inside else ""
