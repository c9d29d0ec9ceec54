"""The reference of all settings and of the codes of errors; everything in it is read from their fields and classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from seedbed.errors import EXIT_CODES, UsageError, error_classes
from seedbed.report.tables import Table
from seedbed.settings import (
    MODEL_SETTINGS,
    TASK_SETTINGS,
    SettingsGroup,
    TrainSettings,
    all_settings,
    describe_accepted_values,
    traits_of,
)
from seedbed.study.former_words import replacement_of
from seedbed.study.toml_text import did_you_mean, format_toml_value

GROUPS: dict[str, dict[str, type[SettingsGroup]]] = {
    "task": {**TASK_SETTINGS},
    "model": {**MODEL_SETTINGS},
    "train": {"": TrainSettings},
}


def find_settings(name: str | None) -> list[str]:
    """The settings that a name means: one by its dotted name or its last part, a group (`train`), or all (None)."""
    known = list(all_settings())
    if name is None:
        return known
    found = [one for one in known if name in (one, one.rpartition(".")[2], one.partition(".")[0])]
    if not found:
        if replacement := replacement_of(name):
            raise UsageError(f"{name} is now called {replacement}")
        raise UsageError(f"{name} is not a setting{did_you_mean(name, known)}; `seedbed settings` lists them all")
    return found


def setting_tables(names: list[str]) -> Iterator[Table]:
    """One table for each kind of task and model, and one for training, with the settings among these names."""
    for group, kinds in GROUPS.items():
        for kind, cls in kinds.items():
            rows = tuple(
                (f"{group}.{name}", _format_default(field.default), field.description or "")
                for name, field in cls.model_fields.items()
                if f"{group}.{name}" in names
            )
            if rows:
                title = f"{group}.kind = {kind}: {_first_line(cls)}" if kind else f"{group}: {_first_line(cls)}"
                yield Table(title, ("setting", "default", "meaning"), rows, n_labels=3)


def describe_setting(name: str) -> Table:
    """Everything that is known of one setting."""
    entry = setting_as_json(name)
    return Table(name, ("meaning", entry["meaning"]), tuple(_describe(entry)), n_labels=2)


def _describe(entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for kinds, default in entry["defaults"].items():
        yield f"default ({kinds})" if kinds else "default", default
    yield "accepts", entry["accepts"]
    if entry["unit"]:
        yield "unit", entry["unit"]
    for kinds, conditions in entry["active_when"].items():
        label = f"has an effect ({kinds})" if kinds else "has an effect"
        yield label, " and ".join(f"where {one}" for one in conditions) or "always"
    yield "within a pack", "runs may differ in it" if entry["per_run"] else "all runs have the same value"
    if entry["former_names"]:
        yield "former name", ", ".join(entry["former_names"])


def setting_as_json(name: str) -> dict[str, Any]:
    """Meaning, defaults by kind, accepted values, unit and traits of one setting."""
    group, _, field_name = name.partition(".")
    fields = {
        kind: cls.model_fields[field_name] for kind, cls in GROUPS[group].items() if field_name in cls.model_fields
    }
    everywhere = len(fields) == len(GROUPS[group])
    defaults = {kind: _format_default(field.default) for kind, field in fields.items()}
    conditions = {kind: tuple(map(str, traits_of(field).active_when)) for kind, field in fields.items()}
    traits = traits_of(next(iter(fields.values())))
    return {
        "name": name,
        "meaning": " / ".join(dict.fromkeys(field.description or "" for field in fields.values())),
        "defaults": _by_kinds(defaults, everywhere),
        "accepts": describe_accepted_values(name),
        "unit": traits.unit,
        "per_run": traits.per_run,
        "active_when": _by_kinds(conditions, everywhere),
        "former_names": list(traits.former_names),
    }


def _by_kinds(values: Mapping[str, Any], everywhere: bool) -> dict[str, Any]:
    """Values by the kinds that share them, such as `gpt, lstm`; by the empty name where all kinds share one."""
    kinds: dict[Any, list[str]] = {}
    for kind, value in values.items():
        kinds.setdefault(value, []).append(kind)
    return {"" if everywhere and len(kinds) == 1 else ", ".join(names): value for value, names in kinds.items()}


def _format_default(value: Any) -> str:
    return "unset" if value is None else format_toml_value(value)


def _first_line(cls: type[SettingsGroup]) -> str:
    text = (cls.__doc__ or "").splitlines()[0].rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


# ---- error codes ----


def error_tables() -> list[Table]:
    """All codes, and all exit codes."""
    classes = sorted(error_classes(), key=lambda one: one.code)
    codes = [(one.code, str(one.exit_code), one.explanation.meaning, one.explanation.command) for one in classes]
    exits = [(str(code), meaning) for code, meaning in EXIT_CODES.items()]
    return [
        Table("", ("code", "exit code", "meaning", "next"), tuple(codes), n_labels=4),
        Table("", ("exit code", "meaning"), tuple(exits), n_labels=2),
    ]


def explain_error(code: str) -> list[str]:
    """What holds of every error with this code."""
    by_code = {one.code: one for one in error_classes()}
    found = by_code.get(code.upper().strip("[]"))
    if found is None:
        raise UsageError(f"there is no error {code}{did_you_mean(code.upper(), by_code)}; list all: seedbed explain")
    one = found.explanation
    return [
        f"{found.code} {found.__name__}, exit code {found.exit_code}",
        f"  what it means  {one.meaning}",
        f"  what was found {one.found}",
        f"  what is safe   {one.safe}",
        f"  what to do     {one.next}: {one.command}",
    ]
