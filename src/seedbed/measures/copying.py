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

from seedbed.data.verbatim import COPIED, WORD, Ints, Span, TextIndex, spans_in, verbatim_runs
from seedbed.measures.words import number, percent

N_GRAMS = tuple(range(4, 41))


@dataclass(frozen=True)
class Copied:
    """What is copied in some pieces of text; shares are over all pieces together."""

    n: int
    longest: float  # characters of the longest span, mean over the pieces
    longest_of_all: int
    seen: dict[int, float]  # n → share of n-grams that stand in the training text
    new_words: float  # share of whole words that the training text does not have
    spans: tuple[tuple[Span, ...], ...] = field(repr=False)

    @property
    def rate(self) -> float:
        """The share of n-grams seen, mean over n = 4 … 40."""
        return float(np.mean(list(self.seen.values())))


@dataclass(frozen=True)
class Copying:
    """Samples and held-out text, measured alike."""

    samples: Copied
    held_out: Copied

    @property
    def ratio(self) -> float:
        """How many times more n-grams the samples share with the training text than held-out text does."""
        return self.samples.rate / self.held_out.rate if self.held_out.rate else nan


def copying(index: TextIndex, samples: Sequence[str], held_out: str) -> Copying:
    """What the samples copy, beside as many pieces of held-out text of their length."""
    lengths = [len(sample) for sample in samples]
    length = int(np.median(lengths)) if lengths else 0
    return Copying(copied(index, samples), copied(index, pieces(held_out, length, len(samples))))


def pieces(text: str, length: int, n: int) -> list[str]:
    """Up to n pieces of this length, evenly spread over the text and without overlap."""
    if not length or len(text) < length:
        return [text] if text else []
    n = min(n, len(text) // length)
    starts = np.linspace(0, len(text) - length, n).astype(int)
    return [text[start : start + length] for start in starts]


def copied(index: TextIndex, texts: Sequence[str]) -> Copied:
    """The numbers of these texts against the training text."""
    runs = verbatim_runs(index, texts)
    longest = [int(run.max(initial=0)) for run in runs]
    return Copied(
        n=len(texts),
        longest=float(np.mean(longest)) if longest else nan,
        longest_of_all=max(longest, default=0),
        seen={n: _share_seen(runs, n) for n in N_GRAMS},
        new_words=_new_words(index, texts),
        spans=tuple(tuple(spans_in(run)) for run in runs),
    )


def _share_seen(runs: Sequence[Ints], n: int) -> float:
    places = [run[: max(0, run.size - n + 1)] for run in runs]
    total = sum(place.size for place in places)
    return sum(int((place >= n).sum()) for place in places) / total if total else nan


def _new_words(index: TextIndex, texts: Sequence[str]) -> float:
    """A word that the end of its text may have cut is not judged."""
    words = [word.group().casefold() for text in texts for word in WORD.finditer(text) if word.end() < len(text)]
    return sum(word not in index.words for word in words) / len(words) if words else nan


def copying_in_words(report: Copying, n: int = COPIED) -> str:
    """The comparison as a sentence."""
    ours, real = report.samples, report.held_out
    more = "n-grams" if isnan(report.ratio) else f"{number(report.ratio)} times as many n-grams"
    seen = f"{percent(ours.seen[n], 1)} against {percent(real.seen[n], 1)} at n = {n}"
    longest = f"{number(ours.longest)} characters a sample against {number(real.longest)}"
    words = (
        f"{percent(ours.new_words, 1)} of words are not in the training text, {percent(real.new_words, 1)} in held-out"
    )
    return (
        f"Samples share {more} (n = {N_GRAMS[0]} … {N_GRAMS[-1]}) with the training text as held-out text: {seen}; "
        f"the longest copied span is {longest} (of all {ours.longest_of_all} and {real.longest_of_all}); "
        f"{words} ({ours.n} samples, {real.n} held-out pieces)."
    )
