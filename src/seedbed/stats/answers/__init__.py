"""Questions of a study file answered in sentences, each with its uncertainty and the number of runs behind it.

    answer(Question(ask="which is better", metric="val/accuracy", between="model.kind"), runs).sentence

One file for each kind of question, and one line for it here. What is too little to tell (two seeds, NaN, runs that
failed) is said and never averaged away. Numbers are taken by `measures.values`, balanced by `measures.groups`, compared
by `measures.compare`; `said` has the words of a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seedbed.specs import QuestionSpec
from seedbed.stats.answers.best_group import answer_which_is_better
from seedbed.stats.answers.claims import answer_does_it_hold
from seedbed.stats.answers.finding import Finding
from seedbed.stats.answers.milestones import answer_grokking, answer_stopping
from seedbed.stats.answers.scaling_comparison import answer_which_scales_better
from seedbed.stats.answers.thresholds import answer_extreme_level
from seedbed.stats.answers.trend import answer_how_it_changes
from seedbed.stats.format import join_words, pluralise
from seedbed.stats.groups import describe_excluded_runs, filter_runs
from seedbed.stats.summary import RunCurves

ANSWER_FUNCTIONS: Final[Mapping[str, Callable[[QuestionSpec, Sequence[RunCurves]], Finding]]] = {
    "which is better": answer_which_is_better,
    "how does it change": answer_how_it_changes,
    "smallest": answer_extreme_level,
    "largest": answer_extreme_level,
    "which scales better": answer_which_scales_better,
    "grokking": answer_grokking,
    "stopping": answer_stopping,
    "does it hold": answer_does_it_hold,
}


@dataclass(frozen=True)
class Answer:
    """A sentence to hand in, the numbers behind it, how many runs are in them, and what a reader has to know."""

    question: QuestionSpec
    sentence: str
    numbers: Mapping[str, Any]
    n: int
    warning: str = ""


def answer_question(question: QuestionSpec, runs: Sequence[RunCurves]) -> Answer:
    """The answer from these runs; a sentence in every case."""
    asked = filter_runs(runs, question.only)
    found = (
        Finding(reason)
        if (reason := _reason_for_no_answer(question, asked))
        else ANSWER_FUNCTIONS[question.ask](question, asked)
    )
    notes = dict.fromkeys([*describe_excluded_runs(asked), *found.notes])
    return Answer(question, found.sentence, found.numbers, found.n, "; ".join(notes))


def format_question(question: QuestionSpec) -> str:
    """The study's own words, or the kind of question and what it is about."""
    if question.text:
        return question.text
    about = f" of {question.value}" if question.value != "best" else ""
    parts = [f"{question.ask}{about}: {question.metric}"]
    parts += [f"over {question.over}"] if question.over else []
    parts += [f"between {question.between}"] if question.between else []
    return " ".join(parts)


def _reason_for_no_answer(question: QuestionSpec, runs: Sequence[RunCurves]) -> str:
    """Why there is no answer at all, or an empty text."""
    counted = [run for run in runs if run.is_included]
    if not runs:
        return "There is no answer yet: no run has the settings that the question asks about."
    if not counted:
        return f"There is no answer yet: none of {pluralise(len(runs), 'run')} has a record that counts."
    if question.value in ("seconds", "memory"):
        return ""
    for metric in filter(None, (question.metric, question.and_metric)):
        if not any(metric in run.curves for run in counted):
            known = sorted({name for run in counted for name in run.curves})
            return f"There is no answer: no run has a reading {metric}; there are {join_words(known)}."
    return ""
