"""How much of a sample is copied from the training text, beside the same numbers for text the model never saw.

    index = TextIndex(training_text)
    report = copying(index, samples, held_out_text)
    copying_in_words(report)

Every number follows from how far a sample's text stands verbatim in the training text from each position on, which
`data/verbatim.py` looks up. Held-out text is cut into pieces of the samples' length, since longer text has longer
chance matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan, nan

import numpy as np

from seedbed.data.suffix_array import (
    MIN_COPIED_CHARACTERS,
    WORD_PATTERN,
    CopiedSpan,
    Ints,
    SuffixArray,
    match_lengths_by_text,
    maximal_spans,
)
from seedbed.stats.format import format_number, format_percent

NGRAM_LENGTHS = tuple(range(4, 41))


@dataclass(frozen=True)
class CopyStatistics:
    """What is copied in some pieces of text; shares are over all pieces together."""

    n_texts: int
    mean_longest_span: float  # characters of the longest span, mean over the pieces
    longest_span: int
    ngram_overlap: dict[int, float]  # n → share of n-grams that stand in the training text
    novel_word_share: float  # share of whole words that the training text does not have
    spans: tuple[tuple[CopiedSpan, ...], ...] = field(repr=False)

    @property
    def mean_ngram_overlap(self) -> float:
        """The share of n-grams seen, mean over n = 4 … 40."""
        return float(np.mean(list(self.ngram_overlap.values())))


@dataclass(frozen=True)
class CopyingReport:
    """Samples and held-out text, measured alike."""

    samples: CopyStatistics
    held_out: CopyStatistics

    @property
    def ratio(self) -> float:
        """How many times more n-grams the samples share with the training text than held-out text does."""
        return (
            self.samples.mean_ngram_overlap / self.held_out.mean_ngram_overlap
            if self.held_out.mean_ngram_overlap
            else nan
        )


def compare_copying(index: SuffixArray, samples: Sequence[str], held_out: str) -> CopyingReport:
    """What the samples copy, beside as many pieces of held-out text of their length."""
    lengths = [len(sample) for sample in samples]
    length = int(np.median(lengths)) if lengths else 0
    return CopyingReport(
        copy_statistics(index, samples), copy_statistics(index, split_evenly(held_out, length, len(samples)))
    )


def split_evenly(text: str, length: int, n: int) -> list[str]:
    """Up to n pieces of this length, evenly spread over the text and without overlap."""
    if not length or len(text) < length:
        return [text] if text else []
    n = min(n, len(text) // length)
    starts = np.linspace(0, len(text) - length, n).astype(int)
    return [text[start : start + length] for start in starts]


def copy_statistics(index: SuffixArray, texts: Sequence[str]) -> CopyStatistics:
    """The numbers of these texts against the training text."""
    runs = match_lengths_by_text(index, texts)
    longest = [int(run.max(initial=0)) for run in runs]
    return CopyStatistics(
        n_texts=len(texts),
        mean_longest_span=float(np.mean(longest)) if longest else nan,
        longest_span=max(longest, default=0),
        ngram_overlap={n: _ngram_overlap(runs, n) for n in NGRAM_LENGTHS},
        novel_word_share=_novel_word_share(index, texts),
        spans=tuple(tuple(maximal_spans(run)) for run in runs),
    )


def _ngram_overlap(runs: Sequence[Ints], n: int) -> float:
    places = [run[: max(0, run.size - n + 1)] for run in runs]
    total = sum(place.size for place in places)
    return sum(int((place >= n).sum()) for place in places) / total if total else nan


def _novel_word_share(index: SuffixArray, texts: Sequence[str]) -> float:
    """A word that the end of its text may have cut is not judged."""
    words = [
        word.group().casefold() for text in texts for word in WORD_PATTERN.finditer(text) if word.end() < len(text)
    ]
    return sum(word not in index.casefolded_words for word in words) / len(words) if words else nan


def format_copying_report(report: CopyingReport, n: int = MIN_COPIED_CHARACTERS) -> str:
    """The comparison as a sentence."""
    ours, real = report.samples, report.held_out
    more = "n-grams" if isnan(report.ratio) else f"{format_number(report.ratio)} times as many n-grams"
    seen = f"{format_percent(ours.ngram_overlap[n], 1)} against {format_percent(real.ngram_overlap[n], 1)} at n = {n}"
    longest = (
        f"{format_number(ours.mean_longest_span)} characters a sample against {format_number(real.mean_longest_span)}"
    )
    words = f"{format_percent(ours.novel_word_share, 1)} of words are not in the training text, {format_percent(real.novel_word_share, 1)} in held-out"
    return (
        f"Samples share {more} (n = {NGRAM_LENGTHS[0]} … {NGRAM_LENGTHS[-1]}) with the training text as held-out text: {seen}; "
        f"the longest copied span is {longest} (of all {ours.longest_span} and {real.longest_span}); "
        f"{words} ({ours.n_texts} samples, {real.n_texts} held-out pieces)."
    )
