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

from seedbed.data.datasets import load_text_dataset
from seedbed.data.suffix_array import MIN_COPIED_CHARACTERS, CopiedSpan, SuffixArray, find_copied_spans
from seedbed.settings import TextSettings

LOOKUP_CHUNK_CHARACTERS = 16  # characters that are looked up together


@cache
def training_text_index(task: TextSettings) -> SuffixArray:
    """The training text of a task, to look up what of another text stands in it."""
    prepared = load_text_dataset(task)
    return SuffixArray("\n".join(prepared.tokenizer.decode(piece) for piece in prepared.splits["train"].span_ids()))


def find_training_copies(task: TextSettings, texts: Sequence[str]) -> tuple[tuple[CopiedSpan, ...], ...]:
    """What of each text stands verbatim in the training text of a task; MissingData where that is not at hand."""
    return find_copied_spans(training_text_index(task), texts)


def span_mask(spans: Sequence[CopiedSpan], n_characters: int) -> list[bool]:
    """Which of n characters lie in some span.

    >>> covered([Span(1, 3), Span(2, 4)], 5)
    [False, True, True, True, False]
    """
    inside = np.zeros(n_characters, dtype=bool)
    for span in spans:
        inside[span.start : span.end] = True
    return inside.tolist()


@dataclass(frozen=True)
class TextSegment:
    """Some text, all of it copied or none."""

    text: str
    is_copied: bool


class StreamingCopyDetector:
    """A text in parts, copied or not, as soon as that is known; an end that could become a copy is held back."""

    def __init__(self, index: SuffixArray) -> None:
        self._index, self._pending = index, ""
        self._text, self._copied, self._n_emitted = "", np.zeros(0, dtype=bool), 0
        self.n_characters = self.n_copied = 0

    def feed(self, text: str) -> Iterator[TextSegment]:
        self._pending += text
        if len(self._pending) >= LOOKUP_CHUNK_CHARACTERS:
            yield from self._update_copied()

    def flush(self) -> Iterator[TextSegment]:
        yield from self._update_copied()
        yield from self._emit(len(self._text))

    def _update_copied(self) -> Iterator[TextSegment]:
        self._text, self._pending = self._text + self._pending, ""
        n = len(self._text)
        ends = np.arange(n) + self._index.longest_match_lengths(self._text)
        self._copied = np.concatenate([self._copied, np.zeros(n - self._copied.size, dtype=bool)])
        for start in np.flatnonzero(ends - np.arange(n) >= MIN_COPIED_CHARACTERS).tolist():
            self._copied[start : ends[start]] = True
        first_open = int(np.argmax(ends == n)) if (ends == n).any() else n  # from here on a copy may yet grow
        yield from self._emit(n if self._copied[first_open:].all() else first_open)
        self._text, self._copied = self._text[first_open:], self._copied[first_open:]
        self._n_emitted -= first_open

    def _emit(self, end: int) -> Iterator[TextSegment]:
        """What has not been told yet, up to here."""
        while self._n_emitted < end:
            start, is_copied = self._n_emitted, bool(self._copied[self._n_emitted])
            others = np.flatnonzero(self._copied[start:end] != is_copied)
            self._n_emitted = start + int(others[0]) if others.size else end
            self.n_characters += self._n_emitted - start
            self.n_copied += is_copied * (self._n_emitted - start)
            yield TextSegment(self._text[start : self._n_emitted], is_copied)
