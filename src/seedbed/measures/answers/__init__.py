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

from seedbed.measures.answers.better import which_is_better
from seedbed.measures.answers.change import how_does_it_change
from seedbed.measures.answers.found import Found
from seedbed.measures.answers.holds import does_it_hold
from seedbed.measures.answers.level import extreme_level
from seedbed.measures.answers.marks import grokked, when_to_stop
from seedbed.measures.answers.scales import which_scales_better
from seedbed.measures.groups import chosen, left_out
from seedbed.measures.summary import RunCurves
from seedbed.measures.words import listed, plural
from seedbed.shown import Question

KINDS: Final[Mapping[str, Callable[[Question, Sequence[RunCurves]], Found]]] = {
    "which is better": which_is_better,
    "how does it change": how_does_it_change,
    "smallest": extreme_level,
    "largest": extreme_level,
    "which scales better": which_scales_better,
    "grokking": grokked,
    "stopping": when_to_stop,
    "does it hold": does_it_hold,
}


@dataclass(frozen=True)
class Answer:
    """A sentence to hand in, the numbers behind it, how many runs are in them, and what a reader has to know."""

    question: Question
    sentence: str
    numbers: Mapping[str, Any]
    n: int
    warning: str = ""


def answer(question: Question, runs: Sequence[RunCurves]) -> Answer:
    """The answer from these runs; a sentence in every case."""
    asked = chosen(runs, question.only)
    found = Found(reason) if (reason := _no_answer(question, asked)) else KINDS[question.ask](question, asked)
    notes = dict.fromkeys([*left_out(asked), *found.notes])
    return Answer(question, found.sentence, found.numbers, found.n, "; ".join(notes))


def question_in_words(question: Question) -> str:
    """The study's own words, or the kind of question and what it is about."""
    if question.text:
        return question.text
    about = f" of {question.value}" if question.value != "best" else ""
    parts = [f"{question.ask}{about}: {question.metric}"]
    parts += [f"over {question.over}"] if question.over else []
    parts += [f"between {question.between}"] if question.between else []
    return " ".join(parts)


def _no_answer(question: Question, runs: Sequence[RunCurves]) -> str:
    """Why there is no answer at all, or an empty text."""
    counted = [run for run in runs if run.counts]
    if not runs:
        return "There is no answer yet: no run has the settings that the question asks about."
    if not counted:
        return f"There is no answer yet: none of {plural(len(runs), 'run')} has a record that counts."
    if question.value in ("seconds", "memory"):
        return ""
    for metric in filter(None, (question.metric, question.and_metric)):
        if not any(metric in run.curves for run in counted):
            known = sorted({name for run in counted for name in run.curves})
            return f"There is no answer: no run has a reading {metric}; there are {listed(known)}."
    return ""
