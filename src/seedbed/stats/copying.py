"""How much of a sample is copied from the training text, with held-out text as the baseline.

    index = SuffixArray(training_text)
    copied = copy_statistics(index, samples)
    baseline = copy_statistics(index, held_out_pieces(held_out_text, samples))

Both statistics derive from the length of the longest verbatim match with the training text at each position of a
sample, which `data/suffix_array.py` looks up. Held-out text is cut into pieces of the samples' length, since longer
text has longer matches by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import numpy as np

from seedbed.data.suffix_array import WORD_PATTERN, Ints, SuffixArray, match_lengths_by_text

NGRAM_LENGTHS = tuple(range(4, 41))


@dataclass(frozen=True)
class CopyStatistics:
    """Copying statistics of some texts; shares are pooled over all of them."""

    ngram_overlap: dict[int, float]  # n → share of n-grams that occur in the training text
    novel_word_share: float  # share of words that do not occur in the training text

    @property
    def mean_ngram_overlap(self) -> float:
        """Share of n-grams that occur in the training text, mean over n = 4 … 40."""
        return float(np.mean(list(self.ngram_overlap.values())))


def held_out_pieces(held_out: str, samples: Sequence[str]) -> list[str]:
    """As many pieces of held-out text as there are samples, of their median length."""
    lengths = [len(sample) for sample in samples]
    return split_evenly(held_out, int(np.median(lengths)) if lengths else 0, len(samples))


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
    # The last word of a text may be cut off, and does not count.
    matches = [(word, len(text)) for text in texts for word in WORD_PATTERN.finditer(text)]
    words = [word.group().casefold() for word, n_characters in matches if word.end() < n_characters]
    novel_word_share = sum(word not in index.casefolded_words for word in words) / len(words) if words else nan
    return CopyStatistics({n: _ngram_overlap(match_lengths, n) for n in NGRAM_LENGTHS}, novel_word_share)


def _ngram_overlap(match_lengths: Sequence[Ints], n: int) -> float:
    """Share of positions whose n-gram occurs in the training text."""
    starts = [lengths[: max(0, lengths.size - n + 1)] for lengths in match_lengths]
    total = sum(lengths.size for lengths in starts)
    return sum(int((lengths >= n).sum()) for lengths in starts) / total if total else nan
