"""Marks on the curves of each group: which runs grokked and when, and where training could have stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from seedbed.measures.answers.found import Found, clause, in_sentences, parts_of
from seedbed.measures.compare import Interval, interval, share_interval
from seedbed.measures.curves import direction
from seedbed.measures.grokking import DEFINITION, LABELS, Label
from seedbed.measures.groups import by_setting, inner_dials
from seedbed.measures.stopping import advise_runs, stop_in_words
from seedbed.measures.summary import RunCurves
from seedbed.measures.values import run_label
from seedbed.measures.words import bracket, count, listed, number, plural
from seedbed.shown import Question


def grokked(question: Question, runs: Sequence[RunCurves]) -> Found:
    """How many runs have each label, and how long the delay of those that grokked was."""
    clauses, numbers, n = [], {}, 0
    for name, some in parts_of(question, runs).items():
        labels = [found for run in some if run.counts and (found := run_label(run, question.metric))]
        counts = Counter(found.label for found in labels)
        delay = interval([found.delay for found in labels if found.label == "grokked"])
        clauses.append(clause(name, _labels_in_words(counts, delay)))
        numbers[name or "all"] = {"labels": {label: counts[label] for label in LABELS}, "delay": asdict(delay)}
        n += len(labels)
    return Found(f"{in_sentences(clauses)} ({DEFINITION}.)", numbers, n)


def _labels_in_words(counts: Mapping[Label, int], delay: Interval) -> str:
    total = sum(counts.values())
    if not total:
        return "no run has both accuracies recorded"
    n_grokked = counts.get("grokked", 0)
    kinds = listed([f"{counts[label]} {label}" for label in LABELS if counts.get(label)])
    share = f"share grokked {number(n_grokked / total)} {bracket(*share_interval(n_grokked, total))}"
    return f"of {plural(total, 'run')}, {kinds}; {share}{_delay_in_words(delay)}"


def _delay_in_words(delay: Interval) -> str:
    if not delay.n:
        return ""
    bounds = f" {bracket(delay.low, delay.high)}" if delay.n > 1 else ""
    return f"; from memorising to generalising took {count(round(delay.mean))} steps{bounds} (mean over {delay.n})"


def when_to_stop(question: Question, runs: Sequence[RunCurves]) -> Found:
    """The best step of each point with its noise, and the first that cannot be told from it."""
    if direction(question.metric) is None:
        return Found(f"There is no stopping point to find: no value of {question.metric} is best.")
    clauses, numbers, n = [], {}, 0
    for name, some in by_setting(runs, inner_dials([runs])).items():
        if advice := advise_runs(some, question.metric):
            clauses.append(clause(name, stop_in_words(advice, question.metric)))
            numbers[name or "all"] = asdict(advice)
            n += advice.n
    return Found(in_sentences(clauses), numbers, n)
