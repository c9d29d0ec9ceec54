"""N-gram baselines: perplexity of unigram and higher-order models on held-out text, for comparison with a model's loss.

Interpolated Kneser–Ney (Chen & Goodman 1998, eq. 20 with one discount per order, D = n₁/(n₁ + 2n₂)): the highest
order uses raw counts, lower orders use continuation counts (the number of distinct preceding tokens), and the unigram
is interpolated with the uniform distribution over the vocabulary, so that no token has probability 0. With order 1, raw
counts are discounted towards the uniform. Documents are concatenated into one sequence, without padding.

>>> train, held_out = np.array([1, 2] * 50), np.array([1, 2, 1, 2])
>>> compute_ngram_losses(train, held_out, vocab_size=3, order=2)[1:].max() < 0.05
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
UNSEEN_NGRAM = -1  # the id of an n-gram that does not occur in the training text
MAX_NGRAM_ORDER = 20


@dataclass(frozen=True)
class NgramBaseline:
    """Performance of an n-gram model on held-out text; the loss is in nats per token."""

    order: int
    loss: float
    perplexity: float
    bits_per_character: float
    bits_per_byte: float


def evaluate_ngram(train: NDArray[Any], held_out: NDArray[Any], tokenizer: Tokenizer, order: int) -> NgramBaseline:
    """Fits an n-gram model of this order on `train` and evaluates it on `held_out`."""
    losses = compute_ngram_losses(train, held_out, tokenizer.size, order)
    bits = float(losses.sum()) / log(2)
    n_characters, n_bytes = tokenizer.character_counts[held_out].sum(), tokenizer.byte_counts[held_out].sum()
    loss = float(losses.mean())
    return NgramBaseline(order, loss, exp(loss), bits / max(1, int(n_characters)), bits / max(1, int(n_bytes)))


def compute_ngram_losses(train: NDArray[Any], held_out: NDArray[Any], vocab_size: int, order: int) -> Floats:
    """Returns −log P of every held-out token given the order − 1 tokens before it, in nats."""
    if not 1 <= order <= MAX_NGRAM_ORDER:
        raise UsageError(f"an n-gram of order {order} is not between 1 and {MAX_NGRAM_ORDER}")
    if not len(train) or not len(held_out):
        raise UsageError("an n-gram baseline needs at least one training token and one held-out token")
    train_ngrams, held_out_ngrams = (_NgramSequence(ids.astype(np.int64)) for ids in (train, held_out))
    tables = [_build_next_order(train_ngrams, held_out_ngrams, vocab_size) for _ in range(order)]
    probability = np.full(len(held_out), 1.0 / vocab_size)
    for n, table in enumerate(tables, start=1):
        counts = table.counts if n == order else tables[n].continuation_counts(table)
        probability = _interpolate_kneser_ney(table, counts, probability)
    losses: Floats = -np.log(probability)
    return losses


class _NgramSequence:
    """A token sequence with, for every position, the id of the n-gram of the current order that ends there."""

    def __init__(self, ids: Ints) -> None:
        self.token_ids = ids
        self.ngram_ids = np.zeros(len(ids), dtype=np.int64)  # order 0: the empty n-gram everywhere
        self.history_ids = np.zeros(len(ids), dtype=np.int64)

    def compute_ngram_codes(self, vocab_size: int) -> Ints:
        """Encodes each next-order n-gram as one integer, its history's id and its last token, or UNSEEN_NGRAM."""
        return np.where(self.history_ids == UNSEEN_NGRAM, UNSEEN_NGRAM, self.history_ids * vocab_size + self.token_ids)

    def advance_order(self, ngram_ids: Ints) -> None:
        """Moves to the next order; the history of a position is the n-gram that ends just before it."""
        self.ngram_ids = ngram_ids
        self.history_ids = np.concatenate([[UNSEEN_NGRAM], ngram_ids[:-1]])


@dataclass(frozen=True)
class _NgramTable:
    """All n-grams of one order that occur in the training text: count, history and suffix."""

    counts: Ints
    history_ids: Ints  # (n-grams,) lower-order id of the first n − 1 tokens
    suffix_ids: Ints  # (n-grams,) lower-order id of the last n − 1 tokens
    held_out_ngram_ids: Ints  # (held out,) id of the n-gram that ends at each position, or UNSEEN_NGRAM
    held_out_history_ids: Ints  # (held out,) lower-order id of its history, or UNSEEN_NGRAM

    def continuation_counts(self, lower_order: _NgramTable) -> Ints:
        """Counts the distinct tokens that precede each (n−1)-gram; 1 for one that occurs only at the start."""
        return np.maximum(1, np.bincount(self.suffix_ids, minlength=len(lower_order.counts)))


def _build_next_order(train: _NgramSequence, held_out: _NgramSequence, vocab_size: int) -> _NgramTable:
    """Returns the n-gram table of the next order and advances both sequences to it."""
    codes = train.compute_ngram_codes(vocab_size)
    positions = np.flatnonzero(codes != UNSEEN_NGRAM)  # all but the first few, whose history is too short
    unique, first, inverse, counts = np.unique(
        codes[positions], return_index=True, return_inverse=True, return_counts=True
    )
    suffix_ids, held_out_history_ids = train.ngram_ids[positions[first]], held_out.history_ids
    train_ngram_ids = np.full(len(codes), UNSEEN_NGRAM)
    train_ngram_ids[positions] = inverse
    held_out_ngram_ids = _find_ngram_ids(unique, held_out.compute_ngram_codes(vocab_size))
    train.advance_order(train_ngram_ids)
    held_out.advance_order(held_out_ngram_ids)
    return _NgramTable(counts, unique // vocab_size, suffix_ids, held_out_ngram_ids, held_out_history_ids)


def _find_ngram_ids(sorted_codes: Ints, codes: Ints) -> Ints:
    """Returns the index of each code in `sorted_codes`, or UNSEEN_NGRAM."""
    if not len(sorted_codes):
        return np.full(len(codes), UNSEEN_NGRAM)
    index = np.minimum(np.searchsorted(sorted_codes, codes), len(sorted_codes) - 1)
    return np.where(sorted_codes[index] == codes, index, UNSEEN_NGRAM)


def _interpolate_kneser_ney(table: _NgramTable, counts: Ints, lower_order_probability: Floats) -> Floats:
    """Returns P(token | history) for every held-out position; the lower order's where the history is unseen."""
    if not len(counts):
        return lower_order_probability
    n1, n2 = int((counts == 1).sum()), int((counts == 2).sum())
    discount = n1 / (n1 + 2 * n2) if n1 and n2 else 0.5
    n_histories = int(table.history_ids.max()) + 1
    total = np.bincount(table.history_ids, weights=counts, minlength=n_histories)
    n_continuations = np.bincount(table.history_ids, minlength=n_histories)
    known = (table.held_out_history_ids != UNSEEN_NGRAM) & (table.held_out_history_ids < n_histories)
    history = np.where(known, table.held_out_history_ids, 0)
    known &= total[history] > 0
    ngram = table.held_out_ngram_ids
    discounted = np.where(ngram != UNSEEN_NGRAM, counts[ngram] - discount, 0.0)
    backoff = discount * n_continuations[history] * lower_order_probability
    return np.where(known, (discounted + backoff) / np.maximum(total[history], 1), lower_order_probability)
