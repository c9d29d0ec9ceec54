"""Splits, samplers and windows over a flat array of token ids: where samples start and which targets are scored.

    spans = encoded.spans                                           # the documents
    splits = split_contiguous(spans, {"train": 0.9, "val": 0.1})    # or split_documents(spans, …, order)
    sampler = uniform_document_sampler(splits["train"], length=128) # report A; or uniform_position_sampler
    windows = consecutive_windows(splits["val"], length=256)        # report C; or sliding_, overlapping_windows
    tokens, mask = gather_windows(encoded.ids, windows)

Only `gather_windows` and `pad_sequences` copy ids. A window of `length` inputs spans length + 1 ids: the targets are
the inputs shifted by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.data.tokenizers import PAD_ID
from seedbed.errors import UsageError

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Spans:
    """Contiguous ranges of a flat array of ids: documents, or the parts of them that belong to a split."""

    starts: Ints
    lengths: Ints

    @classmethod
    def from_lengths(cls, lengths: Sequence[int] | Ints) -> Spans:
        """Returns adjacent spans of these lengths."""
        array = np.array(lengths, dtype=np.int64)
        return cls(np.cumsum(array) - array, array)

    @classmethod
    def single(cls, n: int) -> Spans:
        """Returns all n ids as a single span."""
        return cls.from_lengths([n])

    @property
    def n_tokens(self) -> int:
        return int(self.lengths.sum())

    def select(self, indices: NDArray[Any]) -> Spans:
        return Spans(self.starts[indices], self.lengths[indices])

    def slice_tokens(self, start: int, stop: int) -> Spans:
        """Returns tokens `start` up to `stop`, counted over the spans in order; a boundary may cut a span."""
        ends = np.cumsum(self.lengths)
        begins = ends - self.lengths
        clipped_begins, clipped_ends = np.clip(begins, start, stop), np.clip(ends, start, stop)
        nonempty = clipped_ends > clipped_begins
        starts = self.starts + clipped_begins - begins
        return Spans(starts[nonempty], (clipped_ends - clipped_begins)[nonempty])


# ---- splits ----


def split_contiguous(spans: Spans, fractions: Mapping[str, float]) -> dict[str, Spans]:
    """Splits into contiguous ranges in the given order, by fraction of tokens; a boundary may cut a document."""
    return {name: spans.slice_tokens(a, b) for name, (a, b) in _split_bounds(spans.n_tokens, fractions).items()}


def split_documents(spans: Spans, fractions: Mapping[str, float], order: Ints | None = None) -> dict[str, Spans]:
    """Splits by fraction of documents, dealt out in `order` (a permutation); each split keeps the corpus order."""
    n_documents = len(spans.lengths)
    if n_documents < len(fractions):
        raise UsageError(
            f"{n_documents} document(s) cannot be split into {len(fractions)} sets by document; split contiguously"
        )
    order = np.arange(len(spans.lengths)) if order is None else order
    return {name: spans.select(np.sort(order[a:b])) for name, (a, b) in _split_bounds(len(order), fractions).items()}


def _split_bounds(n: int, fractions: Mapping[str, float]) -> dict[str, tuple[int, int]]:
    """Returns each split's start and stop; cumulative fractions are rounded, so that no item is lost."""
    total = sum(fractions.values())
    if not fractions or min(fractions.values()) <= 0 or abs(total - 1) > 1e-9:
        listed = ", ".join(f"{name} {fraction:g}" for name, fraction in fractions.items())
        raise UsageError(f"split fractions ({listed}) must be above 0 and add up to 1")
    edges = [0, *(round(n * cumulative) for cumulative in np.cumsum(list(fractions.values())))]
    bounds = dict(zip(fractions, pairwise(edges), strict=True))
    for name, (start, stop) in bounds.items():
        if start == stop:
            raise UsageError(
                f"the {name} fraction {fractions[name]:g} of {n:,} leaves nothing; make it larger, or add text"
            )
    return bounds


def take_first_tokens(spans: Spans, fraction: float) -> Spans:
    """Returns the first fraction of the tokens, at least one; the boundary may cut a document."""
    if not 0 < fraction <= 1:
        raise UsageError(f"a data fraction of {fraction:g} is not above 0 and at most 1")
    return spans.slice_tokens(0, max(1, round(spans.n_tokens * fraction)))


# ---- samplers ----


@dataclass(frozen=True)
class WindowSampler:
    """Maps two uniform numbers to a random window start: u selects a span by weight, v a start within it.

    With cumulative weights, a device samples with one binary search and one product.
    """

    starts: Ints  # (N,) of the spans that are long enough
    n_starts: Ints  # (N,) possible window starts in the span: its length − the window length
    cumulative_weights: Ints  # (N,)


def uniform_document_sampler(spans: Spans, length: int) -> WindowSampler:
    """Samples uniformly over documents that hold a window (length + 1 ids), then over positions, as in report A.

    The report requires documents *longer* than length + 1. Its corpora have none of exactly that length, and including
    those lets the smallest valid corpus train.
    """
    long_enough, n_starts = _filter_long_spans(spans, length)
    return WindowSampler(long_enough.starts, n_starts, np.arange(1, len(n_starts) + 1))


def uniform_position_sampler(spans: Spans, length: int) -> WindowSampler:
    """Samples uniformly over all positions of all documents."""
    long_enough, n_starts = _filter_long_spans(spans, length)
    return WindowSampler(long_enough.starts, n_starts, np.cumsum(n_starts))


def _filter_long_spans(spans: Spans, length: int) -> tuple[Spans, Ints]:
    """Returns the spans that hold a window, and the number of window starts in each."""
    long_enough = spans.select(spans.lengths > length)
    if not len(long_enough.starts):
        longest = int(spans.lengths.max(initial=0))
        raise UsageError(
            f"no document holds a sample of {length} + 1 tokens (the longest has {longest:,}); "
            "use a shorter context, or more text"
        )
    return long_enough, long_enough.lengths - length


# ---- windows ----


@dataclass(frozen=True)
class Windows:
    """Windows of `length` inputs; targets from `scored_start` up to `scored_end` of a window are scored."""

    length: int
    starts: Ints
    scored_start: Ints
    scored_end: Ints

    @property
    def n_windows(self) -> int:
        return len(self.starts)

    @property
    def n_scored(self) -> int:
        """Scored targets of all windows."""
        return int((self.scored_end - self.scored_start).sum())


def overlapping_windows(spans: Spans, length: int, stride: int = 1) -> Windows:
    """Returns every full window at every `stride`-th start, all targets scored (report B: n − length windows)."""
    long_enough, n_starts = _filter_long_spans(spans, length)
    pairs = zip(long_enough.starts, n_starts, strict=True)
    starts = _concatenate(begin + np.arange(0, n, stride) for begin, n in pairs)
    return Windows(length, starts, np.zeros_like(starts), np.full_like(starts, length))


def consecutive_windows(spans: Spans, length: int) -> Windows:
    """Returns adjacent windows, the last of a span possibly short (report C); every target is scored once."""
    return sliding_windows(spans, length, length)


def sliding_windows(spans: Spans, length: int, stride: int) -> Windows:
    """Returns windows every `stride` ids that score only targets that no earlier window scored.

    With a small stride, almost every target is predicted from nearly `length` tokens of context.
    """
    if not 1 <= stride <= length:
        raise UsageError(f"a stride of {stride} is not between 1 and the window length {length}")
    starts, scored_start, scored_end = [], [], []
    for begin, n_targets in zip(spans.starts.tolist(), (spans.lengths - 1).tolist(), strict=True):
        if n_targets < 1:
            continue
        offsets = np.arange(1 + max(0, -(-(n_targets - length) // stride)), dtype=np.int64) * stride
        starts.append(begin + offsets)
        scored_start.append(np.where(offsets > 0, length - stride, 0))
        scored_end.append(np.minimum(length, n_targets - offsets))
    if not starts:
        raise UsageError(
            f"nothing to evaluate: {spans.n_tokens:,} token(s) in {len(spans.lengths):,} span(s), and a target needs a "
            "token before it; make this split at least 2 tokens long"
        )
    return Windows(length, _concatenate(starts), _concatenate(scored_start), _concatenate(scored_end))


def gather_windows(
    ids: NDArray[Any], windows: Windows, indices: NDArray[Any] | slice = slice(None)
) -> tuple[Ints, NDArray[np.bool_]]:
    """Returns tokens (N, length + 1), padded past the end of a span, and the mask (N, length) of scored targets."""
    offset = np.arange(windows.length + 1)
    start, end = windows.scored_start[indices][:, None], windows.scored_end[indices][:, None]
    position = windows.starts[indices][:, None] + np.minimum(offset, end)  # clipped so that it stays within the ids
    tokens = np.where(offset <= end, ids[position], PAD_ID).astype(np.int64)
    return tokens, (offset[:-1] >= start) & (offset[:-1] < end)


def pad_sequences(sequences: Sequence[NDArray[Any]], length: int) -> tuple[Ints, Ints]:
    """Returns the sequences padded or truncated to `length` (report B), and how many ids of each were kept."""
    lengths = np.array([min(len(sequence), length) for sequence in sequences], dtype=np.int64)
    rows = np.full((len(sequences), length), PAD_ID, dtype=np.int64)
    for row, sequence, n in zip(rows, sequences, lengths, strict=True):
        row[:n] = sequence[:n]
    return rows, lengths


def _concatenate(arrays: Iterable[Ints]) -> Ints:
    return np.concatenate(list(arrays))
