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

from seedbed.data.text import Tokens
from seedbed.errors import UsageError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
NONE = -1  # the place of an n-gram that was never seen
LARGEST_ORDER = 20


@dataclass(frozen=True)
class Baseline:
    """How well an n-gram tells held-out text; a loss in nats per token."""

    order: int
    loss: float
    perplexity: float
    bits_per_character: float
    bits_per_byte: float


def baseline(train: NDArray[Any], held_out: NDArray[Any], tokens: Tokens, order: int) -> Baseline:
    """The n-gram of this order, counted on `train`, told on `held_out`."""
    losses = ngram_losses(train, held_out, tokens.size, order)
    bits = float(losses.sum()) / log(2)
    characters, n_bytes = tokens.character_counts[held_out].sum(), tokens.byte_counts[held_out].sum()
    loss = float(losses.mean())
    return Baseline(order, loss, exp(loss), bits / max(1, int(characters)), bits / max(1, int(n_bytes)))


def ngram_losses(train: NDArray[Any], held_out: NDArray[Any], size: int, order: int) -> Floats:
    """−log P of every held-out id given the order − 1 before it, in nats."""
    if not 1 <= order <= LARGEST_ORDER:
        raise UsageError(f"an n-gram of order {order} is not between 1 and {LARGEST_ORDER}")
    if not len(train) or not len(held_out):
        raise UsageError("an n-gram baseline needs at least one training token and one held-out token")
    seen, told = _Places(train.astype(np.int64)), _Places(held_out.astype(np.int64))
    tables = [_next_order(seen, told, size) for _ in range(order)]
    probability = np.full(len(held_out), 1.0 / size)
    for n, table in enumerate(tables, start=1):
        counts = table.counts if n == order else tables[n].continuations(table)
        probability = _interpolated(table, counts, probability)
    losses: Floats = -np.log(probability)
    return losses


class _Places:
    """For every position, the place in the current table of the n-gram that ends there."""

    def __init__(self, ids: Ints) -> None:
        self.ids = ids
        self.ending = np.zeros(len(ids), dtype=np.int64)  # order 0: the empty n-gram, everywhere
        self.before = np.zeros(len(ids), dtype=np.int64)

    def codes(self, size: int) -> Ints:
        """Each n-gram as one number: the place of what stands before, and the last id; NONE where that is unseen."""
        return np.where(self.before == NONE, NONE, self.before * size + self.ids)

    def move(self, ending: Ints) -> None:
        self.ending = ending
        self.before = np.concatenate([[NONE], ending[:-1]])


@dataclass(frozen=True)
class _Table:
    """All n-grams of one order: how often, after which history, with which (n−1)-gram at the end."""

    counts: Ints
    history: Ints  # (n-grams,) place of the first n − 1 ids in the table below
    suffix: Ints  # (n-grams,) place of the last n − 1 ids in the table below
    told: Ints  # (held out,) place of the n-gram that ends at each position, or NONE
    told_history: Ints  # (held out,) place of its history, or NONE

    def continuations(self, below: _Table) -> Ints:
        """For each (n−1)-gram, how many different ids were seen before it; one for what only begins the row."""
        return np.maximum(1, np.bincount(self.suffix, minlength=len(below.counts)))


def _next_order(seen: _Places, told: _Places, size: int) -> _Table:
    """The table of one order more, and both rows moved to it."""
    codes = seen.codes(size)
    counted = codes[codes != NONE]
    first_at = np.flatnonzero(codes != NONE)
    unique, at, inverse, counts = np.unique(counted, return_index=True, return_inverse=True, return_counts=True)
    suffix, told_history = seen.ending[first_at[at]], told.before
    ending = np.full(len(codes), NONE)
    ending[first_at] = inverse
    found = _look_up(unique, told.codes(size))
    seen.move(ending)
    told.move(found)
    return _Table(counts, unique // size, suffix, found, told_history)


def _look_up(unique: Ints, codes: Ints) -> Ints:
    at = np.minimum(np.searchsorted(unique, codes), max(0, len(unique) - 1))
    return np.where(unique[at] == codes, at, NONE) if len(unique) else np.full(len(codes), NONE)


def _interpolated(table: _Table, counts: Ints, lower: Floats) -> Floats:
    """P(id | history) of every held-out position; where the history is new, the lower order's."""
    if not len(counts):
        return lower
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    discount = once / (once + 2 * twice) if once and twice else 0.5
    n_histories = int(table.history.max()) + 1
    total = np.bincount(table.history, weights=counts, minlength=n_histories)
    kinds = np.bincount(table.history, minlength=n_histories)
    known = (table.told_history != NONE) & (table.told_history < n_histories)
    history = np.where(known, table.told_history, 0)
    known &= total[history] > 0
    own = np.where(table.told != NONE, counts[table.told] - discount, 0.0)
    return np.where(known, (own + discount * kinds[history] * lower) / np.maximum(total[history], 1), lower)
