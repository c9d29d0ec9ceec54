"""A study → Plan: the points written out as runs, each with an id that depends on what decides its numbers alone.

    plan = plan_study(read_study(find_study("quickstart")), ["model.layers=1,2", "seeds=5"])

Grouping runs for a machine is pack.py's; what is already done, the store's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

from seedbed.data.embeddings import read_tables, tables_digest
from seedbed.data.facts import facts_of
from seedbed.errors import Problem, StudyError, UsageError
from seedbed.models.count import count_parameters
from seedbed.records import Plan, Run
from seedbed.settings import Settings, Value
from seedbed.study.expand import axes_of, expand_study, names_in_order, point_of
from seedbed.study.files import find_study
from seedbed.study.parts import Findings, Study
from seedbed.study.read import read_study
from seedbed.study.shows import Declared
from seedbed.study.words import parse_words
from seedbed.study.write import write_study

ID_BYTES = 8  # twice as many characters; among a million runs, two share an id with a chance of 3 in 10⁸


def plan_named(name_or_path: str, words: Sequence[str] = ()) -> Plan:
    """The plan of a file or shipped study; problems of the file and of the words are reported together."""
    return plan_study(read_study(find_study(name_or_path), words), words)


def plan_study(study: Study, words: Sequence[str] = ()) -> Plan:
    """The runs of a study with words laid over every point: points in the study's order, seeds inside."""
    parsed = parse_words(words)
    findings = Findings()
    expansion = expand_study(study, parsed, findings)
    findings.raise_if_any()
    choices = [choice for factor in study.factors + parsed.factors for choice in factor]
    axes = axes_of(expansion.points, names_in_order(choices))
    seeds = study.seeds if parsed.seeds is None else parsed.seeds
    declared = Declared(study.figures, study.questions)
    return Plan(
        study=study.name,
        text=write_study(study.name, study.question, seeds, expansion.points, axes, declared),
        axes=axes,
        runs=tuple(run for point in expansion.points for run in _runs(point, seeds, axes, study.where)),
        warnings=expansion.warnings,
    )


def _runs(settings: Settings, seeds: Sequence[int], axes: Sequence[str], where: str) -> Iterator[Run]:
    try:
        facts = facts_of(settings.task)
        read_tables(settings, facts)  # for its refusals: better here than hours later
    except UsageError as error:
        raise StudyError([Problem(where, str(error))]) from None
    point, parameters, identity = point_of(settings, axes), count_parameters(settings, facts), _identity(settings)
    for seed in seeds:
        yield Run(_digest(identity | {"seed": seed}), seed, point, settings, parameters, facts)


def run_id(settings: Settings, seed: int) -> str:
    """The name of a run's content: the dials that are not at their defaults, the seed and the data.

    Not the study, the engine or the pack; and a dial that is added later changes no id while it is at its default.
    """
    return _digest(_identity(settings) | {"seed": seed})


def _identity(settings: Settings) -> dict[str, Value]:
    dials = _plain(settings.differences())
    if settings.model.embeddings is not None:  # what is in the file decides, not where it lies
        dials["model.embeddings"] = tables_digest(settings.model.embeddings)
    return {"data": facts_of(settings.task).digest, "settings": dials}


def _digest(identity: Mapping[str, Value]) -> str:
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return blake2b(canonical.encode(), digest_size=ID_BYTES).hexdigest()


def _plain(dials: Mapping[str, Value]) -> dict[str, Value]:
    """Adding 0.0 makes the two zeros one; settings have already made 1 and 1.0 one."""
    return {name: value + 0.0 if isinstance(value, float) else value for name, value in dials.items()}
