"""Answers to the questions of a stored study, and groups of runs named on the command line for comparison."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, replace
from math import isfinite
from typing import Any

from seedbed.errors import MissingData, UsageError
from seedbed.format import format_setting, join_words
from seedbed.report.study_runs import load_run_curves
from seedbed.settings import all_settings
from seedbed.specs import STATISTIC_NAMES, describe_wrong_metric
from seedbed.stats.answers import Answer, answer_questions, format_question
from seedbed.stats.answers.best_group import compare_groups
from seedbed.stats.answers.defaults import choose_metric, list_metrics
from seedbed.stats.answers.finding import Finding, MetricStatistic
from seedbed.stats.groups import describe_excluded_runs, group_by_setting
from seedbed.stats.summary import RunCurves
from seedbed.store import Store
from seedbed.study.conditions import parse_filters
from seedbed.study.declarations import parse_declarations
from seedbed.study.toml_text import did_you_mean


def answer_study(store: Store, study: str, overrides: Sequence[str] = ()) -> list[Answer]:
    """The answers to every question of a study, or else to default questions, from the runs that the filters select."""
    questions = parse_declarations(store.study(study).text).questions
    runs = load_run_curves(store, study, overrides)
    return answer_questions(questions, runs)


def answers_as_json(study: str, answers: Sequence[Answer]) -> dict[str, Any]:
    """`answer --json`."""
    return {
        "study": study,
        "answers": [
            {
                "question": format_question(answer.question),
                "asked": answer.question.model_dump(exclude_defaults=True),
                "verdict": answer.verdict,
                "sentence": answer.sentence,
                "warning": answer.warning,
                "definitions": answer.definitions,
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
    if value not in STATISTIC_NAMES:
        names = ", ".join(STATISTIC_NAMES)
        raise UsageError(f"--value {value}: expected one of {names}{did_you_mean(value, STATISTIC_NAMES)}")
    if problem := describe_wrong_metric(value, [metric]):
        raise UsageError(f"--value {problem}")
    return MetricStatistic(metric, value)


# ---- comparing groups of runs ----


def choose_subject(groups: Mapping[str, Sequence[RunCurves]], metric: str | None, value: str) -> MetricStatistic:
    """The requested metric and statistic; by default the main metric that all groups have, in the same unit."""
    if metric is None:
        metrics = common_metrics(groups)
        metric = choose_metric(groups.values(), metrics) if metrics else "val/accuracy"
    return parse_subject(metric, value)


def common_metrics(groups: Mapping[str, Sequence[RunCurves]]) -> list[str]:
    """The metrics that every group with evaluations has, the main one first."""
    metrics = [names for runs in groups.values() if (names := list_metrics(runs))]
    return [name for name in metrics[0] if all(name in names for names in metrics)] if metrics else []


def compare_named(
    groups: Mapping[str, Sequence[RunCurves]],
    subject: MetricStatistic,
    arguments: Sequence[str],
    allow_confounds: bool = False,
) -> Finding:
    """The comparison of the groups that these arguments of `compare` name; UsageError if they share nothing to compare.

    The settings that the arguments name are those asked about; without `allow_confounds`, groups that differ in
    others get no verdict.
    """
    _check_metric(groups, subject)
    found = compare_groups(groups, subject, _asked_settings(arguments), allow_confounds)
    if not found.numbers and all(any(_has_value(run, subject) for run in runs) for runs in groups.values()):
        raise UsageError(
            f"{join_words(list(groups))} share nothing to compare: no combination of their settings is in all of them "
            f"with the same seeds; select comparable runs with --only, or compare others"
        )
    excluded = describe_excluded_runs([run for runs in groups.values() for run in runs])
    return replace(found, notes=tuple(dict.fromkeys([*excluded, *found.notes])))


def _has_value(run: RunCurves, subject: MetricStatistic) -> bool:
    return run.is_complete and isfinite(subject.compute(run))


def _check_metric(groups: Mapping[str, Sequence[RunCurves]], subject: MetricStatistic) -> None:
    """UsageError if a group has evaluations but not the metric."""
    if not subject.record.uses_metric:
        return
    available = {name: metrics for name, runs in groups.items() if (metrics := list_metrics(runs))}
    lacking = [name for name, metrics in available.items() if subject.metric not in metrics]
    if not lacking:
        return
    common = [metric for metric in next(iter(available.values())) if all(metric in one for one in available.values())]
    owner = (
        "no run has this metric"
        if len(lacking) == len(available)
        else f"{join_words(lacking)} {'have' if lacking[1:] else 'has'} no such metric"
    )
    known = f"available: {', '.join(common)}" if common else "the groups have no metric in common"
    raise UsageError(f"--metric {subject.metric}: {owner}{did_you_mean(subject.metric, common)}; {known}")


def _asked_settings(arguments: Sequence[str]) -> set[str]:
    """The settings that arguments of `compare` name, by themselves or in filters."""
    asked = {name for name in arguments if name in all_settings()}
    for argument in arguments:
        with suppress(UsageError):  # a study whose name is not a filter
            asked |= {term.name for term in parse_filters([argument])} if "=" in argument else set()
    return asked


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
        elif "=" in name or _is_grouping(name):
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
    filters = [name for name in arguments if "=" in name and name not in studies]
    settings = [name for name in arguments if _is_grouping(name)]
    others = [name for name in arguments if name not in (*filters, *settings)]
    if filters and settings:  # a filter would be a group that overlaps with those by setting
        command = shlex.join(["seedbed", "compare", *others, *settings, "--only", " ".join([*only, *filters])])
        raise UsageError(
            f"{settings[0]} makes a group for each of its values; to compare only some runs, use: {command}"
        )
    if only and (runs := [name for name in others if name not in studies]):
        raise UsageError(f"{runs[0]} is not a stored study, and --only selects among the runs of studies")


def _is_grouping(name: str) -> bool:
    """Whether runs can be grouped by this: a setting, or the dataset, which differs where a text was edited."""
    return name in all_settings() or name == "dataset"


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
        full = [name for name in all_settings() if name.endswith(f".{prefix}")]
        guess = f" (did you mean {join_words(full, 'or')}?)" if full else did_you_mean(prefix, all_settings())
        raise MissingData(f"{prefix} is neither a stored study, a run, a setting nor key=value{guess}") from None
    return RunCurves(run, {}, store.curves([run.id]).get(run.id, {}))
