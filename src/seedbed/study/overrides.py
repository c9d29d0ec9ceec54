"""`key=value` arguments of `run` and `plan`, which override settings of a study; `run_filter` has filters of runs.

Commas outside brackets separate the values of a sweep; a value is TOML or else plain text:
`model.layers=3`, `train.lr=1e-3,3e-4`, `task.orders=[2,3]`, `model.kind=lstm`, `seeds=5`, `seeds=0,1,2`, `seeds=[42]`.
A value may be a range (ranges.py): `"train.lr=log 1e-4..1e-1 x12"`, `model.layers=1..4`, `seeds=0..15`. `scale=tiny`
applies the study's `[scales.tiny]` to every config; `random.n_configs=80` and `"random.train.lr=log 1e-4..1e-1"` stand
for entries of the study's `[random]`.

>>> parse_overrides(["train.lr=1e-3,3e-4", "seeds=2"]).seeds
(0, 1)
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seedbed.settings import Value
from seedbed.study.definition import NO_RANDOM_SEARCH, Factor, Problems, RandomSearch, check_values, parse_seeds
from seedbed.study.random_search import parse_random_entry
from seedbed.study.toml_format import format_toml_value, truncate_text
from seedbed.study.toml_scanner import LimitError, check_toml_limits

RANDOM_PREFIX = "random."  # of arguments that belong to the study's random search


@dataclass(frozen=True)
class Overrides:
    """Parsed arguments: one factor per setting; seeds, scale and random search where given."""

    factors: tuple[Factor, ...] = ()
    seeds: tuple[int, ...] | None = None
    scale: str | None = None
    random: RandomSearch = NO_RANDOM_SEARCH


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


def split_outside_quotes(text: str, separators: str) -> Iterator[str]:
    """The pieces of a text between any of these characters, where they are outside brackets and quotes."""
    depth, quote, start = 0, "", 0
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character in separators and depth <= 0:
            yield text[start:index]
            start = index + 1
    yield text[start:]


def parse_value(piece: str) -> Value:
    """A TOML value, or the text itself if it is not TOML; LimitError if it is too large to read."""
    line = f"value = {piece}"
    check_toml_limits(line)
    if "\n" in piece or "\r" in piece:  # TOML would read several lines
        return piece
    try:
        return tomllib.loads(line)["value"]
    except ValueError:
        return piece
