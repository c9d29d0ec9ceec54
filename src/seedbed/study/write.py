"""Studies as TOML text: a resolved one that plans to the same runs, and an example to begin with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from seedbed.settings import Settings, Value
from seedbed.study.declarations import Declarations, format_declarations
from seedbed.study.definition import SETTING_GROUPS
from seedbed.study.expand import has_effect
from seedbed.study.toml_format import format_toml_value


def load_example_study() -> str:
    """A study file with comments, for someone about to write their own."""
    return (resources.files("seedbed.study") / "example.toml").read_text(encoding="utf-8")


def format_study(
    name: str,
    question: str,
    seeds: Sequence[int],
    configs: Sequence[Settings],
    axes: Iterable[str],
    declared: Declarations,
) -> str:
    """The study with every dial written out: once in [base] where all points agree, else point by point."""
    dials = [_effective_settings(settings) for settings in configs]
    common = {name: value for name, value in dials[0].items() if all(one.get(name) == value for one in dials)}
    head = {"name": name} | ({"question": question} if question else {}) | {"seeds": list(seeds)}
    lines = _format_pairs(head)
    if len(configs) > 1:
        lines += [
            "configs = [",
            *(f"  {_format_inline_table(_config_settings(one, common, axes))}," for one in dials),
            "]",
        ]
    for part in SETTING_GROUPS:
        inside = {name.removeprefix(f"{part}."): value for name, value in common.items() if name.startswith(f"{part}.")}
        lines += ["", f"[base.{part}]", *_format_pairs(inside)]
    return "\n".join(lines + format_declarations(declared)) + "\n"


def _effective_settings(settings: Settings) -> dict[str, Value]:
    """The dials that do something in these settings; TOML has no word for an unset one, so it is left out."""
    return {name: value for name, value in settings.flat().items() if value is not None and has_effect(name, settings)}


def _config_settings(values: Mapping[str, Value], common: Mapping[str, Value], axes: Iterable[str]) -> dict[str, Value]:
    """What a point adds to the base, the axes first and in their order."""
    return {name: values[name] for name in (*axes, *values) if name in values and name not in common}


def _format_inline_table(values: Mapping[str, Value]) -> str:
    return "{ " + ", ".join(_format_pairs(values)) + " }"


def _format_pairs(values: Mapping[str, Value]) -> list[str]:
    return [f"{name} = {format_toml_value(value)}" for name, value in values.items()]
