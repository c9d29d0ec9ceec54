"""What a study is made of, and the checks that its file and the command line share.

A study is a base and some factors; a point takes one choice of each factor, later ones winning. `[grid]`, `[[zip]]`,
`[[configs]]` and sweeps on the command line are all factors, so expanding is one product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from seedbed.errors import Problem, StudyError
from seedbed.settings import Value, all_settings, check_value, describe_accepted_values
from seedbed.specs import FigureSpec, QuestionSpec
from seedbed.study.exclude import ExcludeRule
from seedbed.study.toml_format import MAX_INT_BITS, closest_match, format_toml_key, preview_toml, truncate_text

SETTING_GROUPS = ("task", "model", "train")  # the first part of every dial's name
MAX_RUNS = 100_000
MAX_PROBLEMS = 100
MAX_SEED = 2**32 - 1  # what NumPy's RandomState accepts


@dataclass(frozen=True)
class Assignment:
    """A dial, its value, and where that is written."""

    name: str
    value: Value
    where: str


Assignments: TypeAlias = tuple[Assignment, ...]  # dials set together
Factor: TypeAlias = tuple[Assignments, ...]  # what a point takes one of


@dataclass(frozen=True)
class Study:
    """A study file that has no problem of its own; whether its dials go together is asked when it is planned."""

    where: str
    name: str
    question: str
    seeds: tuple[int, ...]
    base: Assignments
    factors: tuple[Factor, ...]
    exclude: tuple[ExcludeRule, ...]
    scales: Mapping[str, Assignments] = field(default_factory=dict)
    figures: tuple[FigureSpec, ...] = ()
    questions: tuple[QuestionSpec, ...] = ()


@dataclass
class Problems:
    """Problems as they are found; of a file that is wrong all over, the first hundred and how many more."""

    entries: list[Problem] = field(default_factory=list)
    invalid_settings: set[str] = field(default_factory=set)  # dials with a wrong value
    n_omitted: int = 0

    def __bool__(self) -> bool:
        return bool(self.entries)

    def add(self, where: str, what: str) -> None:
        if len(self.entries) < MAX_PROBLEMS:
            self.entries.append(Problem(where, what))
        else:
            self.n_omitted += 1

    def add_unknown(self, where: str, name: str, what: str, known: Iterable[str]) -> None:
        """A name that means nothing, with the nearest one that does."""
        full = len(self.entries) >= MAX_PROBLEMS
        guess = None if full else closest_match(name, known)
        self.add(where, f"{what} (did you mean {guess}?)" if guess else what)

    def raise_if_any(self) -> None:
        if self.entries:
            rest = [Problem(self.entries[0].where, f"and {self.n_omitted:,} more problems")] if self.n_omitted else []
            raise StudyError(sorted(self.entries, key=lambda problem: _line_number(problem.where)) + rest)


def _line_number(where: str) -> float:
    """Problems of a file go by line; those of words come last."""
    line = where.rpartition(":")[2]
    return int(line) if line.isdecimal() else float("inf")


def check_setting(name: str, value: Value, where: str, problems: Problems) -> Assignment | None:
    """The dial with this value; None, and a finding, when there is no such dial or it cannot have the value."""
    if name not in all_settings():
        problems.add_unknown(where, name, f"{format_assignment(name, value)} is not a setting", all_settings())
        return None
    if wrong := check_setting_value(name, value):
        problems.invalid_settings.add(name)
        problems.add(where, f"{format_assignment(name, value)}: expected {wrong}")
        return None
    return Assignment(name, value, where)


def format_assignment(name: str, value: Value) -> str:
    """A dial and its value as a message repeats them."""
    return f"{truncate_text(format_toml_key(name))} = {preview_toml(value)}"


def check_setting_value(name: str, value: Value) -> str | None:
    """What the dial accepts, in words, when that is not this value."""
    if isinstance(value, bool) and "true or false" not in describe_accepted_values(
        name
    ):  # True == 1 would pass as a choice
        return describe_accepted_values(name)
    return check_value(name, value)


def parse_seeds(value: Value, where: str, problems: Problems) -> tuple[int, ...]:
    """The seeds that `5` (0 to 4) or `[0, 42]` names; none, and a finding, when they cannot be used."""
    if is_int64(value) and 1 <= value <= MAX_RUNS:
        return tuple(range(value))
    if isinstance(value, list) and value and all(is_int64(seed) and 0 <= seed <= MAX_SEED for seed in value):
        if len(set(value)) == len(value):
            return tuple(value)
        twice = next(seed for place, seed in enumerate(value) if seed in value[:place])
        problems.add(where, f"seeds = {preview_toml(value)}: {twice} is there twice")
        return ()
    accepted = f"how many (1 to {MAX_RUNS:,}), or a list of whole numbers from 0 to {MAX_SEED:,}"
    problems.add(where, f"seeds = {preview_toml(value)}: expected {accepted}")
    return ()


def is_int64(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < MAX_INT_BITS
