"""Answers to the questions of a study file: a sentence each, with its uncertainty and the number of runs behind it.

    question = QuestionSpec(ask="which is better", metric="val/accuracy", between="model.kind")
    answer_question(question, runs).sentence

One file per kind of question, and one line for it here. Insufficient data (two seeds, NaN, failed runs) is reported and
never averaged away. `stats.run_statistics` computes the values, `stats.groups` balances them, `stats.comparison`
compares them; terms that the sentences use are defined once, below them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from seedbed.format import join_words
from seedbed.interp.analysis import is_analysis_metric
from seedbed.specs import QuestionSpec
from seedbed.stats.answers.best_group import answer_which_is_better
from seedbed.stats.answers.claims import answer_does_it_hold, answer_extreme_level
from seedbed.stats.answers.defaults import DEFAULT_NOTE, default_questions
from seedbed.stats.answers.defaults import format_question as format_question
from seedbed.stats.answers.finding import Finding, badge, metric_definition
from seedbed.stats.answers.milestones import answer_grokking, answer_stopping
from seedbed.stats.answers.scaling import answer_what_law, answer_which_scales_better
from seedbed.stats.answers.trend import answer_how_it_changes
from seedbed.stats.decision import Verdict
from seedbed.stats.groups import describe_excluded_runs, filter_runs
from seedbed.stats.run_statistics import find_statistic, truncate_run
from seedbed.stats.summary import RunCurves, describe_missing_weights

ANSWER_FUNCTIONS: Final[Mapping[str, Callable[[QuestionSpec, Sequence[RunCurves]], Finding]]] = {
    "which is better": answer_which_is_better,
    "how does it change": answer_how_it_changes,
    "smallest": answer_extreme_level,
    "largest": answer_extreme_level,
    "which scales better": answer_which_scales_better,
    "what law": answer_what_law,
    "grokking": answer_grokking,
    "stopping": answer_stopping,
    "does it hold": answer_does_it_hold,
}


@dataclass(frozen=True)
class Answer:
    """A sentence for a report, the numbers behind it, how many runs they use, warnings for the reader, the verdict."""

    question: QuestionSpec
    sentence: str
    numbers: Mapping[str, Any]
    n: int
    warning: str = ""
    verdict: Verdict | None = None
    definitions: tuple[str, ...] = ()  # of the terms in the sentence


def answer_questions(questions: Sequence[QuestionSpec], runs: Sequence[RunCurves]) -> list[Answer]:
    """The answers to these questions in order; if there are none, to default questions, which a note tells."""
    if questions:
        return [answer_question(question, runs) for question in questions]
    answers = [answer_question(question, runs) for question in default_questions(runs)]
    return [replace(one, warning="; ".join(filter(None, (DEFAULT_NOTE, one.warning)))) for one in answers]


def answer_lines(answer: Answer) -> list[str]:
    """The question, and below it the sentence behind its verdict and the warning."""
    warning = [f"  ({answer.warning})"] if answer.warning else []
    return [format_question(answer.question), f"  {badge(answer.verdict)}{answer.sentence}", *warning]


def all_definitions(answers: Iterable[Answer]) -> list[str]:
    """The definitions of the terms in these answers, each once."""
    return list(dict.fromkeys(definition for answer in answers for definition in answer.definitions))


def answer_question(question: QuestionSpec, runs: Sequence[RunCurves]) -> Answer:
    """The answer from these runs; always a sentence, also when there is no answer."""
    selected, until = filter_runs(runs, question.only), tuple[str, ...]()
    if (t_max := question.t_max) is not None:
        selected, until = [truncate_run(run, t_max) for run in selected], (f"as if stopped at step {t_max:,}",)
    reason = _reason_for_no_answer(question, selected)
    finding = Finding(reason) if reason else ANSWER_FUNCTIONS[question.ask](question, selected)
    is_analysed = any(is_analysis_metric(metric) for metric in (question.metric, question.and_metric or ""))
    missing = describe_missing_weights(selected) if is_analysed else []
    notes = dict.fromkeys([*until, *describe_excluded_runs(selected), *finding.notes, *missing])
    defined = (metric_definition(metric) for metric in (question.metric, question.and_metric or ""))
    definitions = tuple(dict.fromkeys(filter(None, (*defined, *finding.definitions)))) if finding.n else ()
    warning = "; ".join(notes)
    return Answer(question, finding.sentence, finding.numbers, finding.n, warning, finding.verdict, definitions)


def _reason_for_no_answer(question: QuestionSpec, runs: Sequence[RunCurves]) -> str:
    """Why there is no answer at all, or an empty string."""
    complete = [run for run in runs if run.is_complete or (question.over == "alpha" and run.is_included)]
    if not runs:
        return "There is no answer yet: no run has the settings that the question asks about."
    if not complete:
        return "There is no answer yet: no run is complete."
    if not find_statistic(question.value).uses_metric:
        return ""
    for metric in filter(None, (question.metric, question.and_metric)):
        if not any(metric in run.curves for run in complete):
            known = sorted({name for run in complete for name in run.curves})
            if is_analysis_metric(metric) and not any(map(is_analysis_metric, known)):
                return (
                    f"There is no answer yet: no run has the metric {metric}, which `seedbed analyze STUDY` computes."
                )
            alike = [name for name in known if name.partition("[")[0] == metric.partition("[")[0]]
            return f"There is no answer: no run has the metric {metric}; available: {join_words(alike or known)}."
    return ""
