"""Texts that occur more than once: within a part of a corpus, and in a training and a held-out part.

>>> count_duplicates(["One day.", "one  day", "Two", "Two"])
Duplicates(exact=1, normalized=2)

Normalized texts are compared without case, punctuation and spacing, so that near copies count as well.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_NON_WORDS = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Duplicates:
    """Texts that repeat an earlier one, exactly or after normalization (which includes the exact ones)."""

    exact: int
    normalized: int


@dataclass(frozen=True)
class Leak:
    """Texts of a held-out part that also occur in the training part."""

    train: str
    held_out: str
    texts: int  # of the held-out part
    exact: int
    normalized: int


def normalize_text(text: str) -> str:
    """The words of a text: compatibility forms unified, without case, punctuation and spacing.

    >>> normalize_text(' ﬁne,  THAT—is ')
    'fine that is'
    """
    return _NON_WORDS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()


def count_duplicates(texts: Sequence[str]) -> Duplicates:
    """Counts the texts that repeat an earlier one."""
    return Duplicates(len(texts) - len(set(texts)), len(texts) - len(set(map(normalize_text, texts))))


def count_conflicts(texts: Iterable[str], labels: Iterable[str]) -> int:
    """Counts the distinct normalized texts that have more than one label."""
    found: dict[str, set[str]] = {}
    for text, label in zip(texts, labels, strict=True):
        found.setdefault(normalize_text(text), set()).add(label)
    return sum(len(one) > 1 for one in found.values())


def count_leaks(train: str, parts: Mapping[str, Sequence[str]]) -> tuple[Leak, ...]:
    """Counts, for each other part, its texts that occur in the training part."""
    exact, normalized = set(parts[train]), set(map(normalize_text, parts[train]))
    return tuple(
        Leak(
            train=train,
            held_out=name,
            texts=len(texts),
            exact=sum(text in exact for text in texts),
            normalized=sum(normalize_text(text) in normalized for text in texts),
        )
        for name, texts in parts.items()
        if name != train
    )
