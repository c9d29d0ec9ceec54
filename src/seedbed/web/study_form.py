"""The form of a study: every dial that its runs have, with meaning, range and values, from the settings' JSON schema.

    form_asked(Path("lab"), Asked("quickstart", "shipped"))["groups"][0]["fields"]

Values are spelled as words on the command line are, so that what is typed into a field is what a word would hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from seedbed.data.catalogue import CATALOGUE
from seedbed.settings import MODEL_SETTINGS, TASK_SETTINGS, Settings, TrainSettings, Value, describe_accepted_values
from seedbed.study.definition import Problems, Study
from seedbed.study.expand import expand_study, has_effect
from seedbed.study.overrides import Overrides, parse_overrides
from seedbed.study.read import parse_study
from seedbed.web.plan_preview import FILE_SETTINGS, PlanRequest, get_question, load_study_text

KIND_OVERRIDE_PREFIXES: Final = ("task.kind=", "model.kind=")  # words that change which dials there are
GROUP_TITLES: Final = {"task": "Task", "model": "Model", "train": "Training"}


def build_form(home: Path, asked: PlanRequest) -> dict[str, Any]:
    """The fields of a study: those that it changes or varies first, then the others by part."""
    text, name = load_study_text(home, asked)
    study = parse_study(text, name)
    points = _expand_configs(study, [word for word in asked.overrides if word.startswith(KIND_OVERRIDE_PREFIXES)])
    every = [field for part in GROUP_TITLES for field in _setting_fields(part, points)]
    own = _study_fields(study) + [field for field in every if field["own"]]
    rest = {
        part: [field for field in every if not field["own"] and field["name"].startswith(part)] for part in GROUP_TITLES
    }
    groups = {"Of this study": own} | {
        f"{GROUP_TITLES[part]}, as it is by default": rest[part] for part in GROUP_TITLES
    }
    return {
        "study": asked.study,
        "source": asked.source,
        "question": get_question(text, name),
        "groups": [{"name": name, "fields": fields} for name, fields in groups.items() if fields],
    }


def _expand_configs(study: Study, kinds: Sequence[str]) -> tuple[Settings, ...]:
    """The study's points, of other kinds where words ask for them; what clashes is the plan's to say."""
    return (
        expand_study(study, parse_overrides(kinds), Problems()).configs
        or expand_study(study, Overrides(), Problems()).configs
    )


def _study_fields(study: Study) -> list[dict[str, Any]]:
    seeds = study.seeds
    counted = len(seeds) > 1 and seeds == tuple(range(len(seeds)))
    fields = [
        {
            "name": "seeds", "meaning": "how many runs of every point (5: seeds 0 to 4), or a list such as [0,42]",
            "accepted": "how many, or a list of whole numbers", "kind": "list", "choices": [], "varies": False,
            "values": [str(len(seeds)) if counted else format_override_value(seeds)], "works": True,
        }
    ]  # fmt: skip
    if study.scales:
        fields.append({
            "name": "scale", "meaning": "another size of the same study, laid over all its points",
            "accepted": f"one of {', '.join(study.scales)}", "kind": "one", "choices": list(study.scales),
            "varies": False, "values": [], "works": True,
        })  # fmt: skip
    return fields


def _setting_fields(part: str, points: Sequence[Settings]) -> Iterator[dict[str, Any]]:
    dials = [point.flat() for point in points]
    changed = {name for point in points for name in point.non_default()} | {"task.kind", "model.kind"}
    for name, schema in _schema_properties(part, points).items():
        values = list(dict.fromkeys(format_override_value(own[name]) for own in dials if own.get(name) is not None))
        kind, choices = _input_kind(name, schema)
        yield {
            "name": name, "meaning": schema.get("description", ""), "accepted": describe_accepted_values(name), "kind": kind,
            "choices": choices, "varies": len(values) > 1, "values": values,
            "works": any(has_effect(name, point) for point in points), "fixed": name in FILE_SETTINGS,
            "own": name in changed,
        }  # fmt: skip


def _schema_properties(part: str, points: Sequence[Settings]) -> dict[str, dict[str, Any]]:
    """The JSON schema of every dial of this part that a kind among the points has."""
    kinds: dict[str, Mapping[str, type[Any]]] = {"task": TASK_SETTINGS, "model": MODEL_SETTINGS}
    if part == "train":
        groups: list[type[Any]] = [TrainSettings]
    else:
        groups = [kinds[part][name] for name in dict.fromkeys(getattr(point, part).kind for point in points)]
    found: dict[str, dict[str, Any]] = {}
    for group in groups:
        for name, schema in group.model_json_schema()["properties"].items():
            found.setdefault(f"{part}.{name}", schema)
    return found


def _input_kind(name: str, schema: Mapping[str, Any]) -> tuple[str, list[str]]:
    """How a field is filled in: by choosing, or by typing a number, a text or a list."""
    whole = {"task.kind": list(TASK_SETTINGS), "model.kind": list(MODEL_SETTINGS), "task.corpus": _list_corpora()}
    if name in whole:
        return "choice", whole[name]
    plain = next((one for one in schema.get("anyOf", ()) if one.get("type") != "null"), schema)
    if "enum" in plain:
        return "choice", [format_override_value(value) for value in plain["enum"]]
    if plain.get("type") == "boolean":
        return "choice", ["true", "false"]
    return {"integer": "number", "number": "number", "array": "list"}.get(plain.get("type", ""), "text"), []


def _list_corpora() -> list[str]:
    return [name for name, named in CATALOGUE.items() if any(part.kind != "vocabulary" for part in named.parts)]


def format_override_value(value: Value) -> str:
    """A value as a word on the command line holds it; a list in brackets is one value."""
    if isinstance(value, tuple | list):
        return f"[{','.join(map(format_override_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
