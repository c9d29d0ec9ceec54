"""What the kinds of questions share: the form of what they find, and sentences made of clauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from seedbed.measures.groups import group_by
from seedbed.measures.summary import RunCurves
from seedbed.measures.words import value_word
from seedbed.shown import Question

MOST_CLAUSES: Final = 8  # groups that one answer speaks of; the rest is counted


@dataclass(frozen=True)
class Found:
    """A sentence, its numbers, the runs in them, and what a reader has to know."""

    sentence: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    n: int = 0
    notes: tuple[str, ...] = ()


def parts_of(question: Question, runs: Sequence[RunCurves]) -> dict[str, Sequence[RunCurves]]:
    """The runs apart by `between`, named in words; all of them, without a name, where it is not asked for."""
    if question.between is None:
        return {"": runs}
    return {value_word(question.between, value): some for value, some in group_by(runs, question.between).items()}


def clause(name: str, said: str) -> str:
    return f"{name}: {said}" if name else said


def in_sentences(clauses: Sequence[str]) -> str:
    """Each clause as a sentence of its own; a metric's name keeps its small letter."""
    said = [f"{_capital(one)}." for one in clauses[:MOST_CLAUSES]]
    more = len(clauses) - MOST_CLAUSES
    return " ".join([*said, f"The numbers hold {more} more."] if more > 0 else said)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:] if text.partition(" ")[0].isalpha() else text
