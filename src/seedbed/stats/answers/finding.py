"""What the kinds of questions share: the form of what they find, and sentences made of clauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from seedbed.specs import QuestionSpec
from seedbed.stats.format import format_setting
from seedbed.stats.groups import group_by_setting
from seedbed.stats.summary import RunCurves

MAX_CLAUSES: Final = 8  # groups that one answer speaks of; the rest is counted


@dataclass(frozen=True)
class Finding:
    """A sentence, its numbers, the runs in them, and what a reader has to know."""

    sentence: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    n: int = 0
    notes: tuple[str, ...] = ()


def split_by_setting(question: QuestionSpec, runs: Sequence[RunCurves]) -> dict[str, Sequence[RunCurves]]:
    """The runs apart by `between`, named in words; all of them, without a name, where it is not asked for."""
    if question.between is None:
        return {"": runs}
    return {
        format_setting(question.between, value): some
        for value, some in group_by_setting(runs, question.between).items()
    }


def format_clause(name: str, text: str) -> str:
    return f"{name}: {text}" if name else text


def join_sentences(clauses: Sequence[str]) -> str:
    """Each clause as a sentence of its own; a metric's name keeps its small letter."""
    said = [f"{_capitalise(one)}." for one in clauses[:MAX_CLAUSES]]
    more = len(clauses) - MAX_CLAUSES
    return " ".join([*said, f"The numbers hold {more} more."] if more > 0 else said)


def _capitalise(text: str) -> str:
    return text[0].upper() + text[1:] if text.partition(" ")[0].isalpha() else text
