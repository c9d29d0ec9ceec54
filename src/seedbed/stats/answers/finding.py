"""Shared by all kinds of questions: the result type, and sentences joined from clauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from seedbed.specs import QuestionSpec
from seedbed.stats.confounds import Confound, describe_confounds
from seedbed.stats.decision import Verdict
from seedbed.stats.format import format_setting
from seedbed.stats.groups import group_by_setting
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


def withhold_verdict(finding: Finding, confounds: Sequence[Confound], withhold: bool, also: bool = True) -> Finding:
    """The finding with its confounds: as the reason for giving no verdict, or as a note."""
    if not confounds:
        return finding
    differences = f"the groups {'also ' if also else ''}differ in {describe_confounds(confounds)}"
    if withhold:
        return replace(finding, sentence=f"No verdict: {differences}. {finding.sentence}", verdict="no verdict")
    return replace(finding, notes=(*finding.notes, differences))


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
