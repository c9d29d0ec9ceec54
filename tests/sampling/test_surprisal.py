"""Surprisal against cross-entropy by torch, window by window."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seedbed.data.tokenizers import ByteTokenizer, CharTokenizer
from seedbed.errors import UsageError
from seedbed.sampling.surprisal import _decode_pieces, compute_surprisal
from tests.sampling.made import make_model

LETTERS = CharTokenizer(("<pad>", " ", *"abcdefghi"))


@pytest.mark.parametrize("kind", ["gpt", "lstm"])
def test_within_the_context_losses_are_the_models_cross_entropy(kind):
    model, ids = make_model(kind=kind), LETTERS.encode("ab cab dad")[:10]
    found = compute_surprisal(model, LETTERS, ids, context=9)
    row = torch.from_numpy(ids.astype(np.int64))
    expected = F.cross_entropy(model.eval()(row[None, None, :-1])[0, 0], row[1:], reduction="none")
    assert np.isnan(found.losses[0])
    np.testing.assert_allclose(found.losses[1:], expected.detach(), atol=1e-12)
    assert found.total_bits == pytest.approx(expected.sum().item() / log(2))


def test_past_the_context_each_token_counts_once_after_at_least_half_a_context():
    model, text = make_model(), "abc defghi ab ihg fed cba gg hi"
    ids = torch.from_numpy(LETTERS.encode(text).astype(np.int64))
    found = compute_surprisal(model, LETTERS, ids.numpy(), context=9)
    for place in range(1, len(ids)):
        expected = []
        for before in range(min(place, 9), min(place, 5) - 1, -1):
            logs = model.eval()(ids[None, None, place - before : place])[0, 0, -1].log_softmax(-1)
            expected.append(-logs[ids[place]].item())
        assert min(abs(found.losses[place] - one) for one in expected) < 1e-12


def test_alternatives_are_the_likeliest_tokens_best_first():
    model, ids = make_model(), LETTERS.encode("abc de")
    found = compute_surprisal(model, LETTERS, ids, context=9, n_alternatives=3)
    shares = model.eval()(torch.from_numpy(ids.astype(np.int64))[None, None])[0, 0, 2].softmax(-1)
    assert found.alternatives[3].tolist() == shares.argsort(descending=True)[:3].tolist()
    assert found.probabilities[3].tolist() == pytest.approx(sorted(shares.tolist(), reverse=True)[:3])


def test_spans_are_words_with_the_sum_of_their_tokens():
    found = compute_surprisal(make_model(), LETTERS, LETTERS.encode("ab  cde fg"), context=9)
    assert [(span.text, span.start, span.end) for span in found.words] == [("ab", 0, 2), ("cde", 4, 7), ("fg", 8, 10)]
    assert found.words[1].bits == pytest.approx(found.losses[4:7].sum() / log(2))
    assert [span.bits for span in found.most_surprising_words()] == sorted(
        (span.bits for span in found.words), reverse=True
    )


def test_bits_are_counted_by_character_and_by_byte():
    tokens, text = CharTokenizer(("<pad>", *"aé€")), "aé€é"
    found = compute_surprisal(make_model(), tokens, tokens.encode(text), context=9)
    assert (found.n_characters, found.n_bytes) == (3, 7)
    assert found.bits_per_byte * 7 == pytest.approx(found.bits_per_character * 3)


def test_a_split_character_belongs_to_the_byte_that_ends_it():
    assert _decode_pieces(ByteTokenizer(), ByteTokenizer().encode("aé€")) == ("a", "", "é", "", "", "€")


@pytest.mark.parametrize("text", ["", "a"])
def test_a_text_of_less_than_two_tokens_is_refused(text):
    with pytest.raises(UsageError, match="at least 2"):
        compute_surprisal(make_model(), LETTERS, LETTERS.encode(text), context=9)
