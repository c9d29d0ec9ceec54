"""A study → Plan: the points written out as runs, each with an id that depends on what decides its numbers alone.

    plan = plan_study(read_study(find_study("quickstart")), ["model.layers=1,2", "seeds=5"])

Grouping runs for a machine is pack.py's; what is already done, the store's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

from seedbed.data.dataset_info import get_dataset_info
from seedbed.data.embeddings import embeddings_digest, load_embeddings
from seedbed.errors import Problem, StudyError, UsageError
from seedbed.models.model_size import count_parameters
from seedbed.records import Plan, Run
from seedbed.settings import Settings, Value
from seedbed.study.declarations import Declarations
from seedbed.study.definition import Problems, Study
from seedbed.study.expand import expand_study, extract_config, find_axes, ordered_setting_names
from seedbed.study.overrides import parse_overrides
from seedbed.study.read import read_study
from seedbed.study.study_files import find_study
from seedbed.study.write import format_study

RUN_ID_BYTES = 8  # twice as many characters; among a million runs, two share an id with a chance of 3 in 10⁸


def plan_named(name_or_path: str, overrides: Sequence[str] = ()) -> Plan:
    """The plan of a file or shipped study; problems of the file and of the words are reported together."""
    return plan_study(read_study(find_study(name_or_path), overrides), overrides)


def plan_study(study: Study, overrides: Sequence[str] = ()) -> Plan:
    """The runs of a study with words laid over every point: points in the study's order, seeds inside."""
    parsed = parse_overrides(overrides)
    findings = Problems()
    expansion = expand_study(study, parsed, findings)
    findings.raise_if_any()
    choices = [choice for factor in study.factors + parsed.factors for choice in factor]
    axes = find_axes(expansion.configs, ordered_setting_names(choices))
    seeds = study.seeds if parsed.seeds is None else parsed.seeds
    declared = Declarations(study.figures, study.questions)
    return Plan(
        study=study.name,
        text=format_study(study.name, study.question, seeds, expansion.configs, axes, declared),
        axes=axes,
        runs=tuple(run for point in expansion.configs for run in _make_runs(point, seeds, axes, study.where)),
        warnings=expansion.warnings,
    )


def _make_runs(settings: Settings, seeds: Sequence[int], axes: Sequence[str], where: str) -> Iterator[Run]:
    try:
        facts = get_dataset_info(settings.task)
        load_embeddings(settings, facts)  # for its refusals: better here than hours later
    except UsageError as error:
        raise StudyError([Problem(where, str(error))]) from None
    point, parameters, identity = (
        extract_config(settings, axes),
        count_parameters(settings, facts),
        _run_identity(settings),
    )
    for seed in seeds:
        yield Run(_hash_identity(identity | {"seed": seed}), seed, point, settings, parameters, facts)


def compute_run_id(settings: Settings, seed: int) -> str:
    """The name of a run's content: the dials that are not at their defaults, the seed and the data.

    Not the study, the engine or the pack; and a dial that is added later changes no id while it is at its default.
    """
    return _hash_identity(_run_identity(settings) | {"seed": seed})


def _run_identity(settings: Settings) -> dict[str, Value]:
    dials = _normalize_zeros(settings.non_default())
    if settings.model.embeddings is not None:  # what is in the file decides, not where it lies
        dials["model.embeddings"] = embeddings_digest(settings.model.embeddings)
    return {"data": get_dataset_info(settings.task).digest, "settings": dials}


def _hash_identity(identity: Mapping[str, Value]) -> str:
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return blake2b(canonical.encode(), digest_size=RUN_ID_BYTES).hexdigest()


def _normalize_zeros(values: Mapping[str, Value]) -> dict[str, Value]:
    """Adding 0.0 makes the two zeros one; settings have already made 1 and 1.0 one."""
    return {name: value + 0.0 if isinstance(value, float) else value for name, value in values.items()}
