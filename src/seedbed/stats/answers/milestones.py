"""Marks on the curves of each group: which runs grokked and when, and where training could have stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from seedbed.specs import QuestionSpec
from seedbed.stats.answers.finding import Finding, format_clause, join_sentences, split_by_setting
from seedbed.stats.comparison import ConfidenceInterval, clopper_pearson, mean_confidence_interval
from seedbed.stats.curve_statistics import metric_direction
from seedbed.stats.format import format_count, format_interval, format_number, join_words, pluralise
from seedbed.stats.grokking import GROKKING_LABELS, LABEL_DEFINITIONS, GrokkingLabel
from seedbed.stats.groups import group_by_description, varying_settings
from seedbed.stats.run_statistics import classify_run
from seedbed.stats.stopping_advice import advise_stopping_for_runs, format_stopping_advice
from seedbed.stats.summary import RunCurves


def answer_grokking(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """How many runs have each label, and how long the delay of those that grokked was."""
    clauses, numbers, n = [], {}, 0
    for name, some in split_by_setting(question, runs).items():
        labels = [found for run in some if run.is_included and (found := classify_run(run, question.metric))]
        counts = Counter(found.label for found in labels)
        delay = mean_confidence_interval([found.delay for found in labels if found.label == "grokked"])
        clauses.append(format_clause(name, _format_label_counts(counts, delay)))
        numbers[name or "all"] = {"labels": {label: counts[label] for label in GROKKING_LABELS}, "delay": asdict(delay)}
        n += len(labels)
    return Finding(f"{join_sentences(clauses)} ({LABEL_DEFINITIONS}.)", numbers, n)


def _format_label_counts(counts: Mapping[GrokkingLabel, int], delay: ConfidenceInterval) -> str:
    total = sum(counts.values())
    if not total:
        return "no run has both accuracies recorded"
    n_grokked = counts.get("grokked", 0)
    kinds = join_words([f"{counts[label]} {label}" for label in GROKKING_LABELS if counts.get(label)])
    share = f"share grokked {format_number(n_grokked / total)} {format_interval(*clopper_pearson(n_grokked, total))}"
    return f"of {pluralise(total, 'run')}, {kinds}; {share}{_format_delay(delay)}"


def _format_delay(delay: ConfidenceInterval) -> str:
    if not delay.n:
        return ""
    bounds = f" {format_interval(delay.low, delay.high)}" if delay.n > 1 else ""
    return (
        f"; from memorising to generalising took {format_count(round(delay.mean))} steps{bounds} (mean over {delay.n})"
    )


def answer_stopping(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """The best step of each point with its noise, and the first that cannot be told from it."""
    if metric_direction(question.metric) is None:
        return Finding(f"There is no stopping point to find: no value of {question.metric} is best.")
    clauses, numbers, n = [], {}, 0
    for name, some in group_by_description(runs, varying_settings([runs])).items():
        if advice := advise_stopping_for_runs(some, question.metric):
            clauses.append(format_clause(name, format_stopping_advice(advice, question.metric)))
            numbers[name or "all"] = asdict(advice)
            n += advice.n
    return Finding(join_sentences(clauses), numbers, n)
