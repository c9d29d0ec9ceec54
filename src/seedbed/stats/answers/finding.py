"""Shared by all kinds of questions: what is asked about, the result, its wording, and the definitions below it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from seedbed.format import (
    capitalise,
    count_distinct,
    format_count,
    format_distinct,
    format_number,
    format_p_value,
    format_setting,
    format_share,
    join_words,
    pluralise,
)
from seedbed.specs import QuestionSpec
from seedbed.stats.chance import metric_unit
from seedbed.stats.comparison import Comparison, SeedSummary
from seedbed.stats.confounds import Confound, describe_confounds
from seedbed.stats.decision import Verdict, seeds_needed
from seedbed.stats.groups import group_by_setting
from seedbed.stats.metric_registry import Direction, MetricName, find_metric, metric_direction, metric_label
from seedbed.stats.run_statistics import Statistic, find_statistic
from seedbed.stats.summary import RunCurves

Key = TypeVar("Key")
ROUNDING_ERROR: Final = 1e-12  # of the mean of differences that cancel
MAX_CLAUSES: Final = 8  # groups named in one answer; further ones are only counted
# What the terms in sentences mean: given once, below the answers.
PAIRED_TEST: Final = (
    "95 % CI and p, paired seeds: a sign-flip test of the differences and a t test corrected for skewness; p is the "
    "larger of the two, and the interval excludes 0 exactly when p ≤ 0.05"
)
UNPAIRED_TEST: Final = "95 % CI and p, unpaired runs: a permutation test and Welch's t test; p is the larger of the two"
HOLM: Final = "Holm's correction: p and intervals allow for the number of pairs that are compared"
TREND_TEST: Final = (
    "trend: p of Page's test over seeds; the rank correlation is Spearman's, mean over seeds; the change is that from "
    "the first to the last value"
)
CONFIDENCE_SET: Final = "95 % confidence set: the values that cannot be told from the best one"
FRACTION: Final = "fraction of seeds: 95 % CI by Clopper and Pearson; most means more than half, by the sign test"
SPREAD: Final = "±: population std over seeds"


@dataclass(frozen=True)
class MetricStatistic:
    """A statistic of a metric, which a question compares; `name` replaces the metric's in sentences.

    >>> str(MetricStatistic("val/accuracy", "best")), MetricStatistic("val/accuracy", "best").format(0.0695, 1)
    ('best validation accuracy', ['0.070', '1.000'])
    """

    metric: str
    statistic: str
    name: str = ""

    @classmethod
    def from_question(cls, question: QuestionSpec) -> MetricStatistic:
        return cls(question.metric, question.value)

    def __str__(self) -> str:
        return self.record.format_phrase(self.label)

    @property
    def label(self) -> str:
        """The metric in words."""
        return self.name or metric_label(self.metric)

    @property
    def record(self) -> Statistic:
        return find_statistic(self.statistic)

    @property
    def direction(self) -> Direction | None:
        return self.record.direction(self.metric)

    def compute(self, run: RunCurves) -> float:
        return self.record.compute(run, self.metric, None)

    def format(self, *values: float) -> list[str]:
        """Values of the statistic: steps as counts, shares with three decimals, others so that they differ."""
        if self.record.is_step:
            return list(map(format_count, values))
        values = tuple(0.0 if abs(value) < ROUNDING_ERROR else value for value in values)
        info, texts = find_metric(self.metric), list(map(format_share, values))
        is_share = self.record.uses_metric and info is not None and info.unit == "share"
        return texts if is_share and len(set(texts)) == count_distinct(values) else format_distinct(values)

    def format_spread(self, summary: SeedSummary) -> str:
        """`2.1 ± 0.3`; without a std for one seed."""
        [mean] = self.format(summary.mean)
        return mean + (f" ± {self.format(summary.std)[0]}" if summary.n > 1 else "")

    def superlative(self) -> str:
        """`best validation loss`, `lowest final validation loss`."""
        phrase = str(self)
        return phrase if phrase.startswith("best ") else f"{self.extremum} {phrase}"

    @property
    def extremum(self) -> str:
        """Which values lead: the highest or the lowest; without a better direction, the lowest."""
        return "highest" if self.direction == "max" else "lowest"


@dataclass(frozen=True)
class Finding:
    """A sentence that begins with its verdict, the numbers behind it, notes and definitions of its terms.

    The verdict is None where nothing is decided: the question asks for a description, or there are no data yet.
    """

    sentence: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    n: int = 0  # runs behind the numbers
    notes: tuple[str, ...] = ()
    verdict: Verdict | None = None
    definitions: tuple[str, ...] = ()


def metric_definition(metric: str) -> str:
    """What a metric other than loss and accuracy is; empty if it is not registered."""
    info = find_metric(metric)
    if info is None or info.name in ("loss", "accuracy"):
        return ""
    return f"{metric_label(info.name)}: {info.meaning}"


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
    return f"{statistic.label} is counted in tokens, which differ between the groups{instead}"


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


# ---- wording ----


def badge(verdict: Verdict | None) -> str:
    """`[cannot tell] `, before a sentence; empty where nothing is decided."""
    return f"[{verdict}] " if verdict else ""


def finding_lines(finding: Finding) -> list[str]:
    """The sentence behind its verdict, and the notes below it."""
    return [f"{badge(finding.verdict)}{finding.sentence}", *(f"  ({note})" for note in finding.notes)]


def join_clauses(clauses: Mapping[str, str]) -> str:
    """Each group's clause as a sentence: `GPT: we cannot tell …. LSTM: validation loss falls ….`; equal ones once."""
    groups: dict[str, list[str]] = {}
    for name, clause in clauses.items():
        groups.setdefault(clause, []).append(name)
    all_groups = (
        ("Both groups" if len(clauses) == 2 else f"All {len(clauses)} groups")
        if len(groups) == 1 < len(clauses)
        else ""
    )
    named = [
        (all_groups or "; ".join(names) + (", each" if len(names) > 1 else ""), clause)
        for clause, names in groups.items()
    ]
    sentences = [
        f"{capitalise(name)}: {clause}." if name else f"{capitalise(clause)}." for name, clause in named[:MAX_CLAUSES]
    ]
    n_more = sum(len(names) for names in list(groups.values())[MAX_CLAUSES:])
    return " ".join([*sentences, f"{n_more} more groups are not listed here."] if n_more else sentences)


def best_key(means: Mapping[Key, float], direction: Direction | None) -> Key:
    """The key with the best mean; without a direction, the lowest, so that early steps come first."""
    return max(means, key=lambda key: means[key]) if direction == "max" else min(means, key=lambda key: means[key])


def format_difference(comparison: Comparison, statistic: MetricStatistic, signed: bool = False) -> str:
    """`difference 0.054, 95 % CI −0.024 to 0.131`; with too few seeds for an interval, the range of single ones."""
    effect, (low, high) = comparison.effect, comparison.range()
    if not signed and effect < 0:
        effect, low, high = -effect, -high, -low
    text, low_text, high_text = (statistic.format(value)[0] for value in (effect, low, high))
    if comparison.n == 1:
        return f"difference {text}"
    if comparison.shows_interval:
        return f"difference {text}, 95 % CI {low_text} to {high_text}"
    if comparison.has_interval or low == high:
        return f"difference {text} in every {'seed' if comparison.paired else 'pair of runs'}"
    return f"difference {text}, {low_text} to {high_text} in single {'seeds' if comparison.paired else 'pairs of runs'}"


def format_test(comparison: Comparison, n_tests: int = 1) -> str:
    """`3 paired seeds; at least 6 are needed`, or the p-value."""
    p = format_p_value(comparison.corrected) if comparison.has_interval else ""
    return format_sample(comparison.n, comparison.paired, n_tests, p)


def format_sample(n: int, paired: bool, n_tests: int, p: str) -> str:
    """The sample size and the p-value, or without one how many seeds a test needs."""
    size = pluralise(n, "paired seed" if paired else "unpaired run")
    if p:
        return f"{size}, {p}" + (f" after Holm's correction for {n_tests} pairs" if n_tests > 1 else "")
    needed = f"at least {seeds_needed(n_tests, paired)} {'' if paired else 'seeds per group '}are needed"
    return f"{size}; {needed}" + (f" for {n_tests} pairs" if n_tests > 1 else "")


def format_bounds(at_least: float | None, at_most: float | None) -> str:
    """`at least 0.9`, `at most 2`, or both."""
    bounds = {"at least": at_least, "at most": at_most}
    return join_words([f"{name} {format_number(value)}" for name, value in bounds.items() if value is not None])


def test_definitions(comparisons: Iterable[Comparison]) -> tuple[str, ...]:
    """The definitions of the intervals and tests that these comparisons show."""
    tested = [one for one in comparisons if one.has_interval]
    found = {PAIRED_TEST: any(one.paired for one in tested), UNPAIRED_TEST: not all(one.paired for one in tested)}
    return (*(text for text, is_used in found.items() if is_used), *([HOLM] if len(tested) > 1 else []))
