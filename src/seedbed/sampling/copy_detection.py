"""Finds spans of generated text that occur verbatim in the training text, at once or while the text is streamed.

    find_training_copies(run, texts)             # spans of 20 characters or more, for each text
    detector = StreamingCopyDetector(training_text_index(task))
    for chunk in chunks: detector.feed(chunk)    # the same text, split into segments that are copied or not

A span counts as copied from 20 characters on; shorter matches also occur by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seedbed.data.corpora import cache_until_edited
from seedbed.data.suffix_array import MIN_COPIED_CHARACTERS, CopiedSpan, SuffixArray, find_copied_spans
from seedbed.records import StoredRun
from seedbed.study.run_data import require_training_data
from seedbed.tasks.base import Task

LOOKUP_CHUNK_CHARACTERS = 16  # characters per suffix array lookup


@cache_until_edited
def training_text_index(task: Task) -> SuffixArray:
    """Suffix array of the training text of a task, built once per process."""
    dataset = task.text_dataset()
    return SuffixArray("\n".join(dataset.tokenizer.decode(ids) for ids in dataset.splits["train"].span_ids()))


def find_training_copies(run: StoredRun, texts: Sequence[str]) -> tuple[tuple[CopiedSpan, ...], ...]:
    """Spans of each text that occur verbatim in a run's training text; MissingData if that is gone or has changed."""
    require_training_data(run)
    return find_copied_spans(training_text_index(run.settings.task), texts)


def span_mask(spans: Sequence[CopiedSpan], n_characters: int) -> list[bool]:
    """Boolean mask of the characters that lie in some span.

    >>> span_mask([CopiedSpan(1, 3), CopiedSpan(2, 4)], 5)
    [False, True, True, True, False]
    """
    mask = np.zeros(n_characters, dtype=bool)
    for span in spans:
        mask[span.start : span.end] = True
    return mask.tolist()


@dataclass(frozen=True)
class TextSegment:
    """A piece of text that is entirely copied or entirely new."""

    text: str
    is_copied: bool


class StreamingCopyDetector:
    """Splits streamed text into copied and new segments; a tail that may still grow into a copy is held back."""

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
        # A match that reaches the end of the text may grow with the next chunk: everything before it is settled.
        first_open = int(np.argmax(ends == n)) if (ends == n).any() else n
        yield from self._emit(n if self._copied[first_open:].all() else first_open)
        self._text, self._copied = self._text[first_open:], self._copied[first_open:]
        self._n_emitted -= first_open

    def _emit(self, end: int) -> Iterator[TextSegment]:
        """Segments of the text up to `end` that have not been emitted yet."""
        while self._n_emitted < end:
            start, is_copied = self._n_emitted, bool(self._copied[self._n_emitted])
            changes = np.flatnonzero(self._copied[start:end] != is_copied)
            self._n_emitted = start + int(changes[0]) if changes.size else end
            self.n_characters += self._n_emitted - start
            self.n_copied += is_copied * (self._n_emitted - start)
            yield TextSegment(self._text[start : self._n_emitted], is_copied)
