"""Splits, samplers and windows over one row of ids: where samples begin and what of them counts; no ids are copied.

    spans = Spans.of(encoded)                                       # the documents
    parts = split(spans, {"train": 0.9, "val": 0.1})                # contiguous; or split_documents(spans, …, order)
    sampler = by_document(parts["train"], length=128)               # report A; or by_length
    starts = sampler.start(u, v)                                    # u, v uniform in [0, 1)
    windows = consecutive(parts["val"], length=256)                 # report C; or sliding, overlapping
    tokens, mask = take(encoded.ids, windows)

A window of `length` inputs takes length + 1 ids: the targets are the ids after the inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.data.tokenizers import PAD_ID, EncodedCorpus
from seedbed.errors import UsageError

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Spans:
    """Pieces of the row of ids that belong together: documents, or what a split left of them."""

    starts: Ints
    lengths: Ints

    @classmethod
    def from_encoded(cls, encoded: EncodedCorpus) -> Spans:
        return cls(encoded.starts, encoded.lengths)

    @classmethod
    def single(cls, n: int) -> Spans:
        """All n ids as one."""
        return cls(np.zeros(1, dtype=np.int64), np.array([n], dtype=np.int64))

    @property
    def n_tokens(self) -> int:
        return int(self.lengths.sum())

    def select(self, indices: NDArray[Any]) -> Spans:
        return Spans(self.starts[indices], self.lengths[indices])

    def slice_tokens(self, first: int, last: int) -> Spans:
        """What lies from token `first` up to `last`, counted over the spans in order; borders may cut a span."""
        ends = np.cumsum(self.lengths)
        begins = ends - self.lengths
        cut_first, cut_last = np.clip(begins, first, last), np.clip(ends, first, last)
        kept = cut_last > cut_first
        return Spans((self.starts + cut_first - begins)[kept], (cut_last - cut_first)[kept])


# ---- splits ----


def split_contiguous(spans: Spans, fractions: Mapping[str, float]) -> dict[str, Spans]:
    """Contiguous parts in the order named, each its share of the tokens; a border may cut a document."""
    return {name: spans.slice_tokens(a, b) for name, (a, b) in _split_bounds(spans.n_tokens, fractions).items()}


def split_documents(spans: Spans, fractions: Mapping[str, float], order: Ints | None = None) -> dict[str, Spans]:
    """Whole documents to each part, its share of their number, taken in `order` (a permutation) and kept in place."""
    if len(spans.lengths) < len(fractions):
        raise UsageError(
            f"{len(spans.lengths)} document(s) cannot be split into {len(fractions)} parts by document; split contiguously"
        )
    order = np.arange(len(spans.lengths)) if order is None else order
    return {name: spans.select(np.sort(order[a:b])) for name, (a, b) in _split_bounds(len(order), fractions).items()}


def _split_bounds(n: int, fractions: Mapping[str, float]) -> dict[str, tuple[int, int]]:
    total = sum(fractions.values())
    if not fractions or min(fractions.values()) <= 0 or abs(total - 1) > 1e-9:
        said = ", ".join(f"{name} {share:g}" for name, share in fractions.items())
        raise UsageError(f"split shares ({said}) must be above 0 and add up to 1")
    ends = [0, *(round(n * share) for share in np.cumsum(list(fractions.values())))]
    borders = dict(zip(fractions, pairwise(ends), strict=True))
    for name, (first, last) in borders.items():
        if first == last:
            raise UsageError(
                f"the {name} share {fractions[name]:g} of {n:,} leaves nothing; make it larger, or add text"
            )
    return borders


def take_first_tokens(spans: Spans, fraction: float) -> Spans:
    """The first share of the tokens, in order; the border may cut a document."""
    return spans.slice_tokens(0, _count_of_fraction(spans.n_tokens, fraction))


def take_first_documents(spans: Spans, fraction: float) -> Spans:
    """The first share of the documents, whole."""
    return spans.select(np.arange(_count_of_fraction(len(spans.lengths), fraction)))


def _count_of_fraction(n: int, fraction: float) -> int:
    if not 0 < fraction <= 1:
        raise UsageError(f"a data fraction of {fraction:g} is not above 0 and up to 1")
    return max(1, round(n * fraction))


# ---- samplers ----


@dataclass(frozen=True)
class WindowSampler:
    """Random starts from two uniform numbers: u chooses a span by its weight, v one of its positions.

    `edges` are the running sums of the weights, so a device draws with one search and one product.
    """

    starts: Ints  # (N,) where each span that is long enough begins
    n_starts: Ints  # (N,) starts it offers: its length − the inputs of a sample
    cumulative_weights: Ints  # (N,) running sums of the weights

    def sample_starts(self, u: NDArray[np.float64], v: NDArray[np.float64]) -> Ints:
        """Where samples begin, for u and v in [0, 1)."""
        chosen = np.searchsorted(self.cumulative_weights, np.floor(u * self.cumulative_weights[-1]), side="right")
        starts: Ints = self.starts[chosen] + np.floor(v * self.n_starts[chosen]).astype(np.int64)
        return starts

    def span_probabilities(self) -> NDArray[np.float64]:
        """How often each span is chosen."""
        shares: NDArray[np.float64] = np.diff(self.cumulative_weights, prepend=0) / self.cumulative_weights[-1]
        return shares


def uniform_document_sampler(spans: Spans, length: int) -> WindowSampler:
    """Report A's: every document that holds a sample (length + 1 ids) is as likely as any other.

    The report asks for documents *longer* than length + 1; its own texts have none of exactly that length, and taking
    those too lets the smallest legal corpus train.
    """
    enough, positions = _filter_long_spans(spans, length)
    return WindowSampler(enough.starts, positions, np.arange(1, len(positions) + 1))


def uniform_position_sampler(spans: Spans, length: int) -> WindowSampler:
    """Every position of every document is as likely as any other."""
    enough, positions = _filter_long_spans(spans, length)
    return WindowSampler(enough.starts, positions, np.cumsum(positions))


def _filter_long_spans(spans: Spans, length: int) -> tuple[Spans, Ints]:
    enough = spans.select(spans.lengths > length)
    if not len(enough.starts):
        longest = int(spans.lengths.max(initial=0))
        raise UsageError(
            f"no document holds a sample of {length} + 1 tokens (the longest has {longest:,}); "
            "use a shorter context, or more text"
        )
    return enough, enough.lengths - length


# ---- windows ----


@dataclass(frozen=True)
class Windows:
    """Windows of `length` inputs; of a window's targets those from `first` up to `last` count."""

    length: int
    starts: Ints
    scored_start: Ints
    scored_end: Ints

    @property
    def n_windows(self) -> int:
        return len(self.starts)

    @property
    def n_scored(self) -> int:
        """Targets that count, over all windows."""
        return int((self.scored_end - self.scored_start).sum())


def overlapping_windows(spans: Spans, length: int, stride: int = 1) -> Windows:
    """Every whole window at every `stride`-th start, all targets counted (report B: n − length of them)."""
    enough, positions = _filter_long_spans(spans, length)
    starts = _concatenate(
        begin + np.arange(0, n, stride) for begin, n in zip(enough.starts, positions, strict=True)
    )  # fmt: skip
    return Windows(length, starts, np.zeros_like(starts), np.full_like(starts, length))


def consecutive_windows(spans: Spans, length: int) -> Windows:
    """Windows side by side, the last of a span short (report C); every target counts once."""
    return sliding_windows(spans, length, length)


def sliding_windows(spans: Spans, length: int, stride: int) -> Windows:
    """Windows every `stride` ids; only targets that no earlier window had count, so each counts once.

    With a small stride almost every target is told from nearly `length` ids before it.
    """
    if not 1 <= stride <= length:
        raise UsageError(f"a stride of {stride} is not between 1 and the window length {length}")
    starts, first, last = [], [], []
    for begin, n in zip(spans.starts.tolist(), (spans.lengths - 1).tolist(), strict=True):
        if n < 1:
            continue
        offsets = np.arange(1 + max(0, -(-(n - length) // stride)), dtype=np.int64) * stride
        starts.append(begin + offsets)
        first.append(np.where(offsets > 0, length - stride, 0))
        last.append(np.minimum(length, n - offsets))
    if not starts:
        raise UsageError(
            f"nothing to evaluate: {spans.n_tokens:,} token(s) in {len(spans.lengths):,} part(s), and a target needs a token "
            "before it; make this part at least 2 tokens long"
        )
    return Windows(length, _concatenate(starts), _concatenate(first), _concatenate(last))


def gather_windows(
    ids: NDArray[Any], windows: Windows, indices: NDArray[Any] | slice = slice(None)
) -> tuple[Ints, NDArray[np.bool_]]:
    """Tokens (N, length + 1), padded with 0 past the end, and the mask (N, length) of targets that count."""
    place = np.arange(windows.length + 1)
    last = windows.scored_end[indices][:, None]
    at = windows.starts[indices][:, None] + np.minimum(place, last)
    tokens = np.where(place <= last, ids[at], PAD_ID).astype(np.int64)
    return tokens, (place[:-1] >= windows.scored_start[indices][:, None]) & (place[:-1] < last)


def pad_sequences(sequences: Sequence[NDArray[Any]], length: int) -> tuple[Ints, Ints]:
    """Report B's samples: each sequence padded with 0 or cut to `length`, and how many of its ids were kept."""
    kept = np.array([min(len(one), length) for one in sequences], dtype=np.int64)
    rows = np.full((len(sequences), length), PAD_ID, dtype=np.int64)
    for row, one, n in zip(rows, sequences, kept, strict=True):
        row[:n] = one[:n]
    return rows, kept


def _concatenate(parts: Iterable[Ints]) -> Ints:
    return np.concatenate(list(parts))
