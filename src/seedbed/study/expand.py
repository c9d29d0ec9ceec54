"""A study with words written out as points: one product, then exclusions, dials without effect, conflicts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from math import prod

from pydantic import ValidationError

from seedbed.settings import BUDGETS, NEEDS, Settings, Value, accepted_values, all_dials, fields_of
from seedbed.study.parts import MAX_RUNS, Choice, Dial, Findings, Study
from seedbed.study.spell import shortened, shown
from seedbed.study.words import Words

_DIAL_NAME = re.compile(r"\b(?:task|model|train)\.\w+")


@dataclass(frozen=True)
class Expansion:
    """The distinct points of a study, in its order, and what it says in vain."""

    points: tuple[Settings, ...]
    warnings: tuple[str, ...]


@dataclass
class Idle:
    """Dials without effect: for each, the causes (a dial and its values) that silence it."""

    causes: dict[str, dict[str, list[Value]]] = field(default_factory=dict)

    def note(self, name: str, cause: str, value: Value) -> None:
        values = self.causes.setdefault(name, {}).setdefault(cause, [])
        if value not in values:
            values.append(value)

    def warnings(self) -> tuple[str, ...]:
        return tuple(f"{name} has no effect for {_in_words(causes)}" for name, causes in self.causes.items())


def _in_words(causes: Mapping[str, list[Value]]) -> str:
    return " or ".join(f"{cause} = {', '.join(map(str, values))}" for cause, values in causes.items())


def expand_study(study: Study, words: Words, findings: Findings) -> Expansion:
    """The points; conflicts between dials become findings, save those that a dial already found wrong may explain."""
    n_points = prod(len(factor) for factor in study.factors + words.factors)
    n_seeds = len(study.seeds if words.seeds is None else words.seeds)
    if (n_runs := n_points * n_seeds) > MAX_RUNS:
        product_in_words = f"{n_points:,} points × {n_seeds:,} seeds are {n_runs:,} runs"
        findings.add(study.where, f"{product_in_words}; at most {MAX_RUNS:,} are accepted")
        return Expansion((), ())
    if words.scale is not None and words.scale not in study.scales:
        known = f"it has {', '.join(study.scales)}" if study.scales else "it has none"
        findings.add(f"word 'scale={shortened(words.scale)}'", f"the study has no scale of this name; {known}")
        return Expansion((), ())
    idle = Idle()
    points: dict[Settings, None] = {}
    for dials in _chosen(study, words):
        silent = dict(_silenced(dials))
        settings = _settings(dials, silent, findings)
        if settings is None or any(rule.excludes(settings.dials()) for rule in study.exclude):
            continue
        for name, (cause, value) in silent.items():
            idle.note(name, cause, value)
        if settings not in points:
            points[settings] = None
            _find_conflicts(settings, dials, findings, study.where)
    if not points and not findings:
        findings.add(study.exclude[0].where, "exclude leaves no point")
    return Expansion(tuple(points), idle.warnings())


def _chosen(study: Study, words: Words) -> Iterator[dict[str, Dial]]:
    """One choice of each factor, laid over the base, for every combination; the first factor changes slowest."""
    base = {dial.name: dial for dial in study.base}
    n = len(study.factors)
    for choices in product(*study.factors, *words.factors):
        dials = _lay(base, choices[:n])
        if words.scale is not None:
            dials = _lay(dials, [_fitting(study.scales[words.scale], dials)])
        yield _lay(dials, choices[n:])


def _fitting(scale: Choice, dials: Mapping[str, Dial]) -> Choice:
    """The dials of a scale that the kinds at hand have; one scale serves all models of a study."""
    known = _names_of(_value("task.kind", dials), _value("model.kind", dials))
    return tuple(dial for dial in scale if dial.name in known)


def _lay(below: Mapping[str, Dial], choices: Iterable[Choice]) -> dict[str, Dial]:
    """The choices over what is below; a budget such as epochs takes the place of another one."""
    above = {dial.name: dial for choice in choices for dial in choice}
    replaced = BUDGETS if any(name in above for name in BUDGETS) else ()
    return {name: dial for name, dial in below.items() if name not in replaced} | above


def _silenced(dials: Mapping[str, Dial]) -> Iterator[tuple[str, tuple[str, Value]]]:
    """Each dial without effect, with the dial and value that make it so."""
    known = _names_of(_value("task.kind", dials), _value("model.kind", dials))
    for name in dials:
        if name not in known:
            kind = f"{name.partition('.')[0]}.kind"
            yield name, (kind, _value(kind, dials))
        elif name in NEEDS:
            cause, is_used = NEEDS[name]
            if cause in known and not is_used(value := _value(cause, dials)):
                yield name, (cause, value)


def has_effect(name: str, settings: Settings) -> bool:
    """Whether a run of these settings has this dial and does something with it."""
    known = _names_of(settings.task.kind, settings.model.kind)
    if name not in known:
        return False
    if name == "train.steps":
        return settings.train.epochs is settings.train.tokens is settings.train.seconds is None
    if name not in NEEDS or NEEDS[name][0] not in known:
        return True
    cause, is_used = NEEDS[name]
    part, _, last = cause.partition(".")
    return is_used(getattr(getattr(settings, part), last))


@cache
def _names_of(task_kind: str, model_kind: str) -> frozenset[str]:
    return frozenset(fields_of(task_kind, model_kind))


def _value(name: str, dials: Mapping[str, Dial]) -> Value:
    """The dial's value, or its default in the kind of task and model at hand."""
    if name in dials:
        return dials[name].value
    if name.endswith(".kind"):
        return all_dials()[name][0].default
    return fields_of(_value("task.kind", dials), _value("model.kind", dials))[name].default


def _settings(dials: Mapping[str, Dial], silent: Mapping[str, object], findings: Findings) -> Settings | None:
    """The settings, with dials without effect at their defaults so that equal runs fall together."""
    kept = {name: dial for name, dial in dials.items() if name not in silent}
    try:
        return Settings.of({name: dial.value for name, dial in kept.items()})
    except ValidationError as error:  # a value that one kind accepts and another does not
        for wrong in error.errors():
            name = f"{wrong['loc'][0]}.{wrong['loc'][-1]}"
            dial = kept.get(name) or next(iter(kept.values()))
            findings.add(dial.where, f"{dial.name} = {shown(dial.value)}: expected {accepted_values(dial.name)}")
        return None


def _find_conflicts(settings: Settings, dials: Mapping[str, Dial], findings: Findings, study: str) -> None:
    for blamed, why in settings.conflicts():
        involved = _involved(blamed, why)
        if findings.broken.isdisjoint(involved) and why not in (problem.what for problem in findings.problems):
            where = next((dials[name].where for name in involved if name in dials), study)
            findings.add(where, why)


def _involved(blamed: str, why: str) -> list[str]:
    """The dials that may be at fault, the blamed one first, then those named, then the others that size the task."""
    named = [blamed, *_DIAL_NAME.findall(why)]
    if blamed.startswith("task."):
        named += [name for name in all_dials() if name.startswith("task.")]
    return list(dict.fromkeys(named))


def axes_of(points: Iterable[Settings], order: Iterable[str] = ()) -> tuple[str, ...]:
    """The dials that differ among the points that have them, those in `order` first."""
    values: dict[str, set[Value]] = {name: set() for name in (*order, *all_dials())}
    for settings in points:
        for name, value in settings.dials().items():
            if has_effect(name, settings):
                values[name].add(value)
    return tuple(name for name, found in values.items() if len(found) > 1)


def point_of(settings: Settings, axes: Iterable[str]) -> dict[str, Value]:
    """The values of the axes for a run, without those that mean nothing to its kind."""
    dials = settings.dials()
    return {name: dials[name] for name in axes if has_effect(name, settings)}


def names_in_order(choices: Iterable[Choice]) -> tuple[str, ...]:
    """The dials of some choices, as first written."""
    return tuple(dict.fromkeys(dial.name for choice in choices for dial in choice))
