"""Parses a study file into a Study and reports every problem of the file in one pass; plan.py makes the runs.

    study = read_study(find_study("arithmetic/sanity"))

Size limits are checked before parsing, and nothing in a file is ever executed.

Also the `key=value` arguments of `run` and `plan`, which override settings of a study. Commas outside brackets separate
the values of a sweep; a value is TOML or else plain text: `model.layers=3`, `train.lr=1e-3,3e-4`, `task.orders=[2,3]`,
`model.kind=lstm`, `seeds=5`, `seeds=0,1,2`, `seeds=[42]`. A value may be a range (ranges.py):
`"train.lr=log 1e-4..1e-1 x12"`, `model.layers=1..4`, `seeds=0..15`. `scale=tiny` applies the study's `[scales.tiny]` to
every config; `random.n_configs=80` and `"random.train.lr=log 1e-4..1e-1"` stand for entries of the study's `[random]`.

>>> parse_overrides(["train.lr=1e-3,3e-4", "seeds=2"]).seeds
(0, 1)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final

from seedbed.settings import Value, all_settings
from seedbed.study.conditions import ExcludeRule, InvalidRule, parse_exclude_rule
from seedbed.study.declarations import DeclarationParser
from seedbed.study.definition import (
    MAX_RUNS,
    NO_RANDOM_SEARCH,
    Assignment,
    Assignments,
    DocumentParser,
    Factor,
    Overrides,
    Problems,
    RandomSearch,
    Study,
    check_setting,
    check_values,
    format_assignment,
    parse_seeds,
)
from seedbed.study.expand import expand_study
from seedbed.study.former_words import translate_stored
from seedbed.study.random_search import parse_random_entry
from seedbed.study.ranges import RANGE_EXAMPLES, is_range, number_type
from seedbed.study.study_files import read_study_text, shipped_studies
from seedbed.study.toml_text import (
    SETTING_GROUPS,
    LimitError,
    find_key_lines,
    flatten_table,
    format_toml_key,
    format_toml_value,
    parse_toml,
    parse_value,
    preview_toml,
    split_outside_quotes,
    truncate_text,
)

DEFAULT_SEEDS: Final = (0, 42)
CONFIG_KEYS: Final = ("base", "scales", "grid", "zip", "random", "configs", "exclude")
STUDY_KEYS: Final = ("name", "question", "seeds", *CONFIG_KEYS, "figures", "questions")
MAX_NAME_CHARACTERS: Final = 100
RANDOM_PREFIX: Final = "random."  # of arguments that belong to the study's random search


def read_study(path: Path, overrides: Sequence[str] = ()) -> Study:
    """The study in this file; StudyError lists all its problems, and those of the overrides."""
    return parse_study(read_study_text(path), str(path), overrides)


def parse_study(text: str, path: str, overrides: Sequence[str] = (), stored: bool = False) -> Study:
    """The study in this text; `path` is shown in problems and names the study if the text does not.

    A stored study may be of an earlier version: its names are translated, and settings that it does not mention have
    their original default rather than the current one.
    """
    document = parse_toml(text, path)
    problems = Problems()
    study = StudyParser(path, find_key_lines(text), problems).parse(translate_stored(document) if stored else document)
    study = replace(study, stored=stored)
    if problems:
        expand_study(study, collect_overrides(overrides, problems), problems)  # so that conflicts are reported too
    problems.raise_if_any()
    return study


def read_study_name(path: Path) -> str:
    """The name of the study in a file, which may have problems otherwise; StudyError if it is missing or not TOML."""
    name = parse_toml(read_study_text(path), str(path)).get("name")
    return name if isinstance(name, str) else _default_study_name(path)


class StudyParser(DocumentParser):
    """Turns a TOML document into a Study."""

    @cached_property
    def key_order(self) -> dict[str, int]:
        """Rank of each key in the file: parsed tables lose the order of keys across nesting levels."""
        return {key: rank for rank, key in enumerate(self.lines)}

    def parse(self, document: Mapping[str, Value]) -> Study:
        for key in document:
            if key not in STUDY_KEYS:
                what = f"{truncate_text(format_toml_key(key))} is not a key of a study file"
                known = [*STUDY_KEYS, *(f"base.{part}" for part in SETTING_GROUPS)]
                self.problems.add_unknown(self.location(key), key, what, known)
        declared = DeclarationParser(self.path, self.lines, self.problems).parse(document)
        factors, random = self.parse_factors(document), self.parse_random(document.get("random", {}))
        self.check_varied_once(factors, random)
        return Study(
            where=self.path,
            name=self.parse_name(document),
            question=self.parse_text(document, "question"),
            seeds=self.parse_seeds(document),
            base=self.parse_assignments(document.get("base", {}), "base"),
            factors=factors,
            random=random,
            exclude=tuple(self.parse_exclude(document)),
            scales=self.parse_scales(document),
            figures=declared.figures,
            questions=declared.questions,
        )

    def check_setting(self, name: str, value: Value, path: str) -> Assignment | None:
        return check_setting(name, value, self.location(path), self.problems)

    def parse_text(self, document: Mapping[str, Value], key: str) -> str:
        value = document.get(key, "")
        if not isinstance(value, str):
            self.add_problem(key, f"{key} = {preview_toml(value)}: expected a string")
            return ""
        return value

    def parse_name(self, document: Mapping[str, Value]) -> str:
        if "name" not in document:
            return _default_study_name(Path(self.path))
        name = self.parse_text(document, "name")
        if isinstance(document["name"], str) and name != sanitize_name(name):
            accepted = f"1 to {MAX_NAME_CHARACTERS} letters, digits, spaces and . _ - /, no part beginning with a dot"
            self.add_problem("name", f"name = {preview_toml(name)}: expected {accepted}")
        return name

    def parse_seeds(self, document: Mapping[str, Value]) -> tuple[int, ...]:
        if "seeds" not in document:
            return DEFAULT_SEEDS
        return parse_seeds(document["seeds"], self.location("seeds"), self.problems)

    def parse_factors(self, document: Mapping[str, Value]) -> tuple[Factor, ...]:
        """All factors, slowest first: configs, then zips, then the grid, each in file order."""
        configs = [self.parse_configs(document["configs"])] if "configs" in document else []
        zips = [self.parse_zip(table, key) for table, key in self.iter_tables(document, "zip")]
        grid = [
            tuple((assignment,) for assignment in self.parse_values(*setting) if assignment)
            for setting in self.iter_settings(document.get("grid", {}), "grid")
        ]
        return tuple(factor for factor in (*configs, *zips, *grid) if factor)

    def parse_random(self, table: Value) -> RandomSearch:
        """The random search: how many configs to draw, and what each setting is drawn from."""
        search = NO_RANDOM_SEARCH
        for name, value, path in self.iter_settings(table, "random"):
            search = parse_random_entry(search, name, value, self.location(path), self.problems)
        return search

    def parse_assignments(self, table: Value, key: str) -> Assignments:
        """The settings of a table, each with a single value."""
        checked = [self.check_setting(name, value, path) for name, value, path in self.iter_settings(table, key)]
        return tuple(assignment for assignment in checked if assignment)

    def parse_scales(self, document: Mapping[str, Value]) -> dict[str, Assignments]:
        """Named scales of the study: settings that override base, configs and grid."""
        scales = document.get("scales", {})
        if not isinstance(scales, dict):
            self.add_problem("scales", f"scales = {preview_toml(scales)}: expected tables such as [scales.tiny]")
            return {}
        return {name: self.parse_assignments(table, f"scales.{name}") for name, table in scales.items()}

    def parse_configs(self, value: Value) -> Factor:
        if value == []:
            self.add_problem("configs", "configs = []: expected at least one config")
        tables = self.iter_tables({"configs": value}, "configs")
        return tuple(self.parse_assignments(table, key) for table, key in tables)

    def parse_zip(self, table: Value, key: str) -> Factor:
        """One factor that steps through all lists of a [[zip]] together."""
        settings = list(self.iter_settings(table, key))
        columns = [self.parse_values(name, values, path) for name, values, path in settings]
        lengths = {name: len(column) for (name, _, _), column in zip(settings, columns, strict=True) if column}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{name} has {n}" for name, n in lengths.items())
            self.add_problem(key, f"lists of unequal length in one [[zip]]: {counts}")
        elif not settings:
            self.add_problem(key, "an empty [[zip]]: expected lists of values that go together")
        rows = zip(*columns, strict=False)
        return tuple(tuple(assignment for assignment in row if assignment) for row in rows)

    def parse_values(self, name: str, values: Value, key: str) -> list[Assignment | None]:
        """An assignment for each value of a list or range; None where the value is invalid."""
        if name not in all_settings():
            self.check_setting(name, values, key)
            return []
        if is_range(name, values):
            return check_values(name, [values], self.location(key), self.problems)
        if isinstance(values, list) and 1 <= len(values) <= MAX_RUNS:
            return [
                assignment
                for index, value in enumerate(values)
                for assignment in check_values(name, [value], self.location(f"{key}.{index}"), self.problems)
            ]
        if isinstance(values, list) and values:
            self.add_problem(key, f"{name} has {len(values):,} values; at most {MAX_RUNS:,} are accepted")
        else:
            wanted = "one value or more" if values == [] else "values to try"
            wanted += f", or a range such as {RANGE_EXAMPLES}" if values != [] and number_type(name) else ""
            self.add_problem(key, f"{format_assignment(name, values)}: expected a list of {wanted}")
        return []

    def parse_exclude(self, document: Mapping[str, Value]) -> Iterator[ExcludeRule]:
        value = document.get("exclude", [])
        for index, text in enumerate(value if isinstance(value, list) else [value]):
            key = f"exclude.{index}"
            if not isinstance(text, str):
                self.add_problem(key, f'exclude = {preview_toml(text)}: expected a string such as "model.layers == 3"')
                continue
            try:
                yield parse_exclude_rule(text, self.location(key))
            except InvalidRule as reason:
                self.add_problem(key, f"exclude = {preview_toml(text)}: {reason}")

    def check_varied_once(self, factors: Sequence[Factor], random: RandomSearch) -> None:
        """Report settings that vary in more than one place."""
        first_uses: dict[str, str] = {}
        for uses in [*map(_first_uses, factors), {one.name: one.where for one in random.distributions}]:
            for name, where in uses.items():
                if name in first_uses:
                    self.problems.add(where, f"{name} varies in two places, here and at {first_uses[name]}")
                else:
                    first_uses[name] = where

    def iter_settings(self, table: Value, key: str) -> Iterator[tuple[str, Value, str]]:
        """(name, value, path) of each setting in a table, whether its name is nested, dotted or quoted."""
        if not isinstance(table, dict):
            self.add_problem(key, f"{key} = {preview_toml(table)}: expected a table such as [{key}]")
            return
        seen = set()
        leaves = [(name, value, f"{key}.{name}") for name, value in flatten_table(table)]
        for name, value, path in sorted(leaves, key=lambda leaf: self.key_order.get(leaf[2], 0)):
            if name in seen:
                self.add_problem(path, f"{truncate_text(format_toml_key(name))} is set twice in one table")
            else:
                yield name, value, path
            seen.add(name)


def _first_uses(factor: Factor) -> dict[str, str]:
    """Where each setting of a factor is used first."""
    return {use.name: use.where for level in reversed(factor) for use in level}


def _default_study_name(path: Path) -> str:
    shipped = {file: name for name, file in shipped_studies().items()}
    return shipped.get(path, sanitize_name(path.stem))


def sanitize_name(text: str) -> str:
    """The text as a study name that is also safe as a relative folder path."""
    parts = [re.sub(r"[^\w .-]", "-", part).strip(" ").lstrip(".") for part in text.split("/")]
    return "/".join(part for part in parts if part)[:MAX_NAME_CHARACTERS] or "study"


# ---- arguments that override settings ----


def parse_overrides(arguments: Sequence[str]) -> Overrides:
    """The overrides; StudyError lists all invalid arguments."""
    problems = Problems()
    overrides = collect_overrides(arguments, problems)
    problems.raise_if_any()
    return overrides


def collect_overrides(arguments: Sequence[str], problems: Problems) -> Overrides:
    """As `parse_overrides`, but invalid arguments are added to `problems` and left out."""
    factors: dict[str, Factor] = {}
    seeds: tuple[int, ...] | None = None
    scale: str | None = None
    random = NO_RANDOM_SEARCH
    given: set[str] = set()
    for argument in arguments:
        where = f"argument '{truncate_text(format_toml_value(argument)[1:-1])}'"
        name, sign, text = argument.partition("=")
        name = name.strip()
        if not sign or not name:
            problems.add(where, "expected key=value, such as model.layers=3")
        elif name in given:
            problems.add(where, f"{name} is given twice; separate values to sweep by commas, as in {name}=A,B")
        elif (values := _parse_values(text, where, problems)) is not None:
            if name == "seeds":
                seeds = parse_seeds(values[0] if len(values) == 1 else values, where, problems)
            elif name == "scale":
                scale = _parse_scale(values, where, problems)
            elif name.startswith(RANDOM_PREFIX):
                entry = name.removeprefix(RANDOM_PREFIX)
                value = values[0] if entry in ("n_configs", "seed") and len(values) == 1 else values
                random = parse_random_entry(random, entry, value, where, problems)
            else:
                checked = check_values(name, values, where, problems)
                factors[name] = tuple((assignment,) for assignment in checked if assignment)
        given.add(name)
    return Overrides(tuple(factor for factor in factors.values() if factor), seeds, scale, random)


def _parse_scale(values: list[Value], where: str, problems: Problems) -> str | None:
    """The name of one scale; expand.py checks that the study has it."""
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    problems.add(where, "expected the name of one scale, such as scale=tiny")
    return None


def _parse_values(text: str, where: str, problems: Problems) -> list[Value] | None:
    """The comma-separated values; None, after adding a problem, if one is missing or exceeds the TOML limits."""
    pieces = [piece.strip() for piece in split_outside_quotes(text, ",")]
    if not all(pieces):
        problems.add(where, "expected a value after = and between commas")
        return None
    try:
        return [parse_value(piece) for piece in pieces]
    except LimitError as limit:
        problems.add(where, str(limit))
        return None
