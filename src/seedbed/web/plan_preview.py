"""Plan and estimate of a study with overrides, or every problem with the setting it belongs to; and the study's form.

    preview_plan(Path("lab"), PlanRequest("quickstart", "shipped", ("train.weight_decay=0,1",)))
    build_form(Path("lab"), PlanRequest("quickstart", "shipped"))["groups"][0]["fields"]

A study is given by name, never by path: shipped or in the store. Overrides come from requests, so those that would read
a file of the server are rejected, and nothing is downloaded: the process that runs this is offline (`processes`).
The form has every setting of the study's runs with description, range and values, from the settings' JSON schema;
values are written as in command-line overrides, so the text of a field is the value of an override.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from seedbed.data.catalogue import CATALOGUE, find_local_file
from seedbed.errors import MissingData, Problem, SeedbedError, StudyError
from seedbed.records import Plan, StoredRun
from seedbed.report.tables import Table
from seedbed.settings import (
    MODEL_SETTINGS,
    TASK_SETTINGS,
    Settings,
    Value,
    all_settings,
    describe_accepted_values,
    setting_traits,
)
from seedbed.store import open_store
from seedbed.study.definition import Overrides, Problems, Study
from seedbed.study.expand import expand_study
from seedbed.study.plan import plan_study
from seedbed.study.read import parse_overrides, parse_study
from seedbed.study.study_files import read_study_text, shipped_studies, study_question
from seedbed.web.jobs import ENDED_STATUSES, JobSpec, StudySource

MAX_OVERRIDES: Final = 100
MAX_OVERRIDE_CHARACTERS: Final = 2_000
MAX_PLANNED_RUNS: Final = 10_000  # the command line has no limit
MAX_TABLE_ROWS: Final = 200
KIND_OVERRIDE_PREFIXES: Final = ("task.kind=", "model.kind=")  # overrides that change which settings exist
GROUP_TITLES: Final = {"task": "Task", "model": "Model", "train": "Training"}
_OVERRIDE_PATTERN: Final = re.compile(r"argument '([^=']+)")
_SETTING_PATTERN: Final = re.compile(r"\b(?:task|model|train)\.\w+")


@dataclass(frozen=True)
class PlanRequest:
    """A study and its overrides, to be planned."""

    study: str
    source: StudySource
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class FieldProblem:
    """A problem and the setting it is shown at; empty: the whole form."""

    setting: str
    message: str


@dataclass(frozen=True)
class PlanPreview:
    """A job that can be started, with the tables and warnings of `seedbed plan`."""

    job_spec: JobSpec
    tables: tuple[Table, ...]
    warnings: tuple[str, ...]
    seconds: float = 0.0  # that training is estimated to take
    basis: str = ""  # of the estimate, in words
    n_ended: int = 0


def load_study_text(home: Path, request: PlanRequest) -> tuple[str, str]:
    """The text of a shipped or stored study, and the path or name to report problems at."""
    if request.source == "stored":
        with open_store(home, read_only=True) as store:
            return store.study(request.study).text, request.study
    shipped = shipped_studies()
    if request.study not in shipped:
        raise MissingData(f"there is no shipped study {request.study!r}; shipped studies: {', '.join(shipped)}")
    return read_study_text(shipped[request.study]), str(shipped[request.study])


# ---- the plan ----


def preview_plan(home: Path, request: PlanRequest) -> PlanPreview | tuple[FieldProblem, ...]:
    """The plan, or all problems of the request."""
    if problems := tuple(_check_overrides(request.overrides)):
        return problems
    text, name = load_study_text(home, request)
    try:
        study = parse_study(text, name, request.overrides, stored=request.source == "stored")
        if missing := tuple(_missing_corpora(study, request.overrides)):
            return missing
        plan = plan_study(study, request.overrides)
        if request.source == "stored":  # its own text may have the words of an earlier version, which `run` refuses
            text = plan_study(study).text
    except StudyError as error:
        return tuple(_locate_problem(problem, name, request.overrides) for problem in error.problems)
    except SeedbedError as error:
        return (FieldProblem("task.corpus", str(error)),)
    if len(plan.runs) > MAX_PLANNED_RUNS:
        limit = f"the page starts at most {MAX_PLANNED_RUNS:,}, the command line any number"
        return (FieldProblem("", f"{len(plan.runs):,} runs; {limit}"),)
    job_spec = JobSpec(plan.study, request.source, request.overrides, tuple(run.id for run in plan.runs), text)
    try:
        with open_store(home, read_only=True) as store:
            stored = {run.id: run for run in store.runs()}
    except MissingData:  # no store yet
        stored = {}
    return _estimated(PlanPreview(job_spec, (), plan.warnings), plan, stored)


def _estimated(preview: PlanPreview, plan: Plan, stored: Mapping[str, StoredRun]) -> PlanPreview:
    """The preview with the tables of `seedbed plan`, long ones cut, and the estimate of what is left to train."""
    from seedbed.estimates import estimate_study
    from seedbed.pipeline import Machine, pack_plans
    from seedbed.report.overview import BASIS_DESCRIPTIONS, plan_tables

    machine = Machine.detect()
    ended = {name for name, run in stored.items() if run.status in ENDED_STATUSES}
    packs, done = pack_plans([plan], machine, ended.__contains__), {name: run.status for name, run in stored.items()}
    estimate = estimate_study(packs, machine, stored)
    tables = []
    for table in plan_tables([plan], packs, done, machine.device, estimate):
        n_more = len(table.rows) - MAX_TABLE_ROWS
        notes = (*table.notes, f"and {n_more:,} more rows") if n_more > 0 else table.notes
        tables.append(replace(table, rows=table.rows[:MAX_TABLE_ROWS], notes=notes))
    return replace(
        preview,
        tables=tuple(tables),
        seconds=estimate.seconds if packs else 0.0,
        basis=BASIS_DESCRIPTIONS[estimate.basis] if packs else "",
        n_ended=sum(run.id in ended for run in plan.runs),
    )


def _check_overrides(overrides: Sequence[str]) -> Iterator[FieldProblem]:
    """Problems of overrides that the page rejects, even if the command line accepts them."""
    if len(overrides) > MAX_OVERRIDES:
        yield FieldProblem("", f"{len(overrides)} overrides; at most {MAX_OVERRIDES} are accepted")
        return
    for override in overrides:
        name, equals, value = override.partition("=")
        if len(override) > MAX_OVERRIDE_CHARACTERS:
            yield FieldProblem(
                name[:60],
                f"the value has {len(override):,} characters; at most {MAX_OVERRIDE_CHARACTERS:,} are accepted",
            )
        elif not equals or name not in (*all_settings(), "seeds", "scale"):
            yield FieldProblem("", f"{override[:60]!r} is not a setting with a value, such as model.layers=3")
        elif not value.isprintable():
            yield FieldProblem(name, "the value contains unprintable characters")
        elif name in all_settings() and setting_traits(name).names_local_file:
            yield FieldProblem(name, "names a file on this machine; start this study from the command line")
        elif name == "task.corpus" and not {one.strip(" \"'") for one in value.split(",")} <= set(CATALOGUE):
            yield FieldProblem(
                name, f"expected a named corpus: {', '.join(CATALOGUE)}; files are accepted on the command line only"
            )


def _missing_corpora(study: Study, overrides: Sequence[str]) -> Iterator[FieldProblem]:
    """Named corpora that are not on this machine; the page downloads nothing."""
    named = {text.partition("=")[2] for text in overrides if text.startswith("task.corpus=")}
    choices = [study.base, *study.scales.values(), *(choice for factor in study.factors for choice in factor)]
    named |= {str(setting.value) for choice in choices for setting in choice if setting.name == "task.corpus"}
    for name in sorted(named & set(CATALOGUE)):
        files = [file for part in CATALOGUE[name].parts for file in part.files]
        if any(find_local_file(file.path) is None for file in files):
            yield FieldProblem(
                "task.corpus", f"{name} is not on this machine yet; get it with: seedbed data get {name}"
            )


def _locate_problem(problem: Problem, path: str, overrides: Sequence[str]) -> FieldProblem:
    """The problem at its setting: that of the override it was found in, else one it names (overridden ones first)."""
    if match := _OVERRIDE_PATTERN.match(problem.where):
        return FieldProblem(match[1].strip(), problem.what)
    named = [name for name in _SETTING_PATTERN.findall(problem.what) if name in all_settings()]
    changed = [name for name in named if any(text.startswith(f"{name}=") for text in overrides)]
    if changed:
        return FieldProblem(changed[0], problem.what)
    line = problem.where.removeprefix(path).lstrip(":")
    where = f"line {line} of the study: " if line.isdecimal() else ""
    return FieldProblem(named[0] if named else "", f"{where}{problem.what}")


# ---- the form ----


def build_form(home: Path, request: PlanRequest) -> dict[str, Any]:
    """The form fields of a study: those it sets or varies first, then the defaults by group."""
    text, name = load_study_text(home, request)
    study = parse_study(text, name, stored=request.source == "stored")
    kinds = parse_overrides([text for text in request.overrides if text.startswith(KIND_OVERRIDE_PREFIXES)])
    # With other kinds if overridden; conflicts are reported by the plan, not here.
    configs = expand_study(study, kinds, Problems()).configs or expand_study(study, Overrides(), Problems()).configs
    fields = {group: list(_setting_fields(group, configs)) for group in GROUP_TITLES}
    own = _study_fields(study) + [field for some in fields.values() for field in some if field["own"]]
    groups = {"Of this study": own} | {
        f"{title}, defaults": [field for field in fields[group] if not field["own"]]
        for group, title in GROUP_TITLES.items()
    }
    return {
        "study": request.study,
        "source": request.source,
        "question": study_question(text, name),
        "groups": [{"name": name, "fields": fields} for name, fields in groups.items() if fields],
    }


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
    classes = dict.fromkeys(type(getattr(config, group)) for config in configs)
    properties: dict[str, dict[str, Any]] = {}
    for settings_class in classes:
        for name, schema in settings_class.model_json_schema()["properties"].items():
            properties.setdefault(f"{group}.{name}", schema)
    return properties


def _input_kind(name: str, schema: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The kind of input for a field (choice, number, text or list), and its choices."""
    kinds: dict[str, Mapping[str, Any]] = {"task.kind": TASK_SETTINGS, "model.kind": MODEL_SETTINGS}
    if name in kinds:
        return "choice", list(kinds[name])
    if name == "task.corpus":
        corpora = CATALOGUE.items()
        return "choice", [name for name, one in corpora if any(part.kind != "vocabulary" for part in one.parts)]
    variants = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if len(variants) > 1:  # such as a number or a word
        return "text", []
    variant = variants[0] if variants else schema
    if "enum" in variant:
        return "choice", [format_override_value(value) for value in variant["enum"]]
    if variant.get("type") == "boolean":
        return "choice", ["true", "false"]
    return {"integer": "number", "number": "number", "array": "list"}.get(variant.get("type", ""), "text"), []


def format_override_value(value: Value) -> str:
    """A value as written in an override; a list in brackets is one value."""
    if isinstance(value, tuple | list):
        return f"[{','.join(map(format_override_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
