"""The form of a study: every setting of its runs with description, range and values, from the settings' JSON schema.

    build_form(Path("lab"), PlanRequest("quickstart", "shipped"))["groups"][0]["fields"]

Values are written as in command-line overrides, so the text of a field is the value of an override.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from seedbed.data.catalogue import CATALOGUE
from seedbed.settings import (
    MODEL_SETTINGS,
    TASK_SETTINGS,
    Settings,
    TrainSettings,
    Value,
    describe_accepted_values,
    setting_traits,
)
from seedbed.study.definition import Problems, Study
from seedbed.study.expand import expand_study
from seedbed.study.overrides import Overrides, parse_overrides
from seedbed.study.read import parse_study
from seedbed.web.plan_preview import PlanRequest, get_question, load_study_text

KIND_OVERRIDE_PREFIXES: Final = ("task.kind=", "model.kind=")  # overrides that change which settings exist
GROUP_TITLES: Final = {"task": "Task", "model": "Model", "train": "Training"}


def build_form(home: Path, request: PlanRequest) -> dict[str, Any]:
    """The form fields of a study: those it sets or varies first, then the defaults by group."""
    text, name = load_study_text(home, request)
    study = parse_study(text, name, stored=request.source == "stored")
    configs = _expand_configs(study, [text for text in request.overrides if text.startswith(KIND_OVERRIDE_PREFIXES)])
    fields = {group: list(_setting_fields(group, configs)) for group in GROUP_TITLES}
    own = _study_fields(study) + [field for some in fields.values() for field in some if field["own"]]
    groups = {"Of this study": own} | {
        f"{title}, defaults": [field for field in fields[group] if not field["own"]]
        for group, title in GROUP_TITLES.items()
    }
    return {
        "study": request.study,
        "source": request.source,
        "question": get_question(text, name),
        "groups": [{"name": name, "fields": fields} for name, fields in groups.items() if fields],
    }


def _expand_configs(study: Study, kinds: Sequence[str]) -> tuple[Settings, ...]:
    """The study's configs with other kinds if overridden; conflicts are reported by the plan, not here."""
    return (
        expand_study(study, parse_overrides(kinds), Problems()).configs
        or expand_study(study, Overrides(), Problems()).configs
    )


def _study_fields(study: Study) -> list[dict[str, Any]]:
    seeds = study.seeds
    is_range = len(seeds) > 1 and seeds == tuple(range(len(seeds)))
    fields = [
        {
            "name": "seeds", "meaning": "number of seeds of every config (5: seeds 0 to 4), or a list such as [0,42]",
            "accepted": "a number of seeds, or a list of whole numbers", "kind": "list", "choices": [], "varies": False,
            "values": [str(len(seeds)) if is_range else format_override_value(seeds)], "has_effect": True,
        }
    ]  # fmt: skip
    if study.scales:
        fields.append({
            "name": "scale", "meaning": "another size of the same study, applied to all its configs",
            "accepted": f"one of {', '.join(study.scales)}", "kind": "one", "choices": list(study.scales),
            "varies": False, "values": [], "has_effect": True,
        })  # fmt: skip
    return fields


def _setting_fields(group: str, configs: Sequence[Settings]) -> Iterator[dict[str, Any]]:
    flat = [config.flat() for config in configs]
    changed = {name for config in configs for name in config.non_default()} | {"task.kind", "model.kind"}
    for name, schema in _schema_properties(group, configs).items():
        values = list(dict.fromkeys(format_override_value(one[name]) for one in flat if one.get(name) is not None))
        kind, choices = _input_kind(name, schema)
        yield {
            "name": name, "meaning": schema.get("description", ""), "accepted": describe_accepted_values(name),
            "kind": kind, "choices": choices, "varies": len(values) > 1, "values": values,
            "has_effect": any(config.is_active(name) for config in configs),
            "fixed": setting_traits(name).names_local_file, "own": name in changed,
        }  # fmt: skip


def _schema_properties(group: str, configs: Sequence[Settings]) -> dict[str, dict[str, Any]]:
    """The JSON schema of every setting in this group, over the kinds that occur in the configs."""
    kinds: dict[str, Mapping[str, type[Any]]] = {"task": TASK_SETTINGS, "model": MODEL_SETTINGS}
    if group == "train":
        classes: list[type[Any]] = [TrainSettings]
    else:
        classes = [kinds[group][name] for name in dict.fromkeys(getattr(config, group).kind for config in configs)]
    properties: dict[str, dict[str, Any]] = {}
    for settings_class in classes:
        for name, schema in settings_class.model_json_schema()["properties"].items():
            properties.setdefault(f"{group}.{name}", schema)
    return properties


def _input_kind(name: str, schema: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The kind of input for a field (choice, number, text or list), and its choices."""
    fixed_choices = {
        "task.kind": list(TASK_SETTINGS), "model.kind": list(MODEL_SETTINGS), "task.corpus": _list_corpora(),
    }  # fmt: skip
    if name in fixed_choices:
        return "choice", fixed_choices[name]
    variants = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if len(variants) > 1:  # such as a number or a word
        return "text", []
    variant = variants[0] if variants else schema
    if "enum" in variant:
        return "choice", [format_override_value(value) for value in variant["enum"]]
    if variant.get("type") == "boolean":
        return "choice", ["true", "false"]
    return {"integer": "number", "number": "number", "array": "list"}.get(variant.get("type", ""), "text"), []


def _list_corpora() -> list[str]:
    return [name for name, corpus in CATALOGUE.items() if any(part.kind != "vocabulary" for part in corpus.parts)]


def format_override_value(value: Value) -> str:
    """A value as written in an override; a list in brackets is one value."""
    if isinstance(value, tuple | list):
        return f"[{','.join(map(format_override_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
