"""Study → Plan: every config × seed as a run, with an id that depends only on what determines its results.

    plan = plan_study(read_study(find_study("quickstart")), ["model.layers=1,2", "seeds=5"])

The plan's text is the study as TOML with every setting written out, which plans to the same runs. pack.py groups the
runs for a machine; the store knows which are done.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b

from seedbed.data.catalogue import CATALOGUE
from seedbed.data.embeddings import embeddings_digest, load_embeddings
from seedbed.errors import Problem, StudyError, UsageError
from seedbed.models.model_size import count_parameters
from seedbed.records import Plan, Run
from seedbed.settings import Settings, Value
from seedbed.study.declarations import Declarations, format_declarations
from seedbed.study.definition import Problems, Study
from seedbed.study.expand import expand_study, extract_config, find_axes
from seedbed.study.read import parse_overrides, read_study
from seedbed.study.study_files import find_study
from seedbed.study.toml_text import SETTING_GROUPS, format_toml_value

RUN_ID_BYTES = 8  # 16 hex digits; the chance of a collision among a million runs is 3 in 10⁸


def plan_named(name_or_path: str, overrides: Sequence[str] = ()) -> Plan:
    """The plan of a study file or shipped study; problems of file and overrides are reported together."""
    return plan_study(read_study(find_study(name_or_path), overrides), overrides)


def plan_study(study: Study, overrides: Sequence[str] = ()) -> Plan:
    """The plan with overrides applied to every config: configs in the study's order, seeds innermost."""
    parsed = parse_overrides(overrides)
    problems = Problems()
    expansion = expand_study(study, parsed, problems)
    problems.raise_if_any()
    configs = [_locate_corpus(config, study.where) for config in expansion.configs]
    axes = find_axes(configs, expansion.assigned)
    seeds = study.seeds if parsed.seeds is None else parsed.seeds
    declared = Declarations(study.figures, study.questions)
    return Plan(
        study=study.name,
        text=format_study(study.name, study.question, seeds, configs, axes, declared),
        axes=axes,
        runs=tuple(run for config in configs for run in _make_runs(config, seeds, axes, study.where)),
        warnings=expansion.warnings,
    )


def _locate_corpus(settings: Settings, where: str) -> Settings:
    """The settings with the path from here of a corpus that is beside the study file, and not in the current folder."""
    task = settings.task
    if not task.has_corpus or task.corpus in CATALOGUE or os.path.lexists(task.corpus):
        return settings
    beside = os.path.join(os.path.dirname(where), task.corpus)
    located = task.model_copy(update={"corpus": beside})
    return settings.model_copy(update={"task": located}) if os.path.lexists(beside) else settings


def _make_runs(settings: Settings, seeds: Sequence[int], axes: Sequence[str], where: str) -> Iterator[Run]:
    try:
        info = settings.task.dataset_info()
        settings.task.check_data(settings)  # now rather than hours later
        load_embeddings(settings, info)
    except UsageError as error:
        raise StudyError([Problem(where, str(error))]) from None
    config, identity = extract_config(settings, axes), _run_identity(settings)
    parameters = count_parameters(settings, info)
    for seed in seeds:
        yield Run(_hash_identity(identity | {"seed": seed}), seed, config, settings, parameters, info)


def compute_run_id(settings: Settings, seed: int, dataset: str | None = None) -> str:
    """Hash of what determines a run: its non-default settings, its seed and its data.

    Not the study, the engine or the pack; a setting added later changes no id while it is at its default. `dataset` is
    the digest of the data, looked up if not given.
    """
    return _hash_identity(_run_identity(settings, dataset) | {"seed": seed})


def _run_identity(settings: Settings, dataset: str | None = None) -> dict[str, Value]:
    # -0.0 becomes 0.0 by adding 0.0; pydantic has already made 1 and 1.0 equal.
    identity = settings.identity().items()
    values = {name: value + 0.0 if isinstance(value, float) else value for name, value in identity}
    if settings.model.embeddings is not None:  # the file's content counts, not its path
        values["model.embeddings"] = embeddings_digest(settings.model.embeddings)
    return {"data": dataset or settings.task.dataset_info().digest, "settings": values}


def _hash_identity(identity: Mapping[str, Value]) -> str:
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return blake2b(canonical.encode(), digest_size=RUN_ID_BYTES).hexdigest()


# ---- the resolved study ----


def format_study(
    name: str,
    question: str,
    seeds: Sequence[int],
    configs: Sequence[Settings],
    axes: Iterable[str],
    declared: Declarations,
) -> str:
    """The study with every setting written out: in [base] where all configs agree, else per config."""
    # Settings that have an effect and are set: TOML has no null.
    values = [
        {name: value for name, value in one.flat().items() if value is not None and one.is_active(name)}
        for one in configs
    ]
    common = {name: value for name, value in values[0].items() if all(one.get(name) == value for one in values)}
    lines = _format_pairs({"name": name} | ({"question": question} if question else {}) | {"seeds": list(seeds)})
    if len(configs) > 1:
        lines.append("configs = [")
        for one in values:
            own = {name: one[name] for name in (*axes, *one) if name in one and name not in common}
            lines.append(f"  {{ {', '.join(_format_pairs(own))} }},")
        lines.append("]")
    for part in SETTING_GROUPS:
        inside = {name.removeprefix(f"{part}."): value for name, value in common.items() if name.startswith(f"{part}.")}
        lines += ["", f"[base.{part}]", *_format_pairs(inside)]
    return "\n".join(lines + format_declarations(declared)) + "\n"


def _format_pairs(values: Mapping[str, Value]) -> list[str]:
    return [f"{name} = {format_toml_value(value)}" for name, value in values.items()]
