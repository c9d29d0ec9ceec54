"""What a study is made of, and the checks that its file and the command line share.

A study is a base and some factors; a point takes one choice of each factor, later ones winning. `[grid]`, `[[zip]]`,
`[[points]]` and sweeps on the command line are all factors, so expanding is one product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from seedbed.errors import Problem, StudyError
from seedbed.settings import Value, accepted_values, all_dials, check_value
from seedbed.shown import Figure, Question
from seedbed.study.exclude import Rule
from seedbed.study.spell import INT_BITS, nearest, shortened, shown, toml_key

PARTS = ("task", "model", "train")  # the first part of every dial's name
MAX_RUNS = 100_000
MAX_PROBLEMS = 100
MAX_SEED = 2**32 - 1  # what NumPy's RandomState accepts


@dataclass(frozen=True)
class Dial:
    """A dial, its value, and where that is written."""

    name: str
    value: Value
    where: str


Choice: TypeAlias = tuple[Dial, ...]  # dials set together
Factor: TypeAlias = tuple[Choice, ...]  # what a point takes one of


@dataclass(frozen=True)
class Study:
    """A study file that has no problem of its own; whether its dials go together is asked when it is planned."""

    where: str
    name: str
    question: str
    seeds: tuple[int, ...]
    base: Choice
    factors: tuple[Factor, ...]
    exclude: tuple[Rule, ...]
    scales: Mapping[str, Choice] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    questions: tuple[Question, ...] = ()


@dataclass
class Findings:
    """Problems as they are found; of a file that is wrong all over, the first hundred and how many more."""

    problems: list[Problem] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)  # dials with a wrong value
    n_more: int = 0

    def __bool__(self) -> bool:
        return bool(self.problems)

    def add(self, where: str, what: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(where, what))
        else:
            self.n_more += 1

    def add_unknown(self, where: str, name: str, what: str, known: Iterable[str]) -> None:
        """A name that means nothing, with the nearest one that does."""
        full = len(self.problems) >= MAX_PROBLEMS
        guess = None if full else nearest(name, known)
        self.add(where, f"{what} (did you mean {guess}?)" if guess else what)

    def raise_if_any(self) -> None:
        if self.problems:
            rest = [Problem(self.problems[0].where, f"and {self.n_more:,} more problems")] if self.n_more else []
            raise StudyError(sorted(self.problems, key=lambda problem: _line(problem.where)) + rest)


def _line(where: str) -> float:
    """Problems of a file go by line; those of words come last."""
    line = where.rpartition(":")[2]
    return int(line) if line.isdecimal() else float("inf")


def check_dial(name: str, value: Value, where: str, findings: Findings) -> Dial | None:
    """The dial with this value; None, and a finding, when there is no such dial or it cannot have the value."""
    if name not in all_dials():
        findings.add_unknown(where, name, f"{written(name, value)} is not a setting", all_dials())
        return None
    if wrong := wrong_value(name, value):
        findings.broken.add(name)
        findings.add(where, f"{written(name, value)}: expected {wrong}")
        return None
    return Dial(name, value, where)


def written(name: str, value: Value) -> str:
    """A dial and its value as a message repeats them."""
    return f"{shortened(toml_key(name))} = {shown(value)}"


def wrong_value(name: str, value: Value) -> str | None:
    """What the dial accepts, in words, when that is not this value."""
    if isinstance(value, bool) and "true or false" not in accepted_values(name):  # True == 1 would pass as a choice
        return accepted_values(name)
    return check_value(name, value)


def check_seeds(value: Value, where: str, findings: Findings) -> tuple[int, ...]:
    """The seeds that `5` (0 to 4) or `[0, 42]` names; none, and a finding, when they cannot be used."""
    if is_whole(value) and 1 <= value <= MAX_RUNS:
        return tuple(range(value))
    if isinstance(value, list) and value and all(is_whole(seed) and 0 <= seed <= MAX_SEED for seed in value):
        if len(set(value)) == len(value):
            return tuple(value)
        twice = next(seed for place, seed in enumerate(value) if seed in value[:place])
        findings.add(where, f"seeds = {shown(value)}: {twice} is there twice")
        return ()
    accepted = f"how many (1 to {MAX_RUNS:,}), or a list of whole numbers from 0 to {MAX_SEED:,}"
    findings.add(where, f"seeds = {shown(value)}: expected {accepted}")
    return ()


def is_whole(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < INT_BITS
