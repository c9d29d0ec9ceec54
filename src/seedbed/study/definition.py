"""The parsed study, and the checks shared by study files and command-line overrides.

A study is a base plus factors, as in a factorial design: a config takes one level of each factor, and later factors
override earlier ones. `[grid]`, `[[zip]]`, `[[configs]]` and command-line sweeps are all factors, so expanding a study
is one Cartesian product. The configs of a random search (`[random]`) are one more factor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import TypeAlias

from seedbed.errors import Problem, StudyError
from seedbed.settings import Value, all_settings, check_value, describe_accepted_values, whole_number
from seedbed.specs import FigureSpec, QuestionSpec
from seedbed.study.conditions import ExcludeRule
from seedbed.study.former_words import replacement_of
from seedbed.study.ranges import InvalidRange, Range, expand_range, is_range, parse_range
from seedbed.study.toml_text import (
    MAX_INT_BITS,
    closest_match,
    did_you_mean,
    format_toml_key,
    preview_toml,
    truncate_text,
)

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
class Distribution:
    """What a random search draws a setting from: a range, or values of equal probability."""

    name: str
    support: Range | tuple[Value, ...]
    where: str


@dataclass(frozen=True)
class RandomSearch:
    """The configs to draw at random; without distributions and `n_configs`, none."""

    n_configs: int | None = None
    seed: int | None = None  # of the draws; None: 0
    distributions: tuple[Distribution, ...] = ()
    where: str = ""


NO_RANDOM_SEARCH = RandomSearch()


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
    random: RandomSearch = NO_RANDOM_SEARCH
    scales: Mapping[str, Assignments] = field(default_factory=dict)
    figures: tuple[FigureSpec, ...] = ()
    questions: tuple[QuestionSpec, ...] = ()
    stored: bool = False  # settings that it does not mention have the default they were born with, not today's


@dataclass(frozen=True)
class Overrides:
    """The `key=value` arguments of a command: one factor per setting; seeds, scale and random search where given."""

    factors: tuple[Factor, ...] = ()
    seeds: tuple[int, ...] | None = None
    scale: str | None = None
    random: RandomSearch = NO_RANDOM_SEARCH


# ---- problems ----


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
        def line_number(problem: Problem) -> float:
            line = problem.where.rpartition(":")[2]
            return int(line) if line.isdecimal() else inf  # problems of command-line arguments come last

        if self.entries:
            rest = [Problem(self.entries[0].where, f"and {self.n_omitted:,} more problems")] if self.n_omitted else []
            raise StudyError(sorted(self.entries, key=line_number) + rest)


@dataclass(frozen=True)
class DocumentParser:
    """What parsers of a TOML document have in common: problems carry the line of their key."""

    path: str
    lines: Mapping[str, int]  # of each key and list item, by dotted path
    problems: Problems

    def location(self, key: str) -> str:
        """`path:line` of a dotted key, or of the nearest enclosing table."""
        while key and key not in self.lines:
            key = key.rpartition(".")[0]
        return f"{self.path}:{self.lines.get(key, 1)}"

    def add_problem(self, key: str, what: str) -> None:
        self.problems.add(self.location(key), what)

    def iter_tables(self, document: Mapping[str, Value], key: str) -> Iterator[tuple[dict[str, Value], str]]:
        """The tables of an array of tables, with their dotted paths."""
        value = document.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.add_problem(key, f"{key} = {preview_toml(value)}: expected tables that begin with [[{key}]]")
            return
        for index, table in enumerate(value):
            yield table, f"{key}.{index}"


# ---- checks ----


def check_setting(name: str, value: Value, where: str, problems: Problems) -> Assignment | None:
    """The assignment; None, after adding a problem, if the setting is unknown or the value invalid."""
    if name not in all_settings():
        what, hint = f"{truncate_text(format_toml_key(name))} is not a setting", "; `seedbed settings` lists them all"
        problems.add_unknown(where, name, what, all_settings(), hint)
        return None
    value = whole_number(name, value)
    if expected := check_setting_value(name, value):
        problems.invalid_settings.add(name)
        if is_range(name, value):
            expected += "; a range gives several values, for [grid], [[zip]], [random] or the command line"
        problems.add(where, f"{format_assignment(name, value)}: expected {expected}")
        return None
    return Assignment(name, value, where)


def check_values(name: str, values: Sequence[Value], where: str, problems: Problems) -> list[Assignment | None]:
    """An assignment for each value, and for each value of a range among them; None where a value is invalid."""
    if name not in all_settings():
        return [check_setting(name, values[0], where, problems)]  # so that it is reported once
    checked: list[Assignment | None] = []
    for value in values:
        try:
            listed = expand_range(name, value) if is_range(name, value) else [value]
        except InvalidRange as reason:
            problems.invalid_settings.add(name)
            problems.add(where, f"{format_assignment(name, value)}: {reason}")
            listed = []
        checked += [check_setting(name, one, where, problems) for one in listed]
    return checked


def format_assignment(name: str, value: Value) -> str:
    """`name = value` as quoted in messages, shortened."""
    return f"{truncate_text(format_toml_key(name))} = {preview_toml(value)}"


def check_setting_value(name: str, value: Value) -> str | None:
    """None if the setting accepts this value, else a description of what it accepts."""
    accepted = describe_accepted_values(name)
    if isinstance(value, bool) and "true or false" not in accepted:  # True == 1 would pass as an integer choice
        return accepted
    if (expected := check_value(name, value)) is None:
        return None
    if isinstance(value, float) and not isfinite(value):
        return expected.replace("a number", "a finite number")
    choices = re.findall(r'"([^"]+)"', expected)
    return expected + (did_you_mean(value, choices) if isinstance(value, str) else "")


def parse_seeds(value: Value, where: str, problems: Problems) -> tuple[int, ...]:
    """Seeds from a count (`5` gives 0 to 4), a list or a range; empty, after adding a problem, if invalid."""
    if is_int64(value) and 1 <= value <= MAX_RUNS:
        return tuple(range(value))
    try:
        seeds: list[Value] = []
        for item in value if isinstance(value, list) else [value]:
            is_text_range = isinstance(item, str) and ".." in item
            seeds += parse_range(item, whole=True).values() if is_text_range else [item]
    except InvalidRange as reason:
        problems.add(where, f"seeds = {preview_toml(value)}: {reason}")
        return ()
    if seeds and isinstance(value, list | str) and all(is_int64(seed) and 0 <= seed <= MAX_SEED for seed in seeds):
        if len(set(seeds)) == len(seeds):
            return tuple(seeds)
        repeated = next(seed for index, seed in enumerate(seeds) if seed in seeds[:index])
        problems.add(where, f"seeds = {preview_toml(value)}: {repeated} is listed twice")
        return ()
    accepted = f"a count (1 to {MAX_RUNS:,}), a list of whole numbers from 0 to {MAX_SEED:,}"
    accepted += ', or a range such as "0..15"'
    problems.add(where, f"seeds = {preview_toml(value)}: expected {accepted}")
    return ()


def is_int64(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < MAX_INT_BITS
