"""Held-out inputs, ablations, logit lens, gates and pair activations, each against an independent computation."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seedbed.errors import UsageError
from seedbed.interp.ablation import ablate, compute_loss, logit_lens
from seedbed.interp.activations import compute_gate_statistics, compute_pair_activations
from seedbed.interp.attention_extraction import iter_attention
from seedbed.models.hooks import get_activations

from .factories import ARITHMETIC, LSTM, held_out_inputs, label_settings, make_loaded_run, text_settings


def test_equations_are_held_out_and_have_token_kinds():
    loaded = make_loaded_run(ARITHMETIC | {"task.orders": (2, 3)})
    inputs = held_out_inputs(loaded, 40)
    texts = np.array(loaded.tokenizer.texts)
    assert inputs.n_inputs == 40
    for row, tokens in enumerate(inputs.tokens):
        words = [word for word in texts[tokens] if word not in ("PAD", "EOS")]
        n_plus = words.count("+")
        expected = ["BOS", *["operands", "operator"] * n_plus, "operands", "=", "result"]
        for position, name in enumerate(expected):
            assert [kind for kind, mask in inputs.token_kinds.items() if mask[row, position]] == [name]
        assert inputs.non_padding[row].sum() == len(expected) + (n_plus == 1)  # the shorter ones end with EOS


def test_the_loss_is_the_mean_over_scored_targets():
    loaded = make_loaded_run(ARITHMETIC)
    inputs = held_out_inputs(loaded, 7)
    logits = loaded.model(torch.from_numpy(inputs.tokens)[None])[0].detach()
    expected = F.cross_entropy(logits[:, 4:6].flatten(0, 1), torch.from_numpy(inputs.targets[:, 4:6]).flatten())
    assert compute_loss(loaded, inputs) == pytest.approx(float(expected), rel=1e-5)


def test_sentences_are_found_by_their_end_characters(tmp_path):
    loaded = make_loaded_run(text_settings(tmp_path, "Hi you. Go on! No?\n") | {"task.val_fraction": 0.5})
    inputs = held_out_inputs(loaded, 3)
    texts = np.array(loaded.tokenizer.texts)
    assert set(texts[inputs.tokens[inputs.token_kinds["sentence ends"]]]) == {".", "!", "?"}
    assert set(texts[inputs.tokens[inputs.token_kinds["sentence starts"]]]) == {"G", "N", "H"}
    assert set(texts[inputs.tokens[inputs.token_kinds["spaces"]]]) == {" ", "\n"}


def test_padding_of_labelled_texts_is_a_token_kind(tmp_path):
    inputs = held_out_inputs(make_loaded_run(label_settings(tmp_path)), 5)
    assert (inputs.token_kinds["padding"] == ~inputs.non_padding).all()
    assert inputs.targets.shape == (inputs.n_inputs, 1)
    assert inputs.token_kinds["sentence starts"][:, 0].all()
    assert not inputs.token_kinds["sentence starts"][:, 1:].any()


def test_ablating_a_head_equals_zeroing_its_columns_of_the_output_projection():
    loaded = make_loaded_run(ARITHMETIC)
    inputs = held_out_inputs(loaded, 9)
    ablation = ablate(loaded, inputs)
    matrix = loaded.model.get_parameter("blocks.1.attention.out.weight")
    with torch.no_grad():
        matrix[:, :, 8:] = 0  # the second of two heads
    assert compute_loss(loaded, inputs) - ablation.loss == pytest.approx(ablation.heads[1, 1], abs=1e-6)
    assert ablation.heads.shape == (3, 2)
    assert (np.abs(ablation.heads) > 1e-6).all()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_skipping_a_layer_equals_a_model_without_it(norm):
    loaded = make_loaded_run(ARITHMETIC | {"model.norm": norm})
    inputs = held_out_inputs(loaded, 9)
    ablation = ablate(loaded, inputs)
    blocks = loaded.model.blocks
    loaded.model.blocks = torch.nn.ModuleList([blocks[0], blocks[2]])
    assert compute_loss(loaded, inputs) - ablation.loss == pytest.approx(ablation.layers[1], abs=1e-6)
    assert abs(ablation.layers[1]) > 1e-6


def test_the_logit_lens_of_the_last_layer_is_the_loss(tmp_path):
    for settings in (
        ARITHMETIC,
        ARITHMETIC | {"model.norm": "pre", "model.final_norm": True},
        label_settings(tmp_path),
    ):
        loaded = make_loaded_run(settings)
        inputs = held_out_inputs(loaded, 5)
        lens = logit_lens(loaded, inputs)
        assert lens[-1] == pytest.approx(compute_loss(loaded, inputs), rel=1e-5)
        assert abs(lens[0] - lens[-1]) > 1e-4


def test_an_lstm_has_no_heads_to_ablate():
    loaded = make_loaded_run(LSTM)
    with pytest.raises(UsageError, match="is an lstm and has no heads"):
        ablate(loaded, held_out_inputs(loaded, 3))


def test_gate_statistics_are_over_units_and_non_padding_positions():
    loaded = make_loaded_run(LSTM | {"task.orders": (2, 3)})
    inputs = held_out_inputs(loaded, 30)
    first, second = compute_gate_statistics(loaded, inputs, loaded.run.settings.model.gate_hooks)
    forget = get_activations(loaded.model, torch.from_numpy(inputs.tokens)[None], "lstm.1.f")["lstm.1.f"][0].numpy()
    values = np.concatenate([row[: mask.sum()] for row, mask in zip(forget, inputs.non_padding, strict=True)])
    assert second.means["f"] == pytest.approx(values.mean(), rel=1e-5)
    assert second.shut["f"] == pytest.approx((values < 0.1).mean())
    assert second.open["f"] == pytest.approx((values > 0.9).mean())
    assert first.layer == 0
    assert 0 < first.cell < 5


def test_a_gru_has_statistics_of_its_own_gates_and_hidden_state():
    loaded = make_loaded_run(LSTM | {"model.kind": "gru"})
    inputs = held_out_inputs(loaded, 30)
    _, second = compute_gate_statistics(loaded, inputs, loaded.run.settings.model.gate_hooks)
    values = get_activations(loaded.model, torch.from_numpy(inputs.tokens)[None], "gru.1.*")
    kept = torch.from_numpy(inputs.non_padding)
    assert list(second.means) == ["r", "z", "n"]
    assert list(second.open) == ["r", "z"]
    assert second.means["n"] == pytest.approx(float(values["gru.1.n"][0][kept].mean()), rel=1e-5)
    assert (second.cell, second.state_symbol) == (pytest.approx(float(values["gru.1.out"][0][kept].abs().mean())), "h")


def test_attention_in_chunks_equals_attention_at_once(monkeypatch):
    loaded = make_loaded_run(ARITHMETIC)
    inputs = held_out_inputs(loaded, 7)
    ((_, at_once),) = iter_attention(loaded, inputs)
    monkeypatch.setattr("seedbed.interp.attention_extraction.MAX_ATTENTION_WEIGHTS_PER_CHUNK", 3 * 2 * 6 * 6 * 2)
    chunks = list(iter_attention(loaded, inputs))
    assert len(chunks) == 4
    np.testing.assert_allclose(np.concatenate([chunk for _, chunk in chunks]), at_once, atol=1e-6)


@pytest.mark.parametrize("settings", [ARITHMETIC, LSTM], ids=["gpt", "lstm"])
def test_pair_activations_are_those_of_each_equation_at_its_equals_sign(settings):
    loaded = make_loaded_run(settings)
    pairs = compute_pair_activations(loaded)
    name = "blocks.1.mlp.post" if settings is ARITHMETIC else "lstm.1.out"
    activations = loaded.activations("7 + 4 =", name, "logits")
    np.testing.assert_allclose(pairs.hidden_units[1][7, 4], activations[name][-1].numpy(), atol=1e-5)
    np.testing.assert_allclose(pairs.logits[7, 4], activations["logits"][-1].numpy(), atol=1e-5)
    assert len(pairs.hidden_units) == loaded.run.settings.model.layers
    assert (pairs.results[7, 4], pairs.results[3, 2]) == (0, 5)


def test_training_pairs_are_those_not_held_out():
    loaded = make_loaded_run(ARITHMETIC | {"task.orders": (2, 3)})
    pairs, inputs = compute_pair_activations(loaded), held_out_inputs(loaded, 10_000)
    short = inputs.tokens[(inputs.tokens == loaded.tokenizer.texts.index("+")).sum(1) == 1]
    held_out = {(int(row[1]), int(row[3])) for row in short}
    assert {(int(a), int(b)) for a, b in np.argwhere(~pairs.in_training_set)} == held_out


@pytest.mark.parametrize(("operator", "result"), [("*", 7 * 4 % 11), ("/", 7 * pow(4, -1, 11) % 11), ("-", 3)])
def test_pairs_are_in_the_order_in_which_the_operation_adds_positions(operator, result):
    loaded = make_loaded_run(ARITHMETIC | {"task.operator": operator})
    pairs, order = compute_pair_activations(loaded), loaded.run.settings.task.cyclic_order()
    a, b = order.index(7), order.index(4)
    activations = loaded.activations(f"7 {operator} 4 =", "logits")
    np.testing.assert_allclose(pairs.logits[a, b], activations["logits"][-1].numpy(), atol=1e-5)
    assert pairs.results[a, b] == result
    position = np.array([order.index(number) for number in pairs.results.ravel()]).reshape(pairs.results.shape)
    i, j = np.indices(position.shape)
    np.testing.assert_array_equal(position, (i + pairs.b_sign * j) % len(order))


def test_products_of_a_composite_modulus_have_no_cyclic_order():
    loaded = make_loaded_run(ARITHMETIC | {"task.operator": "*", "task.p": 12})
    assert loaded.run.settings.task.cyclic_order() is None
    assert compute_pair_activations(loaded) is None


def test_subword_tokens_have_word_indices_and_sentence_boundary_words(tmp_path):
    loaded = make_loaded_run(text_settings(tmp_path, "Hi you. Go on! No?\n") | {"task.val_fraction": 0.5})
    inputs = held_out_inputs(loaded, 3)
    texts = np.array(loaded.tokenizer.texts)
    for row, words in zip(inputs.tokens, inputs.word_indices, strict=True):
        joined = ["".join(texts[row[words == word]]) for word in dict.fromkeys(words)]
        assert joined == re.findall(r"^\s+|\S+\s*", "".join(texts[row]))
    first, last = (
        set("".join(texts[inputs.tokens[inputs.token_kinds[name]]])) for name in ("first words", "last words")
    )
    assert first >= set("Go No")
    assert "n" in last
    assert "G" not in last


def test_word_tokens_have_no_word_indices(tmp_path):
    assert held_out_inputs(make_loaded_run(text_settings(tmp_path, tokenizer="words")), 3).word_indices is None
