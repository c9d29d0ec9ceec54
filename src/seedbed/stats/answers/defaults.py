"""Questions for studies that declare none, about each setting that they vary; and questions as text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Final

from seedbed.format import format_number, setting_noun, setting_with_article
from seedbed.settings import all_settings
from seedbed.specs import QuestionSpec
from seedbed.stats.answers.finding import MetricStatistic, format_bounds, has_several_units
from seedbed.stats.groups import group_by_setting, is_numeric
from seedbed.stats.metric_registry import metric_direction, metric_label, metric_sort_key
from seedbed.stats.summary import RunCurves

MIN_TREND_VALUES: Final = 3  # of a numeric setting; two are compared instead
DEFAULT_NOTE: Final = "a default question, since the study has no [[questions]]"


def list_metrics(runs: Sequence[RunCurves]) -> list[str]:
    """The metrics of these runs, the main one first: metrics with a better direction precede the others."""
    names = {name for run in runs for name in run.curves}
    are_texts = bool(runs) and all(run.run.settings.task.generates_text for run in runs)
    first = ("val/loss", "val/accuracy") if are_texts else ("val/accuracy", "val/loss")
    ranked = sorted(names, key=lambda name: (metric_direction(name) is None, metric_sort_key(name)))
    return list(dict.fromkeys(name for name in (*first, "val/perplexity", *ranked) if name in names))


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


def format_question(question: QuestionSpec) -> str:
    """The question's text in the study file, or else one from its kind, metric and settings."""
    return question.text or _FORMATS[question.ask](question, MetricStatistic.from_question(question))


def _which_is_better(question: QuestionSpec, statistic: MetricStatistic) -> str:
    if question.between is None and question.and_metric is not None:
        metrics = f"{metric_label(question.metric)} or {metric_label(question.and_metric)}"
        return f"Which is better, {metrics}, by the {statistic.statistic} value?"
    return f"Which {setting_noun(question.between or '')} has the {statistic.superlative()}?"


def _extreme_level(question: QuestionSpec, statistic: MetricStatistic) -> str:
    condition = f"{statistic} {format_bounds(question.at_least, question.at_most)}"
    if question.and_metric is not None:
        other = format_bounds(question.and_at_least, question.and_at_most)
        condition += f" and {MetricStatistic(question.and_metric, question.value)} {other}"
    return f"What is the {question.ask} {setting_noun(question.over or '')} with {condition}?"


def _does_it_hold(question: QuestionSpec, statistic: MetricStatistic) -> str:
    if question.and_metric is None and question.expect != "same":
        return f"Is {statistic} {format_bounds(question.at_least, question.at_most)} in most runs?"
    within = f", within ±{format_number(question.margin)}" if question.margin else ""
    relation = "the same" if question.expect == "same" else question.expect
    if question.and_metric is None:
        return f"Is {statistic} {relation} for every {setting_noun(question.between or '')}{within}?"
    other = f"{'as' if question.expect == 'same' else 'than'} {metric_label(question.and_metric)}"
    return f"Is {statistic} {relation} {other}{within}?"


def _each(question: QuestionSpec) -> str:
    return f" for each {setting_noun(question.between)}" if question.between else ""


_FORMATS: Final[Mapping[str, Callable[[QuestionSpec, MetricStatistic], str]]] = {
    "which is better": _which_is_better,
    "how does it change": lambda question, statistic: (
        f"How does {statistic} change with {setting_with_article(question.over or '')}{_each(question)}?"
    ),
    "smallest": _extreme_level,
    "largest": _extreme_level,
    "which scales better": lambda question, statistic: (
        f"Which {setting_noun(question.between or '')} scales better with {setting_with_article(question.over or '')}, "
        f"by {statistic}?"
    ),
    "what law": lambda question, statistic: (
        f"Which power law does {statistic} follow in {setting_with_article(question.over or 'parameters')}"
        f"{_each(question)}?"
    ),
    "grokking": lambda question, statistic: f"How many runs grok{_each(question)}?",
    "stopping": lambda question, statistic: f"When could training have stopped, by {statistic.label}?",
    "does it hold": _does_it_hold,
}
