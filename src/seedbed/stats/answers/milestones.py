"""Milestones of training: which runs grokked and when, and where training could have stopped."""

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
    """How many runs have each grokking label, and the mean delay of those that grokked."""
    clauses, numbers, n = [], {}, 0
    for name, group in split_by_setting(question, runs).items():
        results = [result for run in group if run.is_included and (result := classify_run(run, question.metric))]
        counts = Counter(result.label for result in results)
        delay = mean_confidence_interval([result.delay for result in results if result.label == "grokked"])
        clauses.append(format_clause(name, _format_label_counts(counts, delay)))
        numbers[name or "all"] = {"labels": {label: counts[label] for label in GROKKING_LABELS}, "delay": asdict(delay)}
        n += len(results)
    return Finding(f"{join_sentences(clauses)} ({LABEL_DEFINITIONS}.)", numbers, n)


def _format_label_counts(counts: Mapping[GrokkingLabel, int], delay: ConfidenceInterval) -> str:
    total = sum(counts.values())
    if not total:
        return "no run has both accuracies recorded"
    n_grokked = counts.get("grokked", 0)
    by_label = join_words([f"{counts[label]} {label}" for label in GROKKING_LABELS if counts.get(label)])
    interval = format_interval(*clopper_pearson(n_grokked, total))
    fraction = f"fraction grokked {format_number(n_grokked / total)}, 95 % interval {interval}"
    return f"of {pluralise(total, 'run')}, {by_label}; {fraction}{_format_delay(delay)}"


def _format_delay(delay: ConfidenceInterval) -> str:
    if not delay.n:
        return ""
    bounds = f" {format_interval(delay.low, delay.high)}" if delay.n > 1 else ""
    steps = f"{format_count(round(delay.mean))} steps{bounds}"
    return f"; delay from memorisation to generalisation {steps} (mean over {pluralise(delay.n, 'run')})"


def answer_stopping(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """The best step of each config with its standard error, and the first step within it."""
    if metric_direction(question.metric) is None:
        return Finding(f"There is no stopping point: neither a low nor a high {question.metric} is better.")
    clauses, numbers, n = [], {}, 0
    for name, group in group_by_description(runs, varying_settings([runs])).items():
        if advice := advise_stopping_for_runs(group, question.metric):
            clauses.append(format_clause(name, format_stopping_advice(advice, question.metric)))
            numbers[name or "all"] = asdict(advice)
            n += advice.n
    return Finding(join_sentences(clauses), numbers, n)
