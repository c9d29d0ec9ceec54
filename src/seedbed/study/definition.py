"""The parsed study, and the checks shared by study files and command-line overrides.

A study is a base plus factors, as in a factorial design: a config takes one level of each factor, and later factors
override earlier ones. `[grid]`, `[[zip]]`, `[[configs]]` and command-line sweeps are all factors, so expanding a study
is one Cartesian product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from seedbed.errors import Problem, StudyError
from seedbed.settings import Value, all_settings, check_value, describe_accepted_values
from seedbed.specs import FigureSpec, QuestionSpec
from seedbed.study.exclude import ExcludeRule
from seedbed.study.former_words import replacement_of
from seedbed.study.toml_format import MAX_INT_BITS, closest_match, format_toml_key, preview_toml, truncate_text

SETTING_GROUPS = ("task", "model", "train")  # the prefix of every setting's name
MAX_RUNS = 100_000
MAX_PROBLEMS = 100
MAX_SEED = 2**32 - 1  # what NumPy's RandomState accepts


@dataclass(frozen=True)
class Assignment:
    """A setting, its value, and where it was written (file:line or command-line argument)."""

    name: str
    value: Value
    where: str


Assignments: TypeAlias = tuple[Assignment, ...]  # settings that are set together: one level of a factor
Factor: TypeAlias = tuple[Assignments, ...]  # levels; every config takes one


@dataclass(frozen=True)
class Study:
    """A study file whose keys and values are valid; conflicts between settings are found when it is planned."""

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
    stored: bool = False  # settings that it does not mention have the default they were born with, not today's


@dataclass
class Problems:
    """Collects problems; keeps the first MAX_PROBLEMS and counts the rest."""

    entries: list[Problem] = field(default_factory=list)
    invalid_settings: set[str] = field(default_factory=set)  # settings with an invalid value
    n_omitted: int = 0

    def __bool__(self) -> bool:
        return bool(self.entries)

    def add(self, where: str, what: str) -> None:
        if len(self.entries) < MAX_PROBLEMS:
            self.entries.append(Problem(where, what))
        else:
            self.n_omitted += 1

    def add_unknown(self, where: str, name: str, what: str, known: Iterable[str], hint: str = "") -> None:
        """Add a problem about an unknown name: its new name if renamed, else the closest known one, else the hint."""
        if replacement := replacement_of(name):
            self.add(where, f"{name} is now called {replacement}")
            return
        full = len(self.entries) >= MAX_PROBLEMS
        guess = None if full else closest_match(name, known)  # skipped when it would not be reported: it is slow
        self.add(where, f"{what} (did you mean {guess}?)" if guess else what + hint)

    def raise_if_any(self) -> None:
        if self.entries:
            rest = [Problem(self.entries[0].where, f"and {self.n_omitted:,} more problems")] if self.n_omitted else []
            raise StudyError(sorted(self.entries, key=lambda problem: _line_number(problem.where)) + rest)


def _line_number(where: str) -> float:
    """Sort key: problems of a file by line, those of command-line arguments last."""
    line = where.rpartition(":")[2]
    return int(line) if line.isdecimal() else float("inf")


def check_setting(name: str, value: Value, where: str, problems: Problems) -> Assignment | None:
    """The assignment; None, after adding a problem, if the setting is unknown or the value invalid."""
    if name not in all_settings():
        what, hint = f"{truncate_text(format_toml_key(name))} is not a setting", "; `seedbed settings` lists them all"
        problems.add_unknown(where, name, what, all_settings(), hint)
        return None
    if expected := check_setting_value(name, value):
        problems.invalid_settings.add(name)
        problems.add(where, f"{format_assignment(name, value)}: expected {expected}")
        return None
    return Assignment(name, value, where)


def format_assignment(name: str, value: Value) -> str:
    """`name = value` as quoted in messages, shortened."""
    return f"{truncate_text(format_toml_key(name))} = {preview_toml(value)}"


def check_setting_value(name: str, value: Value) -> str | None:
    """None if the setting accepts this value, else a description of what it accepts."""
    accepted = describe_accepted_values(name)
    if isinstance(value, bool) and "true or false" not in accepted:  # True == 1 would pass as an integer choice
        return accepted
    return check_value(name, value)


def parse_seeds(value: Value, where: str, problems: Problems) -> tuple[int, ...]:
    """Seeds from a count (`5` gives 0 to 4) or a list (`[0, 42]`); empty, after adding a problem, if invalid."""
    if is_int64(value) and 1 <= value <= MAX_RUNS:
        return tuple(range(value))
    if isinstance(value, list) and value and all(is_int64(seed) and 0 <= seed <= MAX_SEED for seed in value):
        if len(set(value)) == len(value):
            return tuple(value)
        repeated = next(seed for index, seed in enumerate(value) if seed in value[:index])
        problems.add(where, f"seeds = {preview_toml(value)}: {repeated} is listed twice")
        return ()
    accepted = f"a count (1 to {MAX_RUNS:,}), or a list of whole numbers from 0 to {MAX_SEED:,}"
    problems.add(where, f"seeds = {preview_toml(value)}: expected {accepted}")
    return ()


def is_int64(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < MAX_INT_BITS
