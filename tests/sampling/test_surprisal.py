"""Surprisal against torch's cross-entropy, window by window."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seedbed.data.tokenizers import ByteTokenizer, CharTokenizer
from seedbed.errors import UsageError
from seedbed.sampling.surprisal import _decode_pieces, compute_surprisal
from tests.sampling.factories import make_model

TOKENIZER = CharTokenizer(("<pad>", " ", *"abcdefghi"))


@pytest.mark.parametrize("kind", ["gpt", "lstm"])
def test_within_the_context_losses_are_the_models_cross_entropy(kind):
    model, ids = make_model(kind=kind), TOKENIZER.encode("ab cab dad")[:10]
    surprisal = compute_surprisal(model, TOKENIZER, ids, context=9)
    row = torch.from_numpy(ids.astype(np.int64))
    expected = F.cross_entropy(model.eval()(row[None, None, :-1])[0, 0], row[1:], reduction="none")
    assert np.isnan(surprisal.losses[0])
    np.testing.assert_allclose(surprisal.losses[1:], expected.detach(), atol=1e-12)
    assert surprisal.total_bits == pytest.approx(expected.sum().item() / log(2))


def test_past_the_context_each_token_is_scored_once_with_at_least_half_a_context():
    model, text = make_model(), "abc defghi ab ihg fed cba gg hi"
    ids = torch.from_numpy(TOKENIZER.encode(text).astype(np.int64))
    surprisal = compute_surprisal(model, TOKENIZER, ids.numpy(), context=9)
    for position in range(1, len(ids)):
        expected = []
        for n_context in range(min(position, 9), min(position, 5) - 1, -1):
            log_probabilities = model.eval()(ids[None, None, position - n_context : position])[0, 0, -1].log_softmax(-1)
            expected.append(-log_probabilities[ids[position]].item())
        assert min(abs(surprisal.losses[position] - loss) for loss in expected) < 1e-12


def test_alternatives_are_the_most_likely_tokens_best_first():
    model, ids = make_model(), TOKENIZER.encode("abc de")
    surprisal = compute_surprisal(model, TOKENIZER, ids, context=9, n_alternatives=3)
    probabilities = model.eval()(torch.from_numpy(ids.astype(np.int64))[None, None])[0, 0, 2].softmax(-1)
    assert surprisal.alternatives[3].tolist() == probabilities.argsort(descending=True)[:3].tolist()
    assert surprisal.probabilities[3].tolist() == pytest.approx(sorted(probabilities.tolist(), reverse=True)[:3])


def test_words_have_the_summed_surprisal_of_their_tokens():
    surprisal = compute_surprisal(make_model(), TOKENIZER, TOKENIZER.encode("ab  cde fg"), context=9)
    assert [(word.text, word.start, word.end) for word in surprisal.words] == [
        ("ab", 0, 2),
        ("cde", 4, 7),
        ("fg", 8, 10),
    ]
    assert surprisal.words[1].bits == pytest.approx(surprisal.losses[4:7].sum() / log(2))
    assert [word.bits for word in surprisal.most_surprising_words()] == sorted(
        (word.bits for word in surprisal.words), reverse=True
    )


def test_bits_are_counted_by_character_and_by_byte():
    tokenizer, text = CharTokenizer(("<pad>", *"aé€")), "aé€é"
    surprisal = compute_surprisal(make_model(), tokenizer, tokenizer.encode(text), context=9)
    assert (surprisal.n_characters, surprisal.n_bytes) == (3, 7)
    assert surprisal.bits_per_byte * 7 == pytest.approx(surprisal.bits_per_character * 3)


def test_a_split_character_belongs_to_the_token_that_completes_it():
    assert _decode_pieces(ByteTokenizer(), ByteTokenizer().encode("aé€")) == ("a", "", "é", "", "", "€")


@pytest.mark.parametrize("text", ["", "a"])
def test_a_text_of_fewer_than_two_tokens_is_refused(text):
    with pytest.raises(UsageError, match="at least 2"):
        compute_surprisal(make_model(), TOKENIZER, TOKENIZER.encode(text), context=9)
