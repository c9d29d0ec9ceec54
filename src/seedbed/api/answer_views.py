"""Comparisons and answers that print as text in a terminal and as HTML in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from seedbed.api.table_views import notes_as_html
from seedbed.errors import MissingData, UsageError
from seedbed.format import format_number
from seedbed.report.study_answers import choose_subject, compare_named, load_groups, parse_subject
from seedbed.settings import Value
from seedbed.stats.answers import Answer, all_definitions, answer_lines, format_question
from seedbed.stats.answers.finding import Finding, finding_lines
from seedbed.stats.chance import check_one_unit
from seedbed.stats.decision import Verdict
from seedbed.stats.importance import config_values, describe_best
from seedbed.stats.summary import RunCurves
from seedbed.store import Store


@dataclass(frozen=True)
class Comparison:
    """Groups of runs compared over seeds: a sentence, the numbers behind it, and notes on what was left out."""

    groups: Mapping[str, Sequence[RunCurves]]
    finding: Finding

    @property
    def sentence(self) -> str:
        return self.finding.sentence

    @property
    def verdict(self) -> Verdict | None:
        """yes, no, cannot tell or no verdict; None if nothing is decided."""
        return self.finding.verdict

    @property
    def notes(self) -> tuple[str, ...]:
        return self.finding.notes

    @property
    def numbers(self) -> Mapping[str, Any]:
        """Means by group, and the difference of every pair with its interval and p-value."""
        return self.finding.numbers

    def __repr__(self) -> str:
        return "\n".join([*finding_lines(self.finding), *self.finding.definitions])

    def _repr_html_(self) -> str:
        notes = notes_as_html([*self.notes, *self.finding.definitions])
        return f"<p>{badge_as_html(self.verdict)}{escape(self.sentence)}</p>{notes}"


def badge_as_html(verdict: Verdict | None) -> str:
    """The verdict before a sentence, in bold."""
    return f"<b>{verdict}</b> · " if verdict else ""


@dataclass(frozen=True)
class Answers:
    """The answers to a study's questions, in order."""

    answers: tuple[Answer, ...]

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, index: int) -> Answer:
        return self.answers[index]

    def __repr__(self) -> str:
        parts = ["\n".join(answer_lines(one)) for one in self.answers]
        return "\n\n".join([*parts, "\n".join(all_definitions(self.answers))]).strip()

    def _repr_html_(self) -> str:
        return "".join(
            f"<p><b>{escape(format_question(one.question))}</b><br>{badge_as_html(one.verdict)}{escape(one.sentence)}</p>"
            + notes_as_html([one.warning] * bool(one.warning))
            for one in self.answers
        ) + notes_as_html(all_definitions(self.answers))


@dataclass(frozen=True)
class BestConfig:
    """The config with the best mean over seeds, its value for each seed, and what can be said of the others."""

    config: Mapping[str, Value]
    values: Mapping[int, float]  # by seed
    sentences: tuple[str, ...]

    @property
    def mean(self) -> float:
        return sum(self.values.values()) / len(self.values)

    def __repr__(self) -> str:
        return "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)


def find_best_config(runs: Sequence[RunCurves], metric: str, value: str) -> BestConfig:
    """The best config by a statistic of complete runs; UsageError if the metric has no better and worse."""
    subject = parse_subject(metric, value)
    if subject.direction is None:
        raise UsageError(f"{subject} has no best value: neither higher nor lower is better")
    configs = config_values(runs, subject)
    if not configs:
        raise MissingData(f"no complete run has {subject} yet")
    if subject.record.uses_metric and not subject.record.is_step:
        check_one_unit((run.run for run in runs if run.is_complete), metric)
    best = (max if subject.direction == "max" else min)(configs, key=lambda config: config.mean)
    name = str(best) or "the only one"
    found = (
        f"The config with the {subject.superlative()} is {name} ({format_number(best.mean)}, n = {len(best.values)})."
    )
    return BestConfig(best.config, best.values, describe_best(runs, subject) or (found,))


def compare_runs(
    store: Store,
    names: Sequence[str],
    metric: str | None,
    value: str,
    only: Sequence[str],
    allow_confounds: bool = False,
) -> Comparison:
    """The comparison of the groups that the arguments of `compare` name, among the runs that match the filters."""
    if metric is not None:
        parse_subject(metric, value)  # a mistake is told before runs are loaded
    groups = load_groups(store, names, only)
    return Comparison(groups, compare_named(groups, choose_subject(groups, metric, value), names, allow_confounds))
