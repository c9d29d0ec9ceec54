"""The vectorized n-gram model, compared with a dictionary implementation and the axioms of probability."""

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

VOCAB_SIZE = 4
rows = st.lists(st.integers(1, VOCAB_SIZE - 1), min_size=1, max_size=30)


class ReferenceNgram:
    """Interpolated Kneser–Ney, one n-gram at a time, in dictionaries."""

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
        lower = self.probability(history[1:], word) if n > 1 else 1 / VOCAB_SIZE
        counts = self.counts[n]
        after = {gram: count for gram, count in counts.items() if gram[:-1] == history}
        if not after:
            return lower
        once, twice = (sum(count == k for count in counts.values()) for k in (1, 2))
        discount = once / (once + 2 * twice) if once and twice else 0.5
        own = max(0, after.get((*history, word), 0) - discount)
        return (own + discount * len(after) * lower) / sum(after.values())


@given(rows, rows, st.integers(1, 4))
def test_losses_match_the_reference_implementation(train, held_out, order):
    reference = ReferenceNgram(train, order)
    expected = []
    for i, word in enumerate(held_out):
        history = tuple(held_out[max(0, i - order + 1) : i])
        expected.append(_reference_loss(reference, history, word, order))
    assert compute_ngram_losses(np.array(train), np.array(held_out), VOCAB_SIZE, order) == pytest.approx(expected)


def _reference_loss(reference, history, word, order):
    return -log(reference.probability(history[-(order - 1) :] if order > 1 else (), word))


@given(rows, rows, st.integers(1, 4))
def test_the_probabilities_of_all_next_tokens_add_up_to_one(train, start, order):
    after = [
        compute_ngram_losses(np.array(train), np.array([*start, word]), VOCAB_SIZE, order)[-1]
        for word in range(VOCAB_SIZE)
    ]
    assert sum(exp(-loss) for loss in after) == pytest.approx(1)


def test_higher_orders_predict_regular_text_better():
    text = "the cat sat on the mat and the dog sat on the log. " * 40
    tokenizer = CharTokenizer.from_corpora(corpus_from_text("t", text))
    ids = tokenizer.encode(text)
    losses = [evaluate_ngram(ids[:1500], ids[1500:], tokenizer, order).loss for order in (1, 2, 3, 5)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.3 < losses[0]


def test_bits_are_counted_per_character_and_per_byte():
    text = "\u05d0\u05d1\u05d2\u05d0" * 50
    tokenizer = CharTokenizer.from_corpora(corpus_from_text("t", text))
    result = evaluate_ngram(tokenizer.encode(text), tokenizer.encode(text), tokenizer, 1)
    assert result.bits_per_character == pytest.approx(result.loss / log(2))
    assert result.bits_per_byte == pytest.approx(result.bits_per_character / 2)
    assert result.perplexity == pytest.approx(exp(result.loss))
    as_bytes = evaluate_ngram(ByteTokenizer().encode(text), ByteTokenizer().encode(text), ByteTokenizer(), 1)
    assert as_bytes.bits_per_character == pytest.approx(2 * as_bytes.bits_per_byte)


def test_a_single_symbol_and_unseen_symbols_have_finite_losses():
    assert (
        compute_ngram_losses(np.ones(50, int), np.ones(9, int), 2, 3)[2:].max() < 0.01
    )  # once the history is complete
    assert np.isfinite(compute_ngram_losses(np.ones(50, int), np.array([2, 3, 1]), 4, 3)).all()


def test_empty_text_and_invalid_orders_are_rejected():
    with pytest.raises(UsageError, match="at least one"):
        compute_ngram_losses(np.array([], int), np.array([1]), 3, 2)
    with pytest.raises(UsageError, match="order 0"):
        compute_ngram_losses(np.array([1]), np.array([1]), 3, 0)
