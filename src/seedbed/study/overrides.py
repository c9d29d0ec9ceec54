"""`key=value` arguments of the command line: overrides for commands that plan, filters for commands that read.

Commas outside brackets separate the values of a sweep; a value is TOML or else plain text:
`model.layers=3`, `train.lr=1e-3,3e-4`, `task.orders=[2,3]`, `model.kind=lstm`, `seeds=5`, `seeds=0,1,2`, `seeds=[42]`.
`scale=tiny` applies the study's `[scales.tiny]` to every config.

>>> overrides = parse_overrides(["train.lr=1e-3,3e-4", "seeds=2"])
>>> matches_overrides(Settings(), 1, overrides), matches_overrides(Settings(), 2, overrides)
(True, False)
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seedbed.settings import Settings, Value, all_settings, matches_value
from seedbed.study.definition import Factor, Problems, check_setting, parse_seeds
from seedbed.study.toml_format import format_toml_value, truncate_text
from seedbed.study.toml_scanner import LimitError, check_toml_limits


@dataclass(frozen=True)
class Overrides:
    """Parsed arguments: one factor per setting, and seeds and scale where given."""

    factors: tuple[Factor, ...] = ()
    seeds: tuple[int, ...] | None = None
    scale: str | None = None


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
            else:
                # Of an unknown setting check only the first value, so that it is reported once.
                checked_values = values if name in all_settings() else values[:1]
                checked = [check_setting(name, value, where, problems) for value in checked_values]
                factors[name] = tuple((assignment,) for assignment in checked if assignment)
        given.add(name)
    return Overrides(tuple(factor for factor in factors.values() if factor), seeds, scale)


def _parse_scale(values: list[Value], where: str, problems: Problems) -> str | None:
    """The name of one scale; expand.py checks that the study has it."""
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    problems.add(where, "expected the name of one scale, such as scale=tiny")
    return None


def _parse_values(text: str, where: str, problems: Problems) -> list[Value] | None:
    """The comma-separated values; None, after adding a problem, if one is missing or exceeds the TOML limits."""
    pieces = list(_split_at_commas(text))
    if not all(pieces):
        problems.add(where, "expected a value after = and between commas")
        return None
    try:
        return [_parse_value(piece) for piece in pieces]
    except LimitError as limit:
        problems.add(where, str(limit))
        return None


def _split_at_commas(text: str) -> Iterator[str]:
    """Split at commas outside brackets and quotes."""
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
        elif character == "," and depth <= 0:
            yield text[start:index].strip()
            start = index + 1
    yield text[start:].strip()


def _parse_value(piece: str) -> Value:
    """A TOML value, or the text itself if it is not TOML."""
    line = f"value = {piece}"
    check_toml_limits(line)
    if "\n" in piece or "\r" in piece:  # TOML would read several lines
        return piece
    try:
        return tomllib.loads(line)["value"]
    except ValueError:
        return piece


def matches_overrides(settings: Settings, seed: int, overrides: Overrides) -> bool:
    """Whether a run has, for each override, one of its values."""
    if overrides.seeds is not None and seed not in overrides.seeds:
        return False
    wanted = [[assignment for (assignment,) in factor] for factor in overrides.factors]
    return all(any(matches_value(settings.get(one.name), one.value) for one in accepted) for accepted in wanted)
