"""Questions for studies that declare none: how the main metric depends on each setting that they vary."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Final

from seedbed.settings import all_settings
from seedbed.specs import QuestionSpec
from seedbed.stats.answers.finding import has_several_units
from seedbed.stats.curve_statistics import metric_direction
from seedbed.stats.groups import group_by_setting, is_numeric
from seedbed.stats.metric_registry import metric_sort_key
from seedbed.stats.summary import RunCurves

MIN_TREND_VALUES: Final = 3  # of a numeric setting; two are compared instead
DEFAULT_NOTE: Final = "a default question, since the study has no [[questions]]"


def list_metrics(runs: Sequence[RunCurves]) -> list[str]:
    """The metrics of these runs, the main one first: metrics with a better direction precede the others."""
    names = {name for run in runs for name in run.curves}
    first = ("val/loss", "val/accuracy") if _are_texts(runs) else ("val/accuracy", "val/loss")
    ranked = sorted(names, key=lambda name: (metric_direction(name) is None, metric_sort_key(name)))
    return list(dict.fromkeys(name for name in (*first, "val/perplexity", *ranked) if name in names))


def _are_texts(runs: Sequence[RunCurves]) -> bool:
    return bool(runs) and all(run.run.settings.task.generates_text for run in runs)


def choose_metric(groups: Collection[Sequence[RunCurves]], metrics: Sequence[str]) -> str:
    """The first metric that has the same unit in all groups, those of validation before the others; else the first."""
    ranked = sorted(metrics, key=lambda name: (metric_direction(name) is None, not name.startswith("val/")))
    return next((name for name in ranked if not has_several_units(groups, name)), metrics[0])


def default_questions(runs: Sequence[RunCurves]) -> list[QuestionSpec]:
    """One question for each setting that the runs vary, about their main metric; without any, when it is best.

    Settings that vary only together are asked about once.
    """
    metrics = list_metrics([run for run in runs if run.is_included])
    if not metrics or metric_direction(metrics[0]) is None:
        return []
    questions = [_question_about(setting, runs, metrics) for setting in _varied_settings(runs)]
    return questions or [QuestionSpec(ask="stopping", metric=metrics[0])]


def _question_about(setting: str, runs: Sequence[RunCurves], metrics: Sequence[str]) -> QuestionSpec:
    """The question about a setting, by the main metric that has the same unit for all of its values."""
    values = group_by_setting(runs, setting)
    metric = choose_metric(values.values(), metrics)
    if is_numeric(values) and len(values) >= MIN_TREND_VALUES:
        return QuestionSpec(ask="how does it change", metric=metric, over=setting)
    return QuestionSpec(ask="which is better", metric=metric, between=setting)


def _varied_settings(runs: Sequence[RunCurves]) -> list[str]:
    """The settings with several values, without those that distinguish the same runs as an earlier one."""
    found: dict[Hashable, str] = {}
    for name in dict.fromkeys(name for run in runs for name in run.config):
        groups = group_by_setting(runs, name)
        if name in all_settings() and len(groups) > 1:
            found.setdefault(frozenset(frozenset(run.run.id for run in group) for group in groups.values()), name)
    return list(found.values())
