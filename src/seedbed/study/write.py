"""Studies as TOML text: a resolved one that plans to the same runs, and an example to begin with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from seedbed.settings import Settings, Value
from seedbed.study.expand import has_effect
from seedbed.study.parts import PARTS
from seedbed.study.shows import Declared, write_shown
from seedbed.study.spell import toml_value


def write_example() -> str:
    """A study file with comments, for someone about to write their own."""
    return (resources.files("seedbed.study") / "example.toml").read_text(encoding="utf-8")


def write_study(
    name: str,
    question: str,
    seeds: Sequence[int],
    points: Sequence[Settings],
    axes: Iterable[str],
    declared: Declared,
) -> str:
    """The study with every dial written out: once in [base] where all points agree, else point by point."""
    dials = [_written_dials(settings) for settings in points]
    common = {name: value for name, value in dials[0].items() if all(one.get(name) == value for one in dials)}
    head = {"name": name} | ({"question": question} if question else {}) | {"seeds": list(seeds)}
    lines = _pairs(head)
    if len(points) > 1:
        lines += ["points = [", *(f"  {_table(_rest(one, common, axes))}," for one in dials), "]"]
    for part in PARTS:
        inside = {name.removeprefix(f"{part}."): value for name, value in common.items() if name.startswith(f"{part}.")}
        lines += ["", f"[base.{part}]", *_pairs(inside)]
    return "\n".join(lines + write_shown(declared)) + "\n"


def _written_dials(settings: Settings) -> dict[str, Value]:
    """The dials that do something in these settings; TOML has no word for an unset one, so it is left out."""
    return {name: value for name, value in settings.dials().items() if value is not None and has_effect(name, settings)}


def _rest(dials: Mapping[str, Value], common: Mapping[str, Value], axes: Iterable[str]) -> dict[str, Value]:
    """What a point adds to the base, the axes first and in their order."""
    return {name: dials[name] for name in (*axes, *dials) if name in dials and name not in common}


def _table(dials: Mapping[str, Value]) -> str:
    return "{ " + ", ".join(_pairs(dials)) + " }"


def _pairs(values: Mapping[str, Value]) -> list[str]:
    return [f"{name} = {toml_value(value)}" for name, value in values.items()]
