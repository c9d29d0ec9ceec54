"""What counting alone reaches on held-out text: unigram and n-gram perplexity, to read a model's loss against.

Interpolated Kneser–Ney (Chen & Goodman 1998, eq. 20 with one discount per order, D = n₁/(n₁ + 2n₂)): the highest
order uses counts, lower orders the number of distinct words seen before (continuations), and the unigram is mixed with
the uniform distribution over the vocabulary, so nothing has probability 0. With order 1 the counts themselves are
discounted towards the uniform. Documents are read as one row; padding is not expected in it.

>>> train, held_out = np.array([1, 2] * 50), np.array([1, 2, 1, 2])
>>> ngram_losses(train, held_out, size=3, order=2)[1:].max() < 0.05
np.True_
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.data.tokenizers import Tokenizer
from seedbed.errors import UsageError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
UNSEEN_NGRAM = -1  # the place of an n-gram that was never seen
MAX_NGRAM_ORDER = 20


@dataclass(frozen=True)
class NgramBaseline:
    """How well an n-gram tells held-out text; a loss in nats per token."""

    order: int
    loss: float
    perplexity: float
    bits_per_character: float
    bits_per_byte: float


def evaluate_ngram(train: NDArray[Any], held_out: NDArray[Any], tokenizer: Tokenizer, order: int) -> NgramBaseline:
    """The n-gram of this order, counted on `train`, told on `held_out`."""
    losses = compute_ngram_losses(train, held_out, tokenizer.size, order)
    bits = float(losses.sum()) / log(2)
    characters, n_bytes = tokenizer.character_counts[held_out].sum(), tokenizer.byte_counts[held_out].sum()
    loss = float(losses.mean())
    return NgramBaseline(order, loss, exp(loss), bits / max(1, int(characters)), bits / max(1, int(n_bytes)))


def compute_ngram_losses(train: NDArray[Any], held_out: NDArray[Any], vocab_size: int, order: int) -> Floats:
    """−log P of every held-out id given the order − 1 before it, in nats."""
    if not 1 <= order <= MAX_NGRAM_ORDER:
        raise UsageError(f"an n-gram of order {order} is not between 1 and {MAX_NGRAM_ORDER}")
    if not len(train) or not len(held_out):
        raise UsageError("an n-gram baseline needs at least one training token and one held-out token")
    seen, told = _NgramSequence(train.astype(np.int64)), _NgramSequence(held_out.astype(np.int64))
    tables = [_build_next_order(seen, told, vocab_size) for _ in range(order)]
    probability = np.full(len(held_out), 1.0 / vocab_size)
    for n, table in enumerate(tables, start=1):
        counts = table.counts if n == order else tables[n].continuation_counts(table)
        probability = _interpolate_kneser_ney(table, counts, probability)
    losses: Floats = -np.log(probability)
    return losses


class _NgramSequence:
    """For every position, the place in the current table of the n-gram that ends there."""

    def __init__(self, ids: Ints) -> None:
        self.token_ids = ids
        self.ngram_ids = np.zeros(len(ids), dtype=np.int64)  # order 0: the empty n-gram, everywhere
        self.history_ids = np.zeros(len(ids), dtype=np.int64)

    def compute_ngram_codes(self, vocab_size: int) -> Ints:
        """Each n-gram as one number: the place of what stands before, and the last id; NONE where that is unseen."""
        return np.where(self.history_ids == UNSEEN_NGRAM, UNSEEN_NGRAM, self.history_ids * vocab_size + self.token_ids)

    def advance_order(self, ngram_ids: Ints) -> None:
        self.ngram_ids = ngram_ids
        self.history_ids = np.concatenate([[UNSEEN_NGRAM], ngram_ids[:-1]])


@dataclass(frozen=True)
class _NgramTable:
    """All n-grams of one order: how often, after which history, with which (n−1)-gram at the end."""

    counts: Ints
    history_ids: Ints  # (n-grams,) place of the first n − 1 ids in the table below
    suffix_ids: Ints  # (n-grams,) place of the last n − 1 ids in the table below
    held_out_ngram_ids: Ints  # (held out,) place of the n-gram that ends at each position, or NONE
    held_out_history_ids: Ints  # (held out,) place of its history, or NONE

    def continuation_counts(self, lower_order: _NgramTable) -> Ints:
        """For each (n−1)-gram, how many different ids were seen before it; one for what only begins the row."""
        return np.maximum(1, np.bincount(self.suffix_ids, minlength=len(lower_order.counts)))


def _build_next_order(train: _NgramSequence, held_out: _NgramSequence, vocab_size: int) -> _NgramTable:
    """The table of one order more, and both rows moved to it."""
    codes = train.compute_ngram_codes(vocab_size)
    counted = codes[codes != UNSEEN_NGRAM]
    first_at = np.flatnonzero(codes != UNSEEN_NGRAM)
    unique, at, inverse, counts = np.unique(counted, return_index=True, return_inverse=True, return_counts=True)
    suffix, told_history = train.ngram_ids[first_at[at]], held_out.history_ids
    ending = np.full(len(codes), UNSEEN_NGRAM)
    ending[first_at] = inverse
    found = _find_ngram_ids(unique, held_out.compute_ngram_codes(vocab_size))
    train.advance_order(ending)
    held_out.advance_order(found)
    return _NgramTable(counts, unique // vocab_size, suffix, found, told_history)


def _find_ngram_ids(sorted_codes: Ints, codes: Ints) -> Ints:
    at = np.minimum(np.searchsorted(sorted_codes, codes), max(0, len(sorted_codes) - 1))
    return (
        np.where(sorted_codes[at] == codes, at, UNSEEN_NGRAM)
        if len(sorted_codes)
        else np.full(len(codes), UNSEEN_NGRAM)
    )


def _interpolate_kneser_ney(table: _NgramTable, counts: Ints, lower_order_probability: Floats) -> Floats:
    """P(id | history) of every held-out position; where the history is new, the lower order's."""
    if not len(counts):
        return lower_order_probability
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    discount = once / (once + 2 * twice) if once and twice else 0.5
    n_histories = int(table.history_ids.max()) + 1
    total = np.bincount(table.history_ids, weights=counts, minlength=n_histories)
    kinds = np.bincount(table.history_ids, minlength=n_histories)
    known = (table.held_out_history_ids != UNSEEN_NGRAM) & (table.held_out_history_ids < n_histories)
    history = np.where(known, table.held_out_history_ids, 0)
    known &= total[history] > 0
    own = np.where(table.held_out_ngram_ids != UNSEEN_NGRAM, counts[table.held_out_ngram_ids] - discount, 0.0)
    return np.where(
        known,
        (own + discount * kinds[history] * lower_order_probability) / np.maximum(total[history], 1),
        lower_order_probability,
    )
