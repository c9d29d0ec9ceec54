"""Milestones of training: which runs grokked and when, and where training could have stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from seedbed.format import capitalise, format_count, join_words, pluralise
from seedbed.specs import QuestionSpec
from seedbed.stats.answers.finding import Finding, join_clauses
from seedbed.stats.comparison import ConfidenceInterval, clopper_pearson, has_width, mean_confidence_interval
from seedbed.stats.grokking import GROKKING_LABELS, LABEL_DEFINITIONS, GrokkingLabel
from seedbed.stats.groups import group_by_description, varying_settings
from seedbed.stats.metric_registry import metric_direction, metric_label
from seedbed.stats.run_statistics import classify_run
from seedbed.stats.stopping_advice import advise_stopping_for_runs, format_stopping_advice
from seedbed.stats.summary import RunCurves

LABEL_VERBS: Final[Mapping[GrokkingLabel, str]] = {
    "not learned": "learned neither set", "memorised": "only memorised", "grokked": "grokked",
    "generalised": "generalised without delay",
}  # fmt: skip
GROKKING_INTERVALS: Final = "95 % CI: of the fraction by Clopper and Pearson, of the delay by Student's t"
STOPPING: Final = (
    "± in stopping advice: standard error over seeds, or of one seed from the scatter of nearby evaluations; a step "
    "within one standard error of the best is as good"
)
MAX_FULL_CLAUSES: Final = 4  # configs with a sentence each; more are listed by label


def answer_grokking(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """How many runs of each config have each grokking label, and the mean delay of those that grokked."""
    groups = group_by_description(runs, _grouping_settings(question, runs))
    clauses, counts_by_group, numbers, n = {}, {}, {}, 0
    for name, group in groups.items():
        complete = [run for run in group if run.is_complete]
        results = [result for run in complete if (result := classify_run(run, question.metric))]
        counts = Counter(result.label for result in results)
        delay = mean_confidence_interval([result.delay for result in results if result.label == "grokked"])
        clauses[name] = _format_label_counts(counts, delay, bool(name)) if complete else "no run is complete"
        counts_by_group[name] = counts
        numbers[name or "all"] = {"labels": {label: counts[label] for label in GROKKING_LABELS}, "delay": asdict(delay)}
        n += len(results)
    text = join_clauses(clauses) if len(groups) <= MAX_FULL_CLAUSES else _list_groups_by_label(counts_by_group)
    definitions = (*LABEL_DEFINITIONS.split("; "), GROKKING_INTERVALS) if n else ()
    return Finding(text, numbers, n, (), None, definitions)


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
        counted = join_words([f"{labels[label]} {LABEL_VERBS[label]}" for label in present])
        text = f"{name} ({counted})" if len(present) > 1 else name
        by_label.setdefault("several labels" if len(present) > 1 else present[0] if present else "", []).append(text)
    headings: dict[str, str] = {label: f"every run {LABEL_VERBS[label]}" for label in GROKKING_LABELS}
    headings |= {"several labels": "runs differ", "": "no complete run with both accuracies"}
    clauses = [
        f"{heading}: {'; '.join(_merge_names(by_label[label]))}"
        for label, heading in headings.items()
        if label in by_label
    ]
    return " ".join(f"{capitalise(clause)}." for clause in clauses)


def _merge_names(names: Sequence[str]) -> list[str]:
    """The names, of which those that differ only in a number at their end are one.

    >>> _merge_names(["LSTM, width 8", "LSTM, width 16", "GPT, width 8", "LSTM, width 32", "1 layer"])
    ['LSTM, width 8, 16 and 32', 'GPT, width 8', '1 layer']
    """
    ends: dict[tuple[str, str], list[str]] = {}
    for name in names:
        start, _, end = name.rpartition(" ")
        ends.setdefault((start, "") if end[:1].isdigit() else (start, end), []).append(end)
    return [f"{start} {join_words(values)}".strip() for (start, _), values in ends.items()]


def _format_label_counts(counts: Mapping[GrokkingLabel, int], delay: ConfidenceInterval, is_named: bool) -> str:
    """`none of 12 runs grokked (95 % CI 0 to 26 % of runs): 6 only memorised and 6 learned neither set`."""
    total, n_grokked = sum(counts.values()), counts.get("grokked", 0)
    if not total:
        return "no run has both accuracies recorded"
    low, high = clopper_pearson(n_grokked, total)
    share = "none of" if not n_grokked else "all" if n_grokked == total else f"{n_grokked} of"
    of = "the only run" if total == 1 else f"{share} {pluralise(total, 'run')}"
    of = "both runs" if total == n_grokked == 2 else of
    claim = f"{of} {'did not grok' if total == 1 and not n_grokked else 'grokked'}"
    others = [label for label in GROKKING_LABELS if label != "grokked" and counts.get(label)]
    rest = join_words([f"{counts[label]} {LABEL_VERBS[label]}" for label in others])
    if len(others) == 1 and counts[others[0]] == total > 1:
        rest = f"{'both' if total == 2 else f'all {total}'} {LABEL_VERBS[others[0]]}"
    interval = f"95 % CI {100 * low:.0f} to {100 * high:.0f} % of runs"
    if rest:
        rest = f"; of the others, {rest}" if n_grokked else f": {rest}"
    return f"{claim if is_named else capitalise(claim)} ({interval}){_format_delay(delay)}{rest}"


def _format_delay(delay: ConfidenceInterval) -> str:
    if not delay.n:
        return ""
    is_shown = delay.n > 1 and has_width(delay.low, delay.high)
    bounds = f" (95 % CI {format_count(round(delay.low))} to {format_count(round(delay.high))})" if is_shown else ""
    mean = "on average " if delay.n > 1 else ""
    return f", {mean}{format_count(round(delay.mean))} steps after they had memorised{bounds}"


def answer_stopping(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """The best step of each config with its standard error, and the first step within it."""
    if metric_direction(question.metric) is None:
        metric = metric_label(question.metric)
        return Finding(f"There is no stopping point: neither a low nor a high {metric} is better.")
    clauses, numbers, n = {}, {}, 0
    for name, group in group_by_description(runs, varying_settings([runs])).items():
        if advice := advise_stopping_for_runs([run for run in group if run.is_complete], question.metric):
            clauses[name] = format_stopping_advice(advice, question.metric)
            numbers[name or "all"] = asdict(advice)
            n += advice.n
    return Finding(join_clauses(clauses), numbers, n, (), None, (STOPPING,) if n else ())
