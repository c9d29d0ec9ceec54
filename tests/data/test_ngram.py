"""The n-gram in arrays against the same model in dictionaries, and against what a distribution must be."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.data.documents import corpus_from_text
from seedbed.data.ngram import compute_ngram_losses, evaluate_ngram
from seedbed.data.tokenizers import ByteTokenizer, CharTokenizer
from seedbed.errors import UsageError

SIZE = 4
rows = st.lists(st.integers(1, SIZE - 1), min_size=1, max_size=30)


class Plain:
    """Interpolated Kneser–Ney, one n-gram at a time."""

    def __init__(self, train, order):
        self.counts = {}
        for n in range(1, order + 1):
            grams = [tuple(train[i : i + n]) for i in range(len(train) - n + 1)]
            if n == order:
                self.counts[n] = Counter(grams)
            else:
                before = defaultdict(set)
                for i in range(len(train) - n):
                    before[tuple(train[i + 1 : i + 1 + n])].add(train[i])
                self.counts[n] = {gram: max(1, len(before[gram])) for gram in set(grams)}

    def probability(self, history, word):
        n = len(history) + 1
        lower = self.probability(history[1:], word) if n > 1 else 1 / SIZE
        counts = self.counts[n]
        after = {gram: count for gram, count in counts.items() if gram[:-1] == history}
        if not after:
            return lower
        once, twice = (sum(count == k for count in counts.values()) for k in (1, 2))
        discount = once / (once + 2 * twice) if once and twice else 0.5
        own = max(0, after.get((*history, word), 0) - discount)
        return (own + discount * len(after) * lower) / sum(after.values())


@given(rows, rows, st.integers(1, 4))
def test_losses_are_those_of_the_model_written_plainly(train, held_out, order):
    plain = Plain(train, order)
    expected = []
    for i, word in enumerate(held_out):
        history = tuple(held_out[max(0, i - order + 1) : i])
        expected.append(_with_all_orders(plain, history, word, order))
    assert compute_ngram_losses(np.array(train), np.array(held_out), SIZE, order) == pytest.approx(expected)


def _with_all_orders(plain, history, word, order):
    return -log(plain.probability(history[-(order - 1) :] if order > 1 else (), word))


@given(rows, rows, st.integers(1, 4))
def test_the_probabilities_of_all_next_tokens_add_up_to_one(train, start, order):
    after = [compute_ngram_losses(np.array(train), np.array([*start, word]), SIZE, order)[-1] for word in range(SIZE)]
    assert sum(exp(-loss) for loss in after) == pytest.approx(1)


def test_higher_orders_tell_more_of_regular_text():
    text = "the cat sat on the mat and the dog sat on the log. " * 40
    letters = CharTokenizer.from_corpora(corpus_from_text("t", text))
    ids = letters.encode(text)
    losses = [evaluate_ngram(ids[:1500], ids[1500:], letters, order).loss for order in (1, 2, 3, 5)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.3 < losses[0]


def test_bits_are_counted_per_character_and_per_byte():
    text = "\u05d0\u05d1\u05d2\u05d0" * 50
    letters = CharTokenizer.from_corpora(corpus_from_text("t", text))
    found = evaluate_ngram(letters.encode(text), letters.encode(text), letters, 1)
    assert found.bits_per_character == pytest.approx(found.loss / log(2))
    assert found.bits_per_byte == pytest.approx(found.bits_per_character / 2)
    assert found.perplexity == pytest.approx(exp(found.loss))
    as_bytes = evaluate_ngram(ByteTokenizer().encode(text), ByteTokenizer().encode(text), ByteTokenizer(), 1)
    assert as_bytes.bits_per_character == pytest.approx(2 * as_bytes.bits_per_byte)


def test_one_symbol_and_unseen_symbols_have_finite_losses():
    assert compute_ngram_losses(np.ones(50, int), np.ones(9, int), 2, 3)[2:].max() < 0.01  # once the history is whole
    assert np.isfinite(compute_ngram_losses(np.ones(50, int), np.array([2, 3, 1]), 4, 3)).all()


def test_nothing_to_count_is_refused():
    with pytest.raises(UsageError, match="at least one"):
        compute_ngram_losses(np.array([], int), np.array([1]), 3, 2)
    with pytest.raises(UsageError, match="order 0"):
        compute_ngram_losses(np.array([1]), np.array([1]), 3, 0)
