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

from seedbed.settings import Settings, Value, all_dials
from seedbed.study.lines import OverLimit, check_limits
from seedbed.study.parts import Factor, Findings, check_dial, check_seeds
from seedbed.study.spell import shortened, toml_value


@dataclass(frozen=True)
class Words:
    """What the words say: one factor for each dial, and the seeds and the scale where they are given."""

    factors: tuple[Factor, ...] = ()
    seeds: tuple[int, ...] | None = None
    scale: str | None = None


def parse_words(words: Sequence[str]) -> Words:
    """The meaning of some words; StudyError with all problems when they have none."""
    findings = Findings()
    parsed = find_words(words, findings)
    findings.raise_if_any()
    return parsed


def find_words(words: Sequence[str], findings: Findings) -> Words:
    """As `parse_words`, but problems become findings and their words are left out."""
    factors: dict[str, Factor] = {}
    seeds: tuple[int, ...] | None = None
    scale: str | None = None
    given: set[str] = set()
    for word in words:
        where = f"word '{shortened(toml_value(word)[1:-1])}'"
        name, sign, text = word.partition("=")
        name = name.strip()
        if not sign or not name:
            findings.add(where, "expected key=value, such as model.layers=3")
        elif name in given:
            findings.add(where, f"{name} is given twice; commas sweep, as in {name}=A,B")
        elif (values := _values(text, where, findings)) is not None:
            if name == "seeds":
                seeds = check_seeds(values[0] if len(values) == 1 else values, where, findings)
            elif name == "scale":
                scale = _scale(values, where, findings)
            else:
                tried = values if name in all_dials() else values[:1]  # an unknown name is one problem, not one a value
                dials = [check_dial(name, value, where, findings) for value in tried]
                factors[name] = tuple((dial,) for dial in dials if dial)
        given.add(name)
    return Words(tuple(factor for factor in factors.values() if factor), seeds, scale)


def _scale(values: list[Value], where: str, findings: Findings) -> str | None:
    """The name of one scale; which ones there are is the study's."""
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    findings.add(where, "expected the name of one scale, such as scale=tiny")
    return None


def _values(text: str, where: str, findings: Findings) -> list[Value] | None:
    """The values between the commas; None, and a finding, when one is missing or too large to read."""
    pieces = list(_split(text))
    if not all(pieces):
        findings.add(where, "expected a value after = and between commas")
        return None
    try:
        return [_value(piece) for piece in pieces]
    except OverLimit as limit:
        findings.add(where, str(limit))
        return None


def _split(text: str) -> Iterator[str]:
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


def _value(piece: str) -> Value:
    """A TOML value, or the piece itself as text."""
    line = f"value = {piece}"
    check_limits(line)
    if "\n" in piece or "\r" in piece:  # would be read as several lines
        return piece
    try:
        return tomllib.loads(line)["value"]
    except ValueError:
        return piece


def matches(settings: Settings, seed: int, words: Words) -> bool:
    """Whether a run has one of the values that each word asks for."""
    if words.seeds is not None and seed not in words.seeds:
        return False
    dials = settings.dials()
    wanted = [[dial for (dial,) in factor] for factor in words.factors]
    return all(any(_same(dials.get(dial.name), dial.value) for dial in choices) for choices in wanted)


def _same(found: Value, wanted: Value) -> bool:
    """Equal, where a list means a tuple and `orders=2` means `orders=[2]`."""
    wanted = tuple(wanted) if isinstance(wanted, list) else wanted
    return bool(found == wanted or found == (wanted,))
