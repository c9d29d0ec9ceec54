"""Studies as TOML text: the resolved study, which plans to the same runs, and the example study."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from seedbed.settings import Settings, Value
from seedbed.study.declarations import Declarations, format_declarations
from seedbed.study.definition import SETTING_GROUPS
from seedbed.study.toml_format import format_toml_value


def load_example_study() -> str:
    """A commented study file to start from."""
    return (resources.files("seedbed.study") / "example.toml").read_text(encoding="utf-8")


def format_study(
    name: str,
    question: str,
    seeds: Sequence[int],
    configs: Sequence[Settings],
    axes: Iterable[str],
    declared: Declarations,
) -> str:
    """The study with every setting written out: in [base] where all configs agree, else per config."""
    values = [_effective_settings(settings) for settings in configs]
    common = {name: value for name, value in values[0].items() if all(one.get(name) == value for one in values)}
    head = {"name": name} | ({"question": question} if question else {}) | {"seeds": list(seeds)}
    lines = _format_pairs(head)
    if len(configs) > 1:
        lines += [
            "configs = [",
            *(f"  {_format_inline_table(_config_settings(one, common, axes))}," for one in values),
            "]",
        ]
    for part in SETTING_GROUPS:
        inside = {name.removeprefix(f"{part}."): value for name, value in common.items() if name.startswith(f"{part}.")}
        lines += ["", f"[base.{part}]", *_format_pairs(inside)]
    return "\n".join(lines + format_declarations(declared)) + "\n"


def _effective_settings(settings: Settings) -> dict[str, Value]:
    """The settings that have an effect and are set; TOML has no null, so unset ones are omitted."""
    return {name: value for name, value in settings.flat().items() if value is not None and settings.is_active(name)}


def _config_settings(values: Mapping[str, Value], common: Mapping[str, Value], axes: Iterable[str]) -> dict[str, Value]:
    """The settings of a config that are not in [base], axes first."""
    return {name: values[name] for name in (*axes, *values) if name in values and name not in common}


def _format_inline_table(values: Mapping[str, Value]) -> str:
    return "{ " + ", ".join(_format_pairs(values)) + " }"


def _format_pairs(values: Mapping[str, Value]) -> list[str]:
    return [f"{name} = {format_toml_value(value)}" for name, value in values.items()]
