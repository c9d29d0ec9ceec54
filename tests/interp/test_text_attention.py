"""Attention of texts: rows sum to 1, masks hold, padding is shown, words gather, gradients stand in for an LSTM."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from seedbed.errors import UsageError
from seedbed.interp.attention_extraction import compute_attention
from seedbed.interp.text_attention import word_starts

from .factories import ARITHMETIC, LSTM, label_settings, make_loaded_run, text_settings


def test_every_row_sums_to_one_and_looks_only_back():
    maps = compute_attention(make_loaded_run(ARITHMETIC), "1 + 8 = 9")
    assert maps.weights.shape == (3, 2, 6, 6)
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-6)
    assert (np.triu(maps.weights, k=1) == 0).all()
    assert maps.labels == ("BOS", "1", "+", "8", "=", "9")


def test_attention_is_the_softmax_of_the_scaled_products_of_queries_and_keys():
    loaded = make_loaded_run(ARITHMETIC)
    maps = compute_attention(loaded, "1 + 8 = 9")
    weights = {name: p[0].detach() for name, p in loaded.model.named_parameters()}
    x = loaded.model.placed(torch.from_numpy(loaded.encode("1 + 8 = 9"))[None, None])[0, 0]
    q, k, _ = (x @ weights["blocks.0.attention.qkv.weight"].T + weights["blocks.0.attention.qkv.bias"]).split(16, -1)
    scores = (q[:, 8:] @ k[:, 8:].T / 8**0.5).masked_fill(~torch.ones(6, 6).tril().bool(), float("-inf"))
    np.testing.assert_allclose(maps.weights[0, 1], scores.softmax(-1).detach().numpy(), atol=1e-5)


def test_an_encoder_looks_both_ways_and_at_its_padding(tmp_path):
    maps = compute_attention(make_loaded_run(label_settings(tmp_path)), "we the people")
    assert maps.labels == ("we", "the", "people", *["pad"] * 6)
    assert maps.weights.shape == (2, 2, 9, 9)
    assert (maps.weights > 0).all()
    assert maps.group_by_word().labels == ("we", "the", "people", "pad")


def test_words_look_as_their_letters_do_on_average_and_get_what_they_get_together(tmp_path):
    maps = compute_attention(make_loaded_run(text_settings(tmp_path)), "חיים נחמן")
    words = maps.group_by_word()
    assert words.labels == ("חיים", "נחמן")
    np.testing.assert_allclose(words.weights.sum(-1), 1, atol=1e-6)
    assert words.weights[1, 0, 1, 0] == pytest.approx(maps.weights[1, 0, 5:, :5].sum(-1).mean())


@pytest.mark.parametrize(
    ("pieces", "starts"),
    [
        (["to", " be", " or"], [0, 1, 2]),
        (["a", ".", "\n", "\n", "b"], [0, 4]),
        (["un", "shak", "able ", "faith"], [0, 3]),
        ([" ", " ", "a"], [0, 2]),
    ],
)
def test_a_word_begins_after_white_space(pieces, starts):
    assert word_starts(pieces, [False] * len(pieces)) == starts


def test_direction_is_that_of_the_first_letter_that_has_one(tmp_path):
    maps = compute_attention(make_loaded_run(text_settings(tmp_path)), "חיים")
    assert maps.right_to_left
    assert not replace(maps, pieces=("1", " ", "a", "ח")).right_to_left
    assert replace(maps, pieces=("«", "ח", "a", ".")).right_to_left


def test_layers_and_heads_are_chosen_by_place_and_keep_their_names():
    maps = compute_attention(make_loaded_run(ARITHMETIC), "1 + 8 =")
    chosen = maps.select([2], [1])
    assert (chosen.layers, chosen.heads) == ((2,), (1,))
    assert (chosen.weights[0, 0] == maps.weights[2, 1]).all()
    with pytest.raises(UsageError, match="--layer 4: this model has layers 1 to 3"):
        maps.select([3])


def test_maps_whose_rows_miss_one_are_refused():
    maps = compute_attention(make_loaded_run(ARITHMETIC), "1 + 8 =")
    with pytest.raises(UsageError, match=r"misses a sum of 1 by 0\.1"):
        replace(maps, weights=maps.weights * 0.9)
    with pytest.raises(UsageError, match="misses"):
        replace(maps, weights=maps.weights * np.nan)


def test_an_lstm_shows_the_gradients_of_its_inputs():
    loaded = make_loaded_run(LSTM)
    maps = compute_attention(loaded, "1 + 8 =")
    assert maps.kind == "input gradient"
    assert maps.weights.shape == (1, 1, 5, 5)
    assert (np.triu(maps.weights[0, 0], k=1) == 0).all()


def test_input_gradients_are_those_of_small_changes_of_the_token_vectors():
    loaded = make_loaded_run(LSTM)
    ids = torch.from_numpy(loaded.encode("1 + 8 ="))[None, None]
    table = loaded.model.embed.weight

    def told(changed):
        from seedbed.models.hooks import Hooks

        with torch.no_grad():
            logs = loaded.model(ids, hooks=Hooks(replace={"embed": changed}))[0, 0, -1].log_softmax(-1)
        return logs[best]

    loaded.model.double()
    vectors = table.detach().double()[0][ids]
    best = int(loaded.model(ids)[0, 0, -1].argmax())
    norms = []
    for place in range(5):
        slopes = []
        for unit in range(16):
            nudge = torch.zeros_like(vectors)
            nudge[0, 0, place, unit] = 1e-4
            slopes.append((told(vectors + nudge) - told(vectors - nudge)) / 2e-4)
        norms.append(torch.stack(slopes).norm())
    expected = torch.stack(norms) / sum(norms)
    np.testing.assert_allclose(compute_attention(loaded, "1 + 8 =").weights[0, 0, -1], expected.numpy(), rtol=1e-3)


def test_texts_that_cannot_be_shown_are_refused_in_a_sentence(tmp_path):
    loaded = make_loaded_run(text_settings(tmp_path) | {"model.positions": "learned"})
    with pytest.raises(UsageError, match="has 0 tokens; attention is shown for 1 to 24"):
        compute_attention(loaded, "")
    with pytest.raises(UsageError, match="has 40 tokens"):
        compute_attention(loaded, "שיר " * 10)
    assert compute_attention(make_loaded_run(text_settings(tmp_path)), "שיר " * 10).weights.shape[-1] == 40


def test_as_json_counts_layers_from_one_and_keeps_every_number():
    document = compute_attention(make_loaded_run(ARITHMETIC), "1 + 8 =").select([1]).as_json()
    assert document["layers"] == [2]
    assert np.asarray(document["weights"]).shape == (1, 2, 5, 5)
