"""Study and overrides → configs: one Cartesian product, then exclusions, inactive settings and conflicts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from pydantic.fields import FieldInfo

from seedbed.settings import (
    TRAINING_BUDGETS,
    InvalidSettings,
    Settings,
    Value,
    all_settings,
    describe_accepted_values,
    setting_fields,
    traits_of,
)
from seedbed.study.definition import MAX_RUNS, Assignment, Assignments, Factor, Overrides, Problems, Study
from seedbed.study.random_search import draw_configs, merge_random_searches
from seedbed.study.toml_text import preview_toml, truncate_text

_SETTING_NAME_PATTERN = re.compile(r"\b(?:task|model|train)\.\w+")


@dataclass(frozen=True)
class Expansion:
    """The distinct configs of a study in its order, and warnings about settings without effect."""

    configs: tuple[Settings, ...] = ()
    warnings: tuple[str, ...] = ()
    assigned: tuple[str, ...] = ()  # the settings that vary in the study or are overridden, in order of first use


def expand_study(study: Study, overrides: Overrides, problems: Problems) -> Expansion:
    """The configs; conflicts are added to `problems`, except those that an invalid setting may explain."""
    factors = study.factors + draw_configs(merge_random_searches(study.random, overrides.random), problems)
    n_configs = prod(len(factor) for factor in factors + overrides.factors)
    n_seeds = len(study.seeds if overrides.seeds is None else overrides.seeds)
    if (n_runs := n_configs * n_seeds) > MAX_RUNS:
        product_text = f"{n_configs:,} configs × {n_seeds:,} seeds are {n_runs:,} runs"
        problems.add(study.where, f"{product_text}; at most {MAX_RUNS:,} are accepted")
        return Expansion()
    if overrides.scale is not None and overrides.scale not in study.scales:
        known = f"it has {', '.join(study.scales)}" if study.scales else "it has none"
        problems.add(
            f"argument 'scale={truncate_text(overrides.scale)}'", f"the study has no scale of this name; {known}"
        )
        return Expansion()
    causes: dict[str, dict[str, list[Value]]] = {}  # of settings without effect: other settings, and their values
    configs: dict[Settings, None] = {}
    for assignments in _iter_combinations(study, factors, overrides):
        inactive = dict(_find_inactive(assignments))
        settings = _build_settings(assignments, inactive, problems, study.stored)
        if settings is None or any(rule.excludes(settings.flat()) for rule in study.exclude):
            continue
        for name, (cause, value) in inactive.items():
            values = causes.setdefault(name, {}).setdefault(cause, [])
            values += [value] if value not in values else []
        if settings not in configs:
            configs[settings] = None
            _report_conflicts(settings, assignments, problems, study.where)
    if not configs and not problems:
        problems.add(study.exclude[0].where, "exclude removes every config")
    assigned = (one.name for factor in factors + overrides.factors for level in factor for one in level)
    return Expansion(tuple(configs), _inactive_warnings(causes), tuple(dict.fromkeys(assigned)))


def _inactive_warnings(causes: Mapping[str, Mapping[str, list[Value]]]) -> tuple[str, ...]:
    return tuple(
        f"{name} has no effect for "
        + " or ".join(f"{cause} = {', '.join(map(str, values))}" for cause, values in by_cause.items())
        for name, by_cause in causes.items()
    )


def _iter_combinations(
    study: Study, factors: tuple[Factor, ...], overrides: Overrides
) -> Iterator[dict[str, Assignment]]:
    """The assignments of every combination of factor levels over the base; the first factor varies slowest."""
    base = {assignment.name: assignment for assignment in study.base}
    n = len(factors)
    for levels in product(*factors, *overrides.factors):
        assignments = _apply_assignments(base, levels[:n])
        if overrides.scale is not None:
            scale = _applicable_assignments(study.scales[overrides.scale], assignments)
            assignments = _apply_assignments(assignments, [scale])
        yield _apply_assignments(assignments, levels[n:])


def _applicable_assignments(scale: Assignments, assignments: Mapping[str, Assignment]) -> Assignments:
    """The settings of a scale that this task and model kind have: one scale serves all models of a study."""
    known = _fields_of_kinds(assignments)
    return tuple(assignment for assignment in scale if assignment.name in known)


def _apply_assignments(base: Mapping[str, Assignment], layers: Iterable[Assignments]) -> dict[str, Assignment]:
    """The base overridden by the layers; a training budget such as epochs replaces any other budget."""
    new = {assignment.name: assignment for layer in layers for assignment in layer}
    replaced = TRAINING_BUDGETS if any(name in new for name in TRAINING_BUDGETS) else ()
    return {name: assignment for name, assignment in base.items() if name not in replaced} | new


def _find_inactive(assignments: Mapping[str, Assignment]) -> Iterator[tuple[str, tuple[str, Value]]]:
    """Each inactive setting, with the setting and value that make it inactive."""
    fields = _fields_of_kinds(assignments)
    for name in assignments:
        if name not in fields:
            kind = f"{name.partition('.')[0]}.kind"
            yield name, (kind, _value_or_default(kind, assignments))
        elif name not in TRAINING_BUDGETS:  # two budgets at once are a conflict, which says more than a warning
            for condition in traits_of(fields[name]).active_when:
                cause = condition.setting
                if cause in fields and not condition.holds(value := _value_or_default(cause, assignments)):
                    yield name, (cause, value)
                    break


def _value_or_default(name: str, assignments: Mapping[str, Assignment]) -> Value:
    """The assigned value, or the default for this kind of task and model."""
    if name in assignments:
        return assignments[name].value
    if name.endswith(".kind"):
        return all_settings()[name][0].default
    return _fields_of_kinds(assignments)[name].default


def _fields_of_kinds(assignments: Mapping[str, Assignment]) -> dict[str, FieldInfo]:
    """The settings of the assigned kinds of task and model."""
    return setting_fields(_value_or_default("task.kind", assignments), _value_or_default("model.kind", assignments))


def _build_settings(
    assignments: Mapping[str, Assignment], inactive: Mapping[str, object], problems: Problems, stored: bool
) -> Settings | None:
    """The settings, inactive ones at their defaults so that equivalent configs are equal."""
    active = {name: assignment for name, assignment in assignments.items() if name not in inactive}
    values = {name: assignment.value for name, assignment in active.items()}
    born: dict[str, Value] = {}
    if stored:
        born = _changed_defaults(_fields_of_kinds(active))
    try:
        settings = Settings.from_flat(born | values)
        born = {name: value for name, value in born.items() if settings.is_active(name)}
        return Settings.from_flat(born | values) if stored else settings
    except InvalidSettings as error:  # a value that another kind of task or model accepts
        for name in error.names:
            assignment = active.get(name) or next(iter(active.values()))
            problems.add(
                assignment.where,
                f"{assignment.name} = {preview_toml(assignment.value)}: "
                f"expected {describe_accepted_values(assignment.name)}",
            )
        return None


def _changed_defaults(fields: Mapping[str, FieldInfo]) -> dict[str, Value]:
    """The birth defaults of settings whose default has changed since; how long to train is always written out."""
    born = {name: traits_of(field).current_value(traits_of(field).born) for name, field in fields.items()}
    return {
        name: value for name, value in born.items()
        if value != fields[name].default and not name.endswith(".kind") and name not in TRAINING_BUDGETS
    }  # fmt: skip


def _report_conflicts(
    settings: Settings, assignments: Mapping[str, Assignment], problems: Problems, study: str
) -> None:
    for blamed, why in settings.conflicts():
        involved = _involved_settings(blamed, why)
        if problems.invalid_settings.isdisjoint(involved) and why not in (problem.what for problem in problems.entries):
            where = next((assignments[name].where for name in involved if name in assignments), study)
            problems.add(where, why)


def _involved_settings(blamed: str, why: str) -> list[str]:
    """Settings that may cause a conflict: the blamed one, those named in it, then the rest of the task's."""
    named = [blamed, *_SETTING_NAME_PATTERN.findall(why)]
    if blamed.startswith("task."):
        named += [name for name in all_settings() if name.startswith("task.")]
    return list(dict.fromkeys(named))


def find_axes(configs: Iterable[Settings], order: Iterable[str] = ()) -> tuple[str, ...]:
    """The settings that vary among the configs that use them, those in `order` first."""
    values: dict[str, set[Value]] = {name: set() for name in (*order, *all_settings())}
    for settings in configs:
        for name, value in settings.flat().items():
            if settings.is_active(name):
                values[name].add(value)
    return tuple(name for name, found in values.items() if len(found) > 1)


def extract_config(settings: Settings, axes: Iterable[str]) -> dict[str, Value]:
    """The values of the axes for a run, without those that have no effect on it."""
    values = settings.flat()
    return {name: values[name] for name in axes if settings.is_active(name)}
