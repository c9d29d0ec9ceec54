"""Milestones of training: which runs grokked and when, and where training could have stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from seedbed.specs import QuestionSpec
from seedbed.stats.answers.finding import Finding, format_clause, join_sentences
from seedbed.stats.comparison import ConfidenceInterval, clopper_pearson, has_width, mean_confidence_interval
from seedbed.stats.curve_statistics import metric_direction
from seedbed.stats.format import format_count, format_interval, format_number, join_words, pluralise
from seedbed.stats.grokking import GROKKING_LABELS, LABEL_DEFINITIONS, GrokkingLabel
from seedbed.stats.groups import group_by_description, varying_settings
from seedbed.stats.run_statistics import classify_run
from seedbed.stats.stopping_advice import advise_stopping_for_runs, format_stopping_advice
from seedbed.stats.summary import RunCurves

MAX_FULL_CLAUSES: Final = 4  # configs with a sentence each; more are listed by label


def answer_grokking(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """How many runs of each config have each grokking label, and the mean delay of those that grokked."""
    groups = group_by_description(runs, _grouping_settings(question, runs))
    clauses, counts_by_group, numbers, n = [], {}, {}, 0
    for name, group in groups.items():
        complete = [run for run in group if run.is_complete]
        results = [result for run in complete if (result := classify_run(run, question.metric))]
        counts = Counter(result.label for result in results)
        delay = mean_confidence_interval([result.delay for result in results if result.label == "grokked"])
        clauses.append(format_clause(name, _format_label_counts(counts, delay) if complete else "no run is complete"))
        counts_by_group[name] = counts
        numbers[name or "all"] = {"labels": {label: counts[label] for label in GROKKING_LABELS}, "delay": asdict(delay)}
        n += len(results)
    text = join_sentences(clauses) if len(groups) <= MAX_FULL_CLAUSES else _list_groups_by_label(counts_by_group)
    return Finding(f"{text} ({LABEL_DEFINITIONS}.)", numbers, n)


def _grouping_settings(question: QuestionSpec, runs: Sequence[RunCurves]) -> list[str]:
    """All settings that vary, so that no two configs are pooled: that of the question first, then task and model."""
    varying = varying_settings([runs])
    parts = ("task.", "model.", "train.")
    varying.sort(
        key=lambda name: next((index for index, part in enumerate(parts) if name.startswith(part)), len(parts))
    )
    return list(dict.fromkeys([*filter(None, [question.between]), *varying]))


def _list_groups_by_label(counts: Mapping[str, Mapping[GrokkingLabel, int]]) -> str:
    """For many configs: those in which every run has the same label, by label, and those with several."""
    by_label: dict[str, list[str]] = {}
    for name, labels in counts.items():
        present = [label for label in GROKKING_LABELS if labels.get(label)]
        text = f"{name} ({join_words([f'{labels[label]} {label}' for label in present])})" if len(present) > 1 else name
        by_label.setdefault("several labels" if len(present) > 1 else present[0] if present else "", []).append(text)
    headings: dict[str, str] = {label: f"every run {label}" for label in GROKKING_LABELS}
    headings |= {"several labels": "runs differ", "": "no complete run with both accuracies"}
    clauses = [f"{heading}: {'; '.join(by_label[label])}" for label, heading in headings.items() if label in by_label]
    return " ".join(f"{clause[0].upper()}{clause[1:]}." for clause in clauses)


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
    is_shown = delay.n > 1 and has_width(delay.low, delay.high)
    bounds = f" {format_interval(delay.low, delay.high)} by Student's t" if is_shown else ""
    steps = f"{format_count(round(delay.mean))} steps{bounds}"
    return f"; delay from memorisation to generalisation {steps} (mean over {pluralise(delay.n, 'run')})"


def answer_stopping(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """The best step of each config with its standard error, and the first step within it."""
    if metric_direction(question.metric) is None:
        return Finding(f"There is no stopping point: neither a low nor a high {question.metric} is better.")
    clauses, numbers, n = [], {}, 0
    for name, group in group_by_description(runs, varying_settings([runs])).items():
        if advice := advise_stopping_for_runs([run for run in group if run.is_complete], question.metric):
            clauses.append(format_clause(name, format_stopping_advice(advice, question.metric)))
            numbers[name or "all"] = asdict(advice)
            n += advice.n
    return Finding(join_sentences(clauses), numbers, n)
