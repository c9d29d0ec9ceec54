"""Which stretches of a written text stand verbatim in the training text: of a whole text, or marked while it comes.

    copied_spans(task, texts)             # stretches of 20 characters or more, text by text
    marks = Marks(training_index(task))
    for text in pieces: marks.feed(text)  # the text again, in parts that are copied or not

A stretch is called copied from 20 characters on; shorter ones also occur by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from seedbed.data.prepared import prepare_text
from seedbed.data.verbatim import COPIED, Span, TextIndex, verbatim_spans
from seedbed.settings import Text

AT_ONCE = 16  # characters that are looked up together


@cache
def training_index(task: Text) -> TextIndex:
    """The training text of a task, to look up what of another text stands in it."""
    prepared = prepare_text(task)
    return TextIndex("\n".join(prepared.tokens.decode(piece) for piece in prepared.parts["train"].pieces()))


def copied_spans(task: Text, texts: Sequence[str]) -> tuple[tuple[Span, ...], ...]:
    """What of each text stands verbatim in the training text of a task; MissingData where that is not at hand."""
    return verbatim_spans(training_index(task), texts)


def covered(spans: Sequence[Span], n: int) -> list[bool]:
    """Which of n characters lie in some span.

    >>> covered([Span(1, 3), Span(2, 4)], 5)
    [False, True, True, True, False]
    """
    inside = np.zeros(n, dtype=bool)
    for span in spans:
        inside[span.start : span.end] = True
    return inside.tolist()


@dataclass(frozen=True)
class Part:
    """Some text, all of it copied or none."""

    text: str
    copied: bool


class Marks:
    """A text in parts, copied or not, as soon as that is known; an end that could become a copy is held back."""

    def __init__(self, index: TextIndex) -> None:
        self._index, self._new = index, ""
        self._text, self._copied, self._n_told = "", np.zeros(0, dtype=bool), 0
        self.n_characters = self.n_copied = 0

    def feed(self, text: str) -> Iterator[Part]:
        self._new += text
        if len(self._new) >= AT_ONCE:
            yield from self._look()

    def end(self) -> Iterator[Part]:
        yield from self._look()
        yield from self._tell(len(self._text))

    def _look(self) -> Iterator[Part]:
        self._text, self._new = self._text + self._new, ""
        n = len(self._text)
        ends = np.arange(n) + self._index.longest_from(self._text)
        self._copied = np.concatenate([self._copied, np.zeros(n - self._copied.size, dtype=bool)])
        for start in np.flatnonzero(ends - np.arange(n) >= COPIED).tolist():
            self._copied[start : ends[start]] = True
        first_open = int(np.argmax(ends == n)) if (ends == n).any() else n  # from here on a copy may yet grow
        yield from self._tell(n if self._copied[first_open:].all() else first_open)
        self._text, self._copied = self._text[first_open:], self._copied[first_open:]
        self._n_told -= first_open

    def _tell(self, end: int) -> Iterator[Part]:
        """What has not been told yet, up to here."""
        while self._n_told < end:
            start, is_copied = self._n_told, bool(self._copied[self._n_told])
            others = np.flatnonzero(self._copied[start:end] != is_copied)
            self._n_told = start + int(others[0]) if others.size else end
            self.n_characters += self._n_told - start
            self.n_copied += is_copied * (self._n_told - start)
            yield Part(self._text[start : self._n_told], is_copied)
