"""Shared by all kinds of questions: the result type, and sentences joined from clauses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from seedbed.specs import QuestionSpec
from seedbed.stats.answers.comparison_text import MetricStatistic
from seedbed.stats.chance import metric_unit
from seedbed.stats.confounds import Confound, describe_confounds
from seedbed.stats.curve_statistics import metric_direction
from seedbed.stats.decision import Verdict
from seedbed.stats.format import format_setting, join_words
from seedbed.stats.groups import group_by_setting
from seedbed.stats.metric_registry import MetricName
from seedbed.stats.summary import RunCurves

MAX_CLAUSES: Final = 8  # groups named in one answer; further ones are only counted


@dataclass(frozen=True)
class Finding:
    """A sentence, the numbers behind it, the number of runs they use, notes for the reader, and the verdict.

    The verdict is None where nothing is decided: the question asks for a description, or there are no data yet.
    """

    sentence: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    n: int = 0
    notes: tuple[str, ...] = ()
    verdict: Verdict | None = None


def withhold_verdict(
    finding: Finding, confounds: Sequence[Confound], withhold: bool, also: bool = True, units: str = ""
) -> Finding:
    """The finding with its confounds and differing units: as the reasons for giving no verdict, or as notes."""
    differences = (
        [f"the groups {'also ' if also else ''}differ in {describe_confounds(confounds)}"] if confounds else []
    )
    reasons = [*filter(None, [units]), *differences]
    if not reasons:
        return finding
    if withhold:
        sentence = f"No verdict: {'; '.join(reasons)}. {finding.sentence}"
        return replace(finding, sentence=sentence, verdict="no verdict")
    return replace(finding, notes=(*finding.notes, *reasons))


def describe_units(groups: Iterable[Sequence[RunCurves]], statistic: MetricStatistic) -> str:
    """Why values of the groups have different units, and what can be compared instead; empty if they do not."""
    complete = [[run for run in runs if run.is_complete] for runs in groups]
    if statistic.record.is_step or not statistic.record.uses_metric:
        return ""
    if not has_several_units(complete, statistic.metric):
        return ""
    recorded = dict.fromkeys(name for runs in complete for run in runs for name in run.curves)
    metric = MetricName.parse(statistic.metric)
    others = [name for name in recorded if (one := MetricName.parse(name)).split == metric.split and not one.group]
    comparable = [name for name in others if metric_direction(name) and not has_several_units(complete, name)]
    instead = f" ({join_words(comparable, 'or')} can be compared)" if comparable else ""
    return f"{statistic.metric} is counted in tokens, which differ between the groups{instead}"


def has_several_units(groups: Iterable[Sequence[RunCurves]], metric: str) -> bool:
    """Is this metric counted in something else in some of the groups?"""
    units = {frozenset(metric_unit(run.run, metric) for run in runs) for runs in groups if runs}
    return len(units) > 1


def split_by_setting(question: QuestionSpec, runs: Sequence[RunCurves]) -> dict[str, Sequence[RunCurves]]:
    """The runs grouped by the setting `between`, with a name per group; one unnamed group if it is not given."""
    if question.between is None:
        return {"": runs}
    groups = group_by_setting(runs, question.between)
    return {format_setting(question.between, value): members for value, members in groups.items()}


def format_verdict(verdict: Verdict) -> str:
    """The verdict at the beginning of a sentence: `Yes`, `Cannot tell`."""
    return verdict[0].upper() + verdict[1:]


def format_clause(name: str, text: str) -> str:
    return f"{name}: {text}" if name else text


def join_sentences(clauses: Sequence[str]) -> str:
    """Each clause as a sentence; a metric's name at the start stays in lower case."""
    sentences = [f"{_capitalise(clause)}." for clause in clauses[:MAX_CLAUSES]]
    n_more = len(clauses) - MAX_CLAUSES
    return " ".join([*sentences, f"{n_more} more groups are not listed here."] if n_more > 0 else sentences)


def _capitalise(text: str) -> str:
    return text[0].upper() + text[1:] if text.partition(" ")[0].isalpha() else text
