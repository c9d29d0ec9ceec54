"""`key=value` on the command line: overrides for the verbs that plan, filters for those that read.

Commas outside brackets sweep, brackets are one value, and values are TOML or else plain text:
`model.layers=3`, `train.lr=1e-3,3e-4`, `task.orders=[2,3]`, `model.kind=lstm`, `seeds=5`, `seeds=0,1,2`, `seeds=[42]`.
`scale=tiny` lays the study's `[scales.tiny]` over every point.

>>> words = parse_words(["train.lr=1e-3,3e-4", "seeds=2"])
>>> matches(Settings(), 1, words), matches(Settings(), 2, words)
(True, False)
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seedbed.settings import Settings, Value, all_settings
from seedbed.study.definition import Factor, Problems, check_setting, parse_seeds
from seedbed.study.toml_format import format_toml_value, truncate_text
from seedbed.study.toml_scanner import LimitExceeded, check_toml_limits


@dataclass(frozen=True)
class Overrides:
    """What the words say: one factor for each dial, and the seeds and the scale where they are given."""

    factors: tuple[Factor, ...] = ()
    seeds: tuple[int, ...] | None = None
    scale: str | None = None


def parse_overrides(arguments: Sequence[str]) -> Overrides:
    """The meaning of some words; StudyError with all problems when they have none."""
    findings = Problems()
    parsed = collect_overrides(arguments, findings)
    findings.raise_if_any()
    return parsed


def collect_overrides(arguments: Sequence[str], problems: Problems) -> Overrides:
    """As `parse_words`, but problems become findings and their words are left out."""
    factors: dict[str, Factor] = {}
    seeds: tuple[int, ...] | None = None
    scale: str | None = None
    given: set[str] = set()
    for word in arguments:
        where = f"word '{truncate_text(format_toml_value(word)[1:-1])}'"
        name, sign, text = word.partition("=")
        name = name.strip()
        if not sign or not name:
            problems.add(where, "expected key=value, such as model.layers=3")
        elif name in given:
            problems.add(where, f"{name} is given twice; commas sweep, as in {name}=A,B")
        elif (values := _parse_values(text, where, problems)) is not None:
            if name == "seeds":
                seeds = parse_seeds(values[0] if len(values) == 1 else values, where, problems)
            elif name == "scale":
                scale = _parse_scale(values, where, problems)
            else:
                tried = (
                    values if name in all_settings() else values[:1]
                )  # an unknown name is one problem, not one a value
                dials = [check_setting(name, value, where, problems) for value in tried]
                factors[name] = tuple((dial,) for dial in dials if dial)
        given.add(name)
    return Overrides(tuple(factor for factor in factors.values() if factor), seeds, scale)


def _parse_scale(values: list[Value], where: str, problems: Problems) -> str | None:
    """The name of one scale; which ones there are is the study's."""
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    problems.add(where, "expected the name of one scale, such as scale=tiny")
    return None


def _parse_values(text: str, where: str, problems: Problems) -> list[Value] | None:
    """The values between the commas; None, and a finding, when one is missing or too large to read."""
    pieces = list(_split_at_commas(text))
    if not all(pieces):
        problems.add(where, "expected a value after = and between commas")
        return None
    try:
        return [_parse_value(piece) for piece in pieces]
    except LimitExceeded as limit:
        problems.add(where, str(limit))
        return None


def _split_at_commas(text: str) -> Iterator[str]:
    """The pieces between commas that stand outside brackets and quotes."""
    depth, quote, start = 0, "", 0
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "," and depth <= 0:
            yield text[start:place].strip()
            start = place + 1
    yield text[start:].strip()


def _parse_value(piece: str) -> Value:
    """A TOML value, or the piece itself as text."""
    line = f"value = {piece}"
    check_toml_limits(line)
    if "\n" in piece or "\r" in piece:  # would be read as several lines
        return piece
    try:
        return tomllib.loads(line)["value"]
    except ValueError:
        return piece


def matches_overrides(settings: Settings, seed: int, overrides: Overrides) -> bool:
    """Whether a run has one of the values that each word asks for."""
    if overrides.seeds is not None and seed not in overrides.seeds:
        return False
    dials = settings.flat()
    wanted = [[dial for (dial,) in factor] for factor in overrides.factors]
    return all(any(_equals(dials.get(dial.name), dial.value) for dial in choices) for choices in wanted)


def _equals(found: Value, wanted: Value) -> bool:
    """Equal, where a list means a tuple and `orders=2` means `orders=[2]`."""
    wanted = tuple(wanted) if isinstance(wanted, list) else wanted
    return bool(found == wanted or found == (wanted,))
