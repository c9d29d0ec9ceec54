"""Comparisons as sentences: who is ahead, by how much, with which interval and test, and when nothing can be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite, log2
from typing import TypeVar

from seedbed.measures.catalogue import Direction
from seedbed.measures.compare import LEVEL, Comparison, over_seeds
from seedbed.measures.summary import RunCurves
from seedbed.measures.values import ValueName, run_value, value_direction
from seedbed.measures.words import bracket, chance, listed, number, plural
from seedbed.shown import Question

Key = TypeVar("Key")
Values = Mapping[str, Mapping[int, float]]  # group → seed → number
Pairs = Mapping[tuple[str, str], Comparison]

_NAMES: Mapping[ValueName, str] = {
    "best": "{}",
    "last": "the last {}",
    "t_f": "t_f of {} (the first step at its best)",
    "delta_t": "Δt of {} (t_f of validation minus t_f of training)",
    "gap": "the gap of {} (validation against training)",
    "seconds": "compute time in seconds",
    "memory": "memory in MiB",
}


@dataclass(frozen=True)
class Subject:
    """What a question is about: one value of one metric; `name` stands for the metric where groups are metrics too."""

    metric: str
    value: ValueName
    name: str = ""

    @classmethod
    def of(cls, question: Question) -> Subject:
        return cls(question.metric, question.value)

    def __str__(self) -> str:
        return _NAMES[self.value].format(self.name or self.metric)

    @property
    def better(self) -> Direction | None:
        return value_direction(self.metric, self.value)

    def number(self, run: RunCurves) -> float:
        return run_value(run, self.metric, self.value)

    def ahead(self, clear: bool) -> str:
        """The verb for the one in front."""
        if self.better is not None:
            return "beats" if clear else "is ahead of"
        return "is earlier than" if self.value in ("t_f", "delta_t") else "is lower than"


def best_of(means: Mapping[Key, float], better: Direction | None) -> Key:
    """The one in front; where nothing is better, the lowest: early steps come first."""
    return max(means, key=lambda key: means[key]) if better == "max" else min(means, key=lambda key: means[key])


def verdict(values: Values, pairs: Pairs, subject: Subject) -> str:
    """Two groups: the one in front, the effect, and what the test says."""
    [((one, other), found)] = pairs.items()
    means = {name: over_seeds(by_seed).mean for name, by_seed in values.items()}
    if found.low == found.high == 0:
        return f"{one} and {other} are equal on {subject}: {number(means[one])} on the mean, {_numbers(found)}."
    front = best_of(means, subject.better)
    behind = other if front == one else one
    return (
        f"{front} {subject.ahead(found.clear)} {behind} on {subject} by {effect(found)} "
        f"({number(means[front])} against {number(means[behind])}; {tested(found, 1)})."
    )


def ranking(values: Values, pairs: Pairs, subject: Subject) -> str:
    """Three groups or more: who is in front, whom that one clearly differs from, and whom not."""
    means = {name: over_seeds(by_seed).mean for name, by_seed in values.items()}
    front = best_of(means, subject.better)
    if len(set(means.values())) == 1:
        return f"{listed(list(means))} are equal on {subject}: {number(means[front])}."
    against = {name: pairs.get((front, name)) or pairs[name, front] for name in means if name != front}
    second = best_of({name: means[name] for name in against}, subject.better)
    highest = "highest" if subject.better == "max" else "lowest"
    return (
        f"{front} has the {highest} {subject} ({number(means[front])}; next is {second}, {number(means[second])}, "
        f"difference {effect(against[second])}; {tested(against[second], len(pairs))}).{_others(against)}"
    )


def _others(against: Mapping[str, Comparison]) -> str:
    beaten = [name for name, found in against.items() if found.clear]
    rest = [name for name, found in against.items() if not found.clear]
    if not beaten:
        return ""
    return f" It clearly differs from {listed(beaten)}" + (f", not from {listed(rest)}." if rest else ".")


def effect(found: Comparison) -> str:
    """The size of the effect, whichever way it goes, with its interval where there is one."""
    low, high = (found.low, found.high) if found.effect >= 0 else (-found.high, -found.low)
    return number(abs(found.effect)) + (f" {bracket(low, high)}" if isfinite(low) else "")


def tested(found: Comparison, n_pairs: int) -> str:
    """How it was tested and what follows."""
    if found.n < 2 or not isfinite(found.low):
        return f"{_numbers(found)}: no interval and no test, cannot tell with one seed"
    kind = "sign-flip" if found.paired else "permutation"
    how = f"exact {kind} test" if found.p.exact else f"{kind} test by {found.p.arrangements:,} draws"
    p = chance(found.corrected) + (f" after Holm's correction for {n_pairs} pairs" if n_pairs > 1 else "")
    return f"{_numbers(found)}, {how} {p}{_so(found, n_pairs)}"


def _numbers(found: Comparison) -> str:
    return f"paired over {plural(found.n, 'seed')}" if found.paired else f"{found.n} runs, not paired"


def _so(found: Comparison, n_pairs: int) -> str:
    least = min(1.0, found.p.least * n_pairs)
    if found.clear:
        return ""
    if least <= LEVEL:
        return ": cannot tell apart at 5 %"
    if not found.paired:
        return f": cannot tell with {plural(found.n, 'run')}, whose least possible p is {least:.2g}"
    needed = ceil(log2(2 * n_pairs / LEVEL))
    return f": cannot tell with {plural(found.n, 'seed')}, whose least possible p is {least:.2g}; {needed} could tell"
