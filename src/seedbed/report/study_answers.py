"""Answers to the questions of a stored study, and groups of runs named on the command line for comparison."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict
from typing import Any

from seedbed.errors import MissingData, UsageError
from seedbed.report.study_runs import load_run_curves
from seedbed.settings import all_settings
from seedbed.stats.answers import Answer, answer_question, format_question
from seedbed.stats.answers.comparison_text import MetricStatistic
from seedbed.stats.answers.finding import Finding
from seedbed.stats.format import format_setting
from seedbed.stats.groups import group_by_setting
from seedbed.stats.run_statistics import STATISTICS
from seedbed.stats.summary import RunCurves
from seedbed.store import Store
from seedbed.study.declarations import parse_declarations
from seedbed.study.toml_format import did_you_mean


def answer_study(store: Store, study: str, overrides: Sequence[str] = ()) -> list[Answer]:
    """The answers to every question of a study, in order, from the runs that the overrides select."""
    questions = parse_declarations(store.study(study).text).questions
    runs = load_run_curves(store, study, overrides)
    return [answer_question(question, runs) for question in questions]


def answers_as_json(study: str, answers: Sequence[Answer]) -> dict[str, Any]:
    """`answer --json`."""
    return {
        "study": study,
        "answers": [
            {
                "question": format_question(answer.question),
                "asked": answer.question.model_dump(exclude_defaults=True),
                "sentence": answer.sentence,
                "warning": answer.warning,
                "n": answer.n,
                "numbers": answer.numbers,
            }
            for answer in answers
        ],
    }


def comparison_as_json(groups: Mapping[str, Sequence[RunCurves]], comparison: Finding) -> dict[str, Any]:
    """`compare --json`."""
    return {"groups": {name: [run.run.id for run in runs] for name, runs in groups.items()}} | asdict(comparison)


def parse_subject(metric: str, value: str) -> MetricStatistic:
    """The metric and statistic that `--metric` and `--value` name."""
    if value not in STATISTICS:
        raise UsageError(f"--value {value}: expected one of {', '.join(STATISTICS)}{did_you_mean(value, STATISTICS)}")
    return MetricStatistic(metric, value)


# ---- groups of runs ----


def load_groups(store: Store, arguments: Sequence[str], only: Sequence[str] = ()) -> dict[str, list[RunCurves]]:
    """The groups that the arguments of `compare` name: studies, runs, filters, or a setting of the study before them.

    `STUDY model.kind=gpt model.kind=lstm`, `STUDY model.kind`, `STUDY "model.kind=gpt train.lr=1e-3" …`, `STUDY STUDY`
    and `RUN RUN` all make groups; a study that nothing follows is itself a group. `only` selects among the runs of all.
    """
    studies = {study.name for study in store.studies()}
    _check_arguments(arguments, only, studies)
    groups: dict[str, list[RunCurves]] = {}
    study: str | None = None
    is_used = True
    for name in arguments:
        if name in studies:
            groups |= {} if is_used or study is None else {study: load_run_curves(store, study, only)}
            study, is_used = name, False
        elif "=" in name or name in all_settings():
            groups |= _groups_within_study(store, study, name, only, len(studies & set(arguments)) > 1)
            is_used = True
        else:
            groups[name] = [_load_run(store, name)]
    groups |= {} if is_used or study is None else {study: load_run_curves(store, study, only)}
    if len(groups) < 2:
        raise UsageError(
            f"{' '.join(arguments)}: only one group; expected two or more, such as STUDY model.kind=gpt model.kind=lstm"
        )
    return groups


def _check_arguments(arguments: Sequence[str], only: Sequence[str], studies: Set[str]) -> None:
    """UsageError for arguments that cannot be meant as groups."""
    filters = [name for name in arguments if "=" in name]
    settings = [name for name in arguments if name in all_settings()]
    others = [name for name in arguments if name not in (*filters, *settings)]
    if filters and settings:  # a filter would be a group that overlaps with those by setting
        command = shlex.join(["seedbed", "compare", *others, *settings, "--only", " ".join([*only, *filters])])
        raise UsageError(
            f"{settings[0]} makes a group for each of its values; to compare only some runs, use: {command}"
        )
    if only and (runs := [name for name in others if name not in studies]):
        raise UsageError(f"{runs[0]} is not a stored study, and --only selects among the runs of studies")


def _groups_within_study(
    store: Store, study: str | None, argument: str, only: Sequence[str], show_study: bool
) -> dict[str, list[RunCurves]]:
    if study is None:
        raise UsageError(f"{argument}: name a stored study before the filters that select its runs")
    label = f"{study} " if show_study else ""
    if "=" in argument:
        return {f"{label}{argument}": load_run_curves(store, study, [*only, argument])}
    return {
        f"{label}{format_setting(argument, value)}": runs
        for value, runs in group_by_setting(load_run_curves(store, study, only), argument).items()
    }


def _load_run(store: Store, prefix: str) -> RunCurves:
    try:
        run = store.run(prefix)
    except MissingData:
        raise MissingData(f"{prefix} is neither a stored study, a run, a setting nor key=value") from None
    return RunCurves(run, {}, store.curves([run.id]).get(run.id, {}))
