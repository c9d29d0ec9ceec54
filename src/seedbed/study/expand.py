"""A study with words written out as points: one product, then exclusions, dials without effect, conflicts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from math import prod

from pydantic import ValidationError

from seedbed.settings import (
    ACTIVE_WHEN,
    TRAINING_BUDGETS,
    Settings,
    Value,
    all_settings,
    describe_accepted_values,
    setting_fields,
)
from seedbed.study.definition import MAX_RUNS, Assignment, Assignments, Problems, Study
from seedbed.study.overrides import Overrides
from seedbed.study.toml_format import preview_toml, truncate_text

_SETTING_NAME_PATTERN = re.compile(r"\b(?:task|model|train)\.\w+")


@dataclass(frozen=True)
class Expansion:
    """The distinct points of a study, in its order, and what it says in vain."""

    configs: tuple[Settings, ...]
    warnings: tuple[str, ...]


@dataclass
class InactiveSettings:
    """Dials without effect: for each, the causes (a dial and its values) that silence it."""

    causes: dict[str, dict[str, list[Value]]] = field(default_factory=dict)

    def add(self, name: str, cause: str, value: Value) -> None:
        values = self.causes.setdefault(name, {}).setdefault(cause, [])
        if value not in values:
            values.append(value)

    def warnings(self) -> tuple[str, ...]:
        return tuple(f"{name} has no effect for {_format_causes(causes)}" for name, causes in self.causes.items())


def _format_causes(causes: Mapping[str, list[Value]]) -> str:
    return " or ".join(f"{cause} = {', '.join(map(str, values))}" for cause, values in causes.items())


def expand_study(study: Study, overrides: Overrides, problems: Problems) -> Expansion:
    """The points; conflicts between dials become findings, save those that a dial already found wrong may explain."""
    n_points = prod(len(factor) for factor in study.factors + overrides.factors)
    n_seeds = len(study.seeds if overrides.seeds is None else overrides.seeds)
    if (n_runs := n_points * n_seeds) > MAX_RUNS:
        product_in_words = f"{n_points:,} points × {n_seeds:,} seeds are {n_runs:,} runs"
        problems.add(study.where, f"{product_in_words}; at most {MAX_RUNS:,} are accepted")
        return Expansion((), ())
    if overrides.scale is not None and overrides.scale not in study.scales:
        known = f"it has {', '.join(study.scales)}" if study.scales else "it has none"
        problems.add(f"word 'scale={truncate_text(overrides.scale)}'", f"the study has no scale of this name; {known}")
        return Expansion((), ())
    idle = InactiveSettings()
    points: dict[Settings, None] = {}
    for dials in _iter_combinations(study, overrides):
        silent = dict(_find_inactive(dials))
        settings = _build_settings(dials, silent, problems)
        if settings is None or any(rule.excludes(settings.flat()) for rule in study.exclude):
            continue
        for name, (cause, value) in silent.items():
            idle.add(name, cause, value)
        if settings not in points:
            points[settings] = None
            _report_conflicts(settings, dials, problems, study.where)
    if not points and not problems:
        problems.add(study.exclude[0].where, "exclude leaves no point")
    return Expansion(tuple(points), idle.warnings())


def _iter_combinations(study: Study, overrides: Overrides) -> Iterator[dict[str, Assignment]]:
    """One choice of each factor, laid over the base, for every combination; the first factor changes slowest."""
    base = {dial.name: dial for dial in study.base}
    n = len(study.factors)
    for choices in product(*study.factors, *overrides.factors):
        dials = _apply_assignments(base, choices[:n])
        if overrides.scale is not None:
            dials = _apply_assignments(dials, [_applicable_assignments(study.scales[overrides.scale], dials)])
        yield _apply_assignments(dials, choices[n:])


def _applicable_assignments(scale: Assignments, assignments: Mapping[str, Assignment]) -> Assignments:
    """The dials of a scale that the kinds at hand have; one scale serves all models of a study."""
    known = _setting_names(_value_or_default("task.kind", assignments), _value_or_default("model.kind", assignments))
    return tuple(dial for dial in scale if dial.name in known)


def _apply_assignments(base: Mapping[str, Assignment], layers: Iterable[Assignments]) -> dict[str, Assignment]:
    """The choices over what is below; a budget such as epochs takes the place of another one."""
    above = {dial.name: dial for choice in layers for dial in choice}
    replaced = TRAINING_BUDGETS if any(name in above for name in TRAINING_BUDGETS) else ()
    return {name: dial for name, dial in base.items() if name not in replaced} | above


def _find_inactive(assignments: Mapping[str, Assignment]) -> Iterator[tuple[str, tuple[str, Value]]]:
    """Each dial without effect, with the dial and value that make it so."""
    known = _setting_names(_value_or_default("task.kind", assignments), _value_or_default("model.kind", assignments))
    for name in assignments:
        if name not in known:
            kind = f"{name.partition('.')[0]}.kind"
            yield name, (kind, _value_or_default(kind, assignments))
        elif name in ACTIVE_WHEN:
            cause, is_used = ACTIVE_WHEN[name]
            if cause in known and not is_used(value := _value_or_default(cause, assignments)):
                yield name, (cause, value)


def has_effect(name: str, settings: Settings) -> bool:
    """Whether a run of these settings has this dial and does something with it."""
    known = _setting_names(settings.task.kind, settings.model.kind)
    if name not in known:
        return False
    if name == "train.steps":
        return settings.train.epochs is settings.train.max_tokens is settings.train.seconds is None
    if name not in ACTIVE_WHEN or ACTIVE_WHEN[name][0] not in known:
        return True
    cause, is_used = ACTIVE_WHEN[name]
    part, _, last = cause.partition(".")
    return is_used(getattr(getattr(settings, part), last))


@cache
def _setting_names(task_kind: str, model_kind: str) -> frozenset[str]:
    return frozenset(setting_fields(task_kind, model_kind))


def _value_or_default(name: str, assignments: Mapping[str, Assignment]) -> Value:
    """The dial's value, or its default in the kind of task and model at hand."""
    if name in assignments:
        return assignments[name].value
    if name.endswith(".kind"):
        return all_settings()[name][0].default
    return setting_fields(_value_or_default("task.kind", assignments), _value_or_default("model.kind", assignments))[
        name
    ].default


def _build_settings(
    assignments: Mapping[str, Assignment], inactive: Mapping[str, object], problems: Problems
) -> Settings | None:
    """The settings, with dials without effect at their defaults so that equal runs fall together."""
    kept = {name: dial for name, dial in assignments.items() if name not in inactive}
    try:
        return Settings.from_flat({name: dial.value for name, dial in kept.items()})
    except ValidationError as error:  # a value that one kind accepts and another does not
        for wrong in error.errors():
            name = f"{wrong['loc'][0]}.{wrong['loc'][-1]}"
            dial = kept.get(name) or next(iter(kept.values()))
            problems.add(
                dial.where, f"{dial.name} = {preview_toml(dial.value)}: expected {describe_accepted_values(dial.name)}"
            )
        return None


def _report_conflicts(
    settings: Settings, assignments: Mapping[str, Assignment], problems: Problems, study: str
) -> None:
    for blamed, why in settings.conflicts():
        involved = _involved_settings(blamed, why)
        if problems.invalid_settings.isdisjoint(involved) and why not in (problem.what for problem in problems.entries):
            where = next((assignments[name].where for name in involved if name in assignments), study)
            problems.add(where, why)


def _involved_settings(blamed: str, why: str) -> list[str]:
    """The dials that may be at fault, the blamed one first, then those named, then the others that size the task."""
    named = [blamed, *_SETTING_NAME_PATTERN.findall(why)]
    if blamed.startswith("task."):
        named += [name for name in all_settings() if name.startswith("task.")]
    return list(dict.fromkeys(named))


def find_axes(configs: Iterable[Settings], order: Iterable[str] = ()) -> tuple[str, ...]:
    """The dials that differ among the points that have them, those in `order` first."""
    values: dict[str, set[Value]] = {name: set() for name in (*order, *all_settings())}
    for settings in configs:
        for name, value in settings.flat().items():
            if has_effect(name, settings):
                values[name].add(value)
    return tuple(name for name, found in values.items() if len(found) > 1)


def extract_config(settings: Settings, axes: Iterable[str]) -> dict[str, Value]:
    """The values of the axes for a run, without those that mean nothing to its kind."""
    dials = settings.flat()
    return {name: dials[name] for name in axes if has_effect(name, settings)}


def ordered_setting_names(choices: Iterable[Assignments]) -> tuple[str, ...]:
    """The dials of some choices, as first written."""
    return tuple(dict.fromkeys(dial.name for choice in choices for dial in choice))
