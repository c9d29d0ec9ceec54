"""Attention of texts: row sums, causal mask, padding, grouping by word, input gradients for an LSTM."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from seedbed.errors import UsageError
from seedbed.interp.attention_extraction import compute_attention
from seedbed.interp.text_attention import word_starts

from .factories import ARITHMETIC, LSTM, label_settings, make_loaded_run, text_settings


def test_rows_sum_to_one_and_attention_is_causal():
    attention = compute_attention(make_loaded_run(ARITHMETIC), "1 + 8 = 9")
    assert attention.weights.shape == (3, 2, 6, 6)
    np.testing.assert_allclose(attention.weights.sum(-1), 1, atol=1e-6)
    assert (np.triu(attention.weights, k=1) == 0).all()
    assert attention.labels == ("BOS", "1", "+", "8", "=", "9")


def test_attention_is_the_softmax_of_scaled_dot_products():
    loaded = make_loaded_run(ARITHMETIC)
    attention = compute_attention(loaded, "1 + 8 = 9")
    weights = {name: p[0].detach() for name, p in loaded.model.named_parameters()}
    x = loaded.model.embed_tokens(torch.from_numpy(loaded.encode("1 + 8 = 9"))[None, None])[0, 0]
    q, k, _ = (x @ weights["blocks.0.attention.qkv.weight"].T + weights["blocks.0.attention.qkv.bias"]).split(16, -1)
    scores = (q[:, 8:] @ k[:, 8:].T / 8**0.5).masked_fill(~torch.ones(6, 6).tril().bool(), float("-inf"))
    np.testing.assert_allclose(attention.weights[0, 1], scores.softmax(-1).detach().numpy(), atol=1e-5)


def test_an_encoder_attends_both_ways_and_to_its_padding(tmp_path):
    attention = compute_attention(make_loaded_run(label_settings(tmp_path)), "we the people")
    assert attention.labels == ("we", "the", "people", *["pad"] * 6)
    assert attention.weights.shape == (2, 2, 9, 9)
    assert (attention.weights > 0).all()
    assert attention.group_by_word().labels == ("we", "the", "people", "pad")


def test_grouping_by_word_averages_queries_and_sums_keys(tmp_path):
    attention = compute_attention(make_loaded_run(text_settings(tmp_path)), "חיים נחמן")
    words = attention.group_by_word()
    assert words.labels == ("חיים", "נחמן")
    np.testing.assert_allclose(words.weights.sum(-1), 1, atol=1e-6)
    assert words.weights[1, 0, 1, 0] == pytest.approx(attention.weights[1, 0, 5:, :5].sum(-1).mean())


@pytest.mark.parametrize(
    ("pieces", "starts"),
    [
        (["to", " be", " or"], [0, 1, 2]),
        (["a", ".", "\n", "\n", "b"], [0, 4]),
        (["un", "shak", "able ", "faith"], [0, 3]),
        ([" ", " ", "a"], [0, 2]),
    ],
)
def test_a_word_starts_after_white_space(pieces, starts):
    assert word_starts(pieces, [False] * len(pieces)) == starts


def test_direction_is_that_of_the_first_strong_character(tmp_path):
    attention = compute_attention(make_loaded_run(text_settings(tmp_path)), "חיים")
    assert attention.right_to_left
    assert not replace(attention, pieces=("1", " ", "a", "ח")).right_to_left
    assert replace(attention, pieces=("«", "ח", "a", ".")).right_to_left


def test_selected_layers_and_heads_keep_their_indices():
    attention = compute_attention(make_loaded_run(ARITHMETIC), "1 + 8 =")
    selected = attention.select([2], [1])
    assert (selected.layers, selected.heads) == ((2,), (1,))
    assert (selected.weights[0, 0] == attention.weights[2, 1]).all()
    with pytest.raises(UsageError, match="--layer 4: this model has layers 1 to 3"):
        attention.select([3])


def test_rows_that_do_not_sum_to_one_are_refused():
    attention = compute_attention(make_loaded_run(ARITHMETIC), "1 + 8 =")
    with pytest.raises(UsageError, match=r"misses a sum of 1 by 0\.1"):
        replace(attention, weights=attention.weights * 0.9)
    with pytest.raises(UsageError, match="misses"):
        replace(attention, weights=attention.weights * np.nan)


def test_an_lstm_has_input_gradients_instead_of_attention():
    loaded = make_loaded_run(LSTM)
    attention = compute_attention(loaded, "1 + 8 =")
    assert attention.kind == "input gradient"
    assert attention.weights.shape == (1, 1, 5, 5)
    assert (np.triu(attention.weights[0, 0], k=1) == 0).all()


def test_input_gradients_match_finite_differences_of_the_embeddings():
    loaded = make_loaded_run(LSTM)
    ids = torch.from_numpy(loaded.encode("1 + 8 ="))[None, None]
    table = loaded.model.embed.weight

    def top_log_probability(embeddings):
        from seedbed.models.hooks import Hooks

        with torch.no_grad():
            log_probabilities = loaded.model(ids, hooks=Hooks(replace={"embed": embeddings}))[0, 0, -1].log_softmax(-1)
        return log_probabilities[best]

    loaded.model.double()
    embeddings = table.detach().double()[0][ids]
    best = int(loaded.model(ids)[0, 0, -1].argmax())
    norms = []
    for position in range(5):
        slopes = []
        for unit in range(16):
            nudge = torch.zeros_like(embeddings)
            nudge[0, 0, position, unit] = 1e-4
            slopes.append((top_log_probability(embeddings + nudge) - top_log_probability(embeddings - nudge)) / 2e-4)
        norms.append(torch.stack(slopes).norm())
    expected = torch.stack(norms) / sum(norms)
    np.testing.assert_allclose(compute_attention(loaded, "1 + 8 =").weights[0, 0, -1], expected.numpy(), rtol=1e-3)


def test_empty_and_too_long_texts_are_refused(tmp_path):
    loaded = make_loaded_run(text_settings(tmp_path) | {"model.positions": "learned"})
    with pytest.raises(UsageError, match="has 0 tokens; attention is shown for 1 to 24"):
        compute_attention(loaded, "")
    with pytest.raises(UsageError, match="has 40 tokens"):
        compute_attention(loaded, "שיר " * 10)
    assert compute_attention(make_loaded_run(text_settings(tmp_path)), "שיר " * 10).weights.shape[-1] == 40


def test_as_json_counts_layers_from_one_and_has_all_weights():
    document = compute_attention(make_loaded_run(ARITHMETIC), "1 + 8 =").select([1]).as_json()
    assert document["layers"] == [2]
    assert np.asarray(document["weights"]).shape == (1, 2, 5, 5)
