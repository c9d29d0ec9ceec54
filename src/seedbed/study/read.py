"""A study file → Study, with every problem of the file in one pass; what its runs are is left to plan.py.

    study = read_study(find_study("arithmetic/sanity"))

A file is read within limits that are checked before it is parsed, and nothing in it is ever run as code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from seedbed.settings import Value, all_dials
from seedbed.study.exclude import BadRule, Rule, parse_rule
from seedbed.study.expand import expand_study
from seedbed.study.files import parse_toml, read_text, shipped_studies
from seedbed.study.lines import line_numbers
from seedbed.study.parts import MAX_RUNS, PARTS, Choice, Dial, Factor, Findings, Study, check_dial, check_seeds, written
from seedbed.study.shows import read_shown
from seedbed.study.spell import shortened, shown, toml_key
from seedbed.study.words import find_words

DEFAULT_SEEDS: Final = (0, 42)
SHAPES: Final = ("base", "scales", "grid", "zip", "points", "exclude")
KEYS: Final = ("name", "question", "seeds", *SHAPES, "figures", "questions")
MAX_NAME: Final = 100


def read_study(path: Path, words: Sequence[str] = ()) -> Study:
    """The study in this file; StudyError with all its problems, and those of the words that go with it."""
    return parse_study(read_text(path), str(path), words)


def parse_study(text: str, path: str, words: Sequence[str] = ()) -> Study:
    """The study of a file's text; the path names it in problems, and the study where the text does not."""
    document = parse_toml(text, path)
    findings = Findings()
    study = _Page(path, line_numbers(text), findings).read(document)
    if findings:
        expand_study(study, find_words(words, findings), findings)  # conflicts belong to the same pass
    findings.raise_if_any()
    return study


@dataclass(frozen=True)
class _Page:
    """One parsed file: what its keys mean, and where they stand."""

    path: str
    lines: Mapping[str, int]
    findings: Findings

    @cached_property
    def ranks(self) -> dict[str, int]:
        """The place of each key in the file, which nested tables do not keep."""
        return {key: rank for rank, key in enumerate(self.lines)}

    def read(self, document: Mapping[str, Value]) -> Study:
        for key in document:
            if key not in KEYS:
                what = f"{shortened(toml_key(key))} is not a key of a study file"
                known = [*KEYS, *(f"base.{part}" for part in PARTS)]
                self.findings.add_unknown(self.where(key), key, what, known)
        declared = read_shown(document, self.where, self.findings)
        return Study(
            where=self.path,
            name=self.read_name(document),
            question=self.read_text(document, "question"),
            seeds=self.read_seeds(document),
            base=self.read_choice(document.get("base", {}), "base"),
            factors=self.read_factors(document),
            exclude=tuple(self.read_exclude(document)),
            scales=self.read_scales(document),
            figures=declared.figures,
            questions=declared.questions,
        )

    def where(self, key: str) -> str:
        """The line of a dotted key, or of the nearest table around it."""
        while key and key not in self.lines:
            key = key.rpartition(".")[0]
        return f"{self.path}:{self.lines.get(key, 1)}"

    def add(self, key: str, what: str) -> None:
        self.findings.add(self.where(key), what)

    def check(self, name: str, value: Value, path: str) -> Dial | None:
        return check_dial(name, value, self.where(path), self.findings)

    def read_text(self, document: Mapping[str, Value], key: str) -> str:
        value = document.get(key, "")
        if not isinstance(value, str):
            self.add(key, f"{key} = {shown(value)}: expected a text")
            return ""
        return value

    def read_name(self, document: Mapping[str, Value]) -> str:
        if "name" not in document:
            return _name_of(Path(self.path))
        name = self.read_text(document, "name")
        if isinstance(document["name"], str) and name != _safe_name(name):
            accepted = f"1 to {MAX_NAME} letters, digits, spaces and . _ - /, no part beginning with a dot"
            self.add("name", f"name = {shown(name)}: expected {accepted}")
        return name

    def read_seeds(self, document: Mapping[str, Value]) -> tuple[int, ...]:
        if "seeds" not in document:
            return DEFAULT_SEEDS
        return check_seeds(document["seeds"], self.where("seeds"), self.findings)

    def read_factors(self, document: Mapping[str, Value]) -> tuple[Factor, ...]:
        """Points change slowest, then zips, then the grid, each in the order of the file."""
        points = [self.read_points(document["points"])] if "points" in document else []
        zips = [self.read_zip(table, key) for table, key in self.tables(document, "zip")]
        grid = [self.read_axis(name, values, key) for name, values, key in self.dials(document.get("grid", {}), "grid")]
        factors = tuple(factor for factor in (*points, *zips, *grid) if factor)
        self.find_rivals(factors)
        return factors

    def read_choice(self, table: Value, key: str) -> Choice:
        """The dials of a table, each with one value."""
        dials = [self.check(name, value, path) for name, value, path in self.dials(table, key)]
        return tuple(dial for dial in dials if dial)

    def read_scales(self, document: Mapping[str, Value]) -> dict[str, Choice]:
        """Sizes of the same study by name: dials that go over base, points and grid."""
        scales = document.get("scales", {})
        if not isinstance(scales, dict):
            self.add("scales", f"scales = {shown(scales)}: expected tables such as [scales.tiny]")
            return {}
        return {name: self.read_choice(table, f"scales.{name}") for name, table in scales.items()}

    def read_points(self, value: Value) -> Factor:
        if value == []:
            self.add("points", "points = []: expected at least one point")
        return tuple(self.read_choice(table, key) for table, key in self.tables({"points": value}, "points"))

    def read_axis(self, name: str, values: Value, key: str) -> Factor:
        """The values of one dial of the grid."""
        return tuple((dial,) for dial in self.read_values(name, values, key) if dial)

    def read_zip(self, table: Value, key: str) -> Factor:
        """The dials of a group, one value of each at a time."""
        found = list(self.dials(table, key))
        columns = [self.read_values(name, values, path) for name, values, path in found]
        lengths = {name: len(values) for name, values, _ in found if isinstance(values, list)}
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{name} has {n}" for name, n in lengths.items())
            self.add(key, f"lists of unequal length in one [[zip]]: {said}")
        elif not found:
            self.add(key, "an empty [[zip]]: expected lists of values that go together")
        rows = zip(*columns, strict=False)
        return tuple(tuple(dial for dial in row if dial) for row in rows)

    def read_values(self, name: str, values: Value, key: str) -> list[Dial | None]:
        """One dial for each item of the list; None where it cannot be."""
        if name not in all_dials():
            self.check(name, values, key)
            return []
        if isinstance(values, list) and 1 <= len(values) <= MAX_RUNS:
            return [self.check(name, value, f"{key}.{place}") for place, value in enumerate(values)]
        if isinstance(values, list) and values:
            self.add(key, f"{name} has {len(values):,} values; at most {MAX_RUNS:,} are accepted")
        else:
            wanted = "one value or more" if values == [] else "values to try"
            self.add(key, f"{written(name, values)}: expected a list of {wanted}")
        return []

    def read_exclude(self, document: Mapping[str, Value]) -> Iterator[Rule]:
        value = document.get("exclude", [])
        for place, text in enumerate(value if isinstance(value, list) else [value]):
            key = f"exclude.{place}"
            if not isinstance(text, str):
                self.add(key, f'exclude = {shown(text)}: expected a text such as "model.layers == 3"')
                continue
            try:
                yield parse_rule(text, self.where(key))
            except BadRule as reason:
                self.add(key, f"exclude = {shown(text)}: {reason}")

    def find_rivals(self, factors: Sequence[Factor]) -> None:
        """A dial may vary in one place only."""
        places: dict[str, Dial] = {}
        for factor in factors:
            for name, dial in {dial.name: dial for choice in reversed(factor) for dial in choice}.items():
                first = places.setdefault(name, dial)
                if first is not dial:
                    self.findings.add(dial.where, f"{name} varies in two places, here and at {first.where}")

    def tables(self, document: Mapping[str, Value], key: str) -> Iterator[tuple[Value, str]]:
        """The tables of a list of tables, with their paths."""
        value = document.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.add(key, f"{key} = {shown(value)}: expected tables that begin with [[{key}]]")
            return
        for place, table in enumerate(value):
            yield table, f"{key}.{place}"

    def dials(self, table: Value, key: str) -> Iterator[tuple[str, Value, str]]:
        """The dials of a table by dotted name, whether nested, dotted or quoted, with their paths."""
        if not isinstance(table, dict):
            self.add(key, f"{key} = {shown(table)}: expected a table such as [{key}]")
            return
        seen = set()
        leaves = [(name, value, f"{key}.{name}") for name, value in _leaves(table, "")]
        for name, value, path in sorted(leaves, key=lambda leaf: self.ranks.get(leaf[2], 0)):
            if name in seen:
                self.add(path, f"{shortened(toml_key(name))} is set twice in one table")
            else:
                yield name, value, path
            seen.add(name)


def _leaves(table: Mapping[str, Value], path: str) -> Iterator[tuple[str, Value]]:
    for key, value in table.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, dict) and (value or name in PARTS):
            yield from _leaves(value, name)
        else:
            yield name, value


def _name_of(path: Path) -> str:
    shipped = {file: name for name, file in shipped_studies().items()}
    return shipped.get(path, _safe_name(path.stem))


def _safe_name(text: str) -> str:
    """The text as a name that can also be a folder's, within the store's own."""
    parts = [re.sub(r"[^\w .-]", "-", part).strip(" ").lstrip(".") for part in text.split("/")]
    return "/".join(part for part in parts if part)[:MAX_NAME] or "study"
