"""How much of a sample is copied from the training text, with held-out text as the baseline.

    index = SuffixArray(training_text)
    report = compare_copying(index, samples, held_out_text)
    format_copying_report(report)

All statistics derive from the length of the longest verbatim match with the training text at each position of a
sample, which `data/suffix_array.py` looks up. Held-out text is cut into pieces of the samples' length, since longer
text has longer matches by chance.
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
    """Copying statistics of some texts; shares are pooled over all of them."""

    n_texts: int
    mean_longest_span: float  # characters, mean over the texts
    longest_span: int  # characters, over all texts
    ngram_overlap: dict[int, float]  # n → share of n-grams that occur in the training text
    novel_word_share: float  # share of words that do not occur in the training text
    spans: tuple[tuple[CopiedSpan, ...], ...] = field(repr=False)

    @property
    def mean_ngram_overlap(self) -> float:
        """Share of n-grams that occur in the training text, mean over n = 4 … 40."""
        return float(np.mean(list(self.ngram_overlap.values())))


@dataclass(frozen=True)
class CopyingReport:
    """The same statistics for samples and for held-out text."""

    samples: CopyStatistics
    held_out: CopyStatistics

    @property
    def ratio(self) -> float:
        """n-gram overlap of the samples relative to that of held-out text; NaN if the latter is 0."""
        baseline = self.held_out.mean_ngram_overlap
        return self.samples.mean_ngram_overlap / baseline if baseline else nan


def compare_copying(index: SuffixArray, samples: Sequence[str], held_out: str) -> CopyingReport:
    """Copying statistics of the samples, and of as many pieces of held-out text of the same length."""
    lengths = [len(sample) for sample in samples]
    length = int(np.median(lengths)) if lengths else 0
    pieces = split_evenly(held_out, length, len(samples))
    return CopyingReport(copy_statistics(index, samples), copy_statistics(index, pieces))


def split_evenly(text: str, length: int, n: int) -> list[str]:
    """Up to n pieces of this length, evenly spaced over the text and without overlap."""
    if not length or len(text) < length:
        return [text] if text else []
    n = min(n, len(text) // length)
    starts = np.linspace(0, len(text) - length, n).astype(int)
    return [text[start : start + length] for start in starts]


def copy_statistics(index: SuffixArray, texts: Sequence[str]) -> CopyStatistics:
    """Copying statistics of these texts against the training text."""
    match_lengths = match_lengths_by_text(index, texts)
    longest = [int(lengths.max(initial=0)) for lengths in match_lengths]
    return CopyStatistics(
        n_texts=len(texts),
        mean_longest_span=float(np.mean(longest)) if longest else nan,
        longest_span=max(longest, default=0),
        ngram_overlap={n: _ngram_overlap(match_lengths, n) for n in NGRAM_LENGTHS},
        novel_word_share=_novel_word_share(index, texts),
        spans=tuple(tuple(maximal_spans(lengths)) for lengths in match_lengths),
    )


def _ngram_overlap(match_lengths: Sequence[Ints], n: int) -> float:
    """Share of positions whose n-gram occurs in the training text."""
    starts = [lengths[: max(0, lengths.size - n + 1)] for lengths in match_lengths]
    total = sum(lengths.size for lengths in starts)
    return sum(int((lengths >= n).sum()) for lengths in starts) / total if total else nan


def _novel_word_share(index: SuffixArray, texts: Sequence[str]) -> float:
    """Share of words that do not occur in the training text; a last word that may be cut off does not count."""
    words = [
        word.group().casefold() for text in texts for word in WORD_PATTERN.finditer(text) if word.end() < len(text)
    ]
    return sum(word not in index.casefolded_words for word in words) / len(words) if words else nan


def format_copying_report(report: CopyingReport, n: int = MIN_COPIED_CHARACTERS) -> str:
    """The report as a sentence."""
    samples, held_out = report.samples, report.held_out
    more = "n-grams" if isnan(report.ratio) else f"{format_number(report.ratio)} times as many n-grams"
    lengths = f"n = {NGRAM_LENGTHS[0]} … {NGRAM_LENGTHS[-1]}"
    overlaps = [format_percent(one.ngram_overlap[n], 1) for one in (samples, held_out)]
    spans = [format_number(one.mean_longest_span) for one in (samples, held_out)]
    novel = [format_percent(one.novel_word_share, 1) for one in (samples, held_out)]
    return (
        f"Samples share {more} ({lengths}) with the training text as held-out text: "
        f"{overlaps[0]} against {overlaps[1]} at n = {n}; "
        f"the longest copied span has {spans[0]} characters per sample against {spans[1]} "
        f"(maximum {samples.longest_span} and {held_out.longest_span}); "
        f"{novel[0]} of words are not in the training text, {novel[1]} in held-out text "
        f"({samples.n_texts} samples, {held_out.n_texts} held-out pieces)."
    )
