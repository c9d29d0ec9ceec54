"""Text models equal torch's layers and transformers' models in float64, and runs of a pack are independent."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from seedbed.models.build import build_pack
from seedbed.models.hooks import Hooks
from seedbed.models.layers import BatchNorm, running_stats
from seedbed.settings import DatasetInfo, Settings

V, T, C = 19, 7, 3
TEXT = DatasetInfo(vocab_size=V, context_length=T, n_train=50, padding_id=0)
LABELS = DatasetInfo(vocab_size=V, context_length=T, n_train=50, n_classes=C, padding_id=0)
CLOSE = {"rtol": 1e-10, "atol": 1e-10}
ENCODER = {
    "task.kind": "labels", "model.kind": "encoder", "model.dim": 12, "model.heads": 3, "model.layers": 2,
    "model.norm": "pre", "model.mlp_bias": True, "model.positions": "none", "model.classifier_hidden": 5,
}  # fmt: skip
GPT = {"task.kind": "text", "model.dim": 24, "model.heads": 4, "model.layers": 2, "model.norm": "pre",
       "model.mlp_bias": True, "model.final_norm": True, "model.tied": True, "model.output_bias": False}  # fmt: skip


def make_pack(overrides, dataset_info, seeds=(3, 5, 8), varied=None):
    settings = [Settings.from_flat(overrides | (varied[i] if varied else {})) for i in range(len(seeds))]
    assert not settings[0].conflicts()
    model, parameters = build_pack(settings, seeds, torch.zeros(1, dtype=torch.int64), torch.float64, dataset_info)
    torch.manual_seed(0)
    parameters.weights += 0.1 * torch.randn_like(parameters.weights)
    return model.eval(), parameters


def run_tensors(parameters, slot):
    return {name: torch.from_numpy(array) for name, array in parameters.get_arrays(slot).items()}


# ---- encoder ----


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_equals_torch_encoder_layers_and_a_classifier(norm, activation):
    model, parameters = make_pack(ENCODER | {"model.norm": norm, "model.activation": activation}, LABELS)
    tokens = torch.randint(V, (3, 4, T))
    logits = model(tokens)
    assert logits.shape == (3, 4, 1, C)
    act = nn.functional.relu if activation == "relu" else nn.functional.gelu
    for slot in range(3):
        ours = run_tensors(parameters, slot)
        x = ours["embed.weight"][tokens[slot]]
        for i in range(2):
            x = torch_encoder_layer(ours, i, act, norm == "pre")(x)
        hidden = act(x.mean(1) @ ours["classifier.hidden.weight"].T + ours["classifier.hidden.bias"])
        expected = hidden @ ours["classifier.output.weight"].T + ours["classifier.output.bias"]
        torch.testing.assert_close(logits[slot, :, 0], expected, **CLOSE)


def torch_encoder_layer(ours, i, activation, norm_first):
    layer = nn.TransformerEncoderLayer(
        12, 3, 48, 0.0, activation, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    names = {
        "self_attn.in_proj_": "attention.qkv.", "self_attn.out_proj.": "attention.out.", "linear1.": "mlp.up.",
        "linear2.": "mlp.down.", "norm1.": "norm1.", "norm2.": "norm2.",
    }  # fmt: skip
    state = {f"{a}{leaf}": ours[f"blocks.{i}.{b}{leaf}"] for a, b in names.items() for leaf in ("weight", "bias")}
    layer.load_state_dict(state)
    return layer  # in training mode, so that torch does not use its fast path; dropout is 0


def test_alibi_is_symmetric_in_the_encoder_and_works_beyond_the_training_length():
    model, parameters = make_pack(ENCODER | {"model.positions": "alibi"}, LABELS)
    tokens = torch.randint(V, (3, 2, 3 * T))
    hooks = Hooks("blocks.0.attention.pattern")
    model(tokens, hooks=hooks)
    ours = run_tensors(parameters, 1)
    x = torch.nn.functional.layer_norm(
        ours["embed.weight"][tokens[1]], (12,), ours["blocks.0.norm1.weight"], ours["blocks.0.norm1.bias"]
    )
    q, k, _ = (x @ ours["blocks.0.attention.qkv.weight"].T + ours["blocks.0.attention.qkv.bias"]).chunk(3, -1)
    distance = (torch.arange(3 * T)[:, None] - torch.arange(3 * T)).abs()
    for head, slope in enumerate([2**-4, 2**-8, 2**-2]):
        part = slice(4 * head, 4 * head + 4)
        expected = (q[..., part] @ k[..., part].mT / 2 - slope * distance).softmax(-1)
        torch.testing.assert_close(hooks.activations["blocks.0.attention.pattern"][1, :, head], expected, **CLOSE)
    torch.testing.assert_close(model(tokens), model(tokens, hooks=Hooks("*")), **CLOSE)


def test_every_position_affects_the_encoders_logits_padding_too():
    model, _ = make_pack(ENCODER, LABELS)
    tokens = torch.zeros(3, 1, T, dtype=torch.int64)
    for position in range(T):
        changed = tokens.clone()
        changed[..., position] = 5
        assert (model(changed) != model(tokens)).all()


# ---- BatchNorm ----


def test_batch_norm_equals_torch_for_each_run():
    layer = BatchNorm(5)
    layer.init_running_stats(3, torch.device("cpu"), torch.float64)
    weight, bias = torch.randn(2, 3, 5, dtype=torch.float64)
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
    theirs = [nn.BatchNorm1d(5, dtype=torch.float64) for _ in range(3)]
    for run, one in enumerate(theirs):
        one.weight.data, one.bias.data = weight[run], bias[run]
    sizes = (8, 6, 3)  # batches of different sizes, padded
    sample_mask = torch.arange(8) < torch.tensor(sizes)[:, None]
    for _ in range(4):
        x = 3 + 2 * torch.randn(3, 8, 1, 5, dtype=torch.float64)
        out = layer(x, sample_mask)
        for run, n in enumerate(sizes):
            torch.testing.assert_close(out[run, :n, 0], theirs[run](x[run, :n, 0]), **CLOSE)
    layer.eval()
    for run, one in enumerate(theirs):
        torch.testing.assert_close(layer.mean[run], one.running_mean, **CLOSE)
        torch.testing.assert_close(layer.variance[run], one.running_var, **CLOSE)
        torch.testing.assert_close(layer(x)[run, :, 0], one.eval()(x[run, :, 0]), **CLOSE)


def test_running_stats_are_named_and_have_one_row_per_run():
    model, _ = make_pack(ENCODER | {"model.batch_norm": True}, LABELS)
    shapes = {name: tuple(tensor.shape) for name, tensor in running_stats(model).items()}
    assert shapes == {"classifier.norm.mean": (3, 5), "classifier.norm.variance": (3, 5)}
    before = {name: tensor.clone() for name, tensor in running_stats(model).items()}
    model(torch.randint(V, (3, 4, T)))
    assert all(
        torch.equal(before[name], tensor) for name, tensor in running_stats(model).items()
    )  # evaluation mode updates nothing
    model.train()(torch.randint(V, (3, 4, T)))
    assert not any(torch.equal(before[name], tensor) for name, tensor in running_stats(model).items())


# ---- decoders against transformers ----


def test_decoder_equals_gpt2():
    transformers = pytest.importorskip("transformers")
    model, parameters = make_pack(GPT | {"model.positions": "learned"}, TEXT)
    config = transformers.GPT2Config(
        vocab_size=V, n_positions=T, n_embd=24, n_layer=2, n_head=4, activation_function="gelu",
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, attn_implementation="eager",
    )  # fmt: skip
    tokens = torch.randint(V, (3, 4, T))
    for slot in range(3):
        ours = run_tensors(parameters, slot)
        theirs = transformers.GPT2LMHeadModel(config).double().eval()
        state = {"wte.weight": "embed.weight", "wpe.weight": "position_table.weight"}
        state |= {f"ln_f.{leaf}": f"final_norm.{leaf}" for leaf in ("weight", "bias")}
        parts = {"attn.c_attn": "attention.qkv", "attn.c_proj": "attention.out", "mlp.c_fc": "mlp.up",
                 "mlp.c_proj": "mlp.down", "ln_1": "norm1", "ln_2": "norm2"}  # fmt: skip
        for i in range(2):
            for a, b in parts.items():
                state |= {f"h.{i}.{a}.{leaf}": f"blocks.{i}.{b}.{leaf}" for leaf in ("weight", "bias")}
        theirs.transformer.load_state_dict(
            {
                name: ours[mine].T if ".c_" in name and ours[mine].ndim == 2 else ours[mine]
                for name, mine in state.items()
            },
            strict=False,
        )
        with torch.no_grad():
            torch.testing.assert_close(model(tokens)[slot], theirs(tokens[slot]).logits, **CLOSE)


@pytest.mark.parametrize("heads", [4, 6])
def test_decoder_with_alibi_equals_bloom_at_any_length(heads, monkeypatch):
    """BLOOM normalises embeddings, approximates GELU and computes softmax in float32; all three are patched out."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(nn.functional, "softmax", lambda x, dim, dtype=None: x.softmax(dim))
    model, parameters = make_pack(GPT | {"model.positions": "alibi", "model.heads": heads}, TEXT)
    config = transformers.BloomConfig(
        vocab_size=V, hidden_size=24, n_layer=2, n_head=heads, hidden_dropout=0, attention_dropout=0
    )
    tokens = torch.randint(V, (3, 4, 4 * T))
    for slot in range(3):
        ours = run_tensors(parameters, slot)
        theirs = transformers.BloomForCausalLM(config).double().eval()
        theirs.transformer.word_embeddings_layernorm = nn.Identity()
        theirs.transformer.word_embeddings.weight.data = ours["embed.weight"]
        for i, layer in enumerate(theirs.transformer.h):
            layer.mlp.gelu_impl = nn.GELU()
            fill_bloom(layer, {name.removeprefix(f"blocks.{i}."): tensor for name, tensor in ours.items()}, heads)
        theirs.transformer.ln_f.weight.data = ours["final_norm.weight"]
        theirs.transformer.ln_f.bias.data = ours["final_norm.bias"]
        theirs.tie_weights()
        with torch.no_grad():
            torch.testing.assert_close(model(tokens)[slot], theirs(tokens[slot]).logits, **CLOSE)


def fill_bloom(layer, ours, heads):
    """BLOOM interleaves queries, keys and values by head; ours concatenates those of all heads."""
    for leaf in ("weight", "bias"):
        qkv = ours[f"attention.qkv.{leaf}"].unflatten(0, (3, heads, -1)).transpose(0, 1).flatten(0, 2)
        getattr(layer.self_attention.query_key_value, leaf).data = qkv
        for theirs, mine in (
            (layer.self_attention.dense, "attention.out"), (layer.mlp.dense_h_to_4h, "mlp.up"),
            (layer.mlp.dense_4h_to_h, "mlp.down"), (layer.input_layernorm, "norm1"),
            (layer.post_attention_layernorm, "norm2"),
        ):  # fmt: skip
            getattr(theirs, leaf).data = ours[f"{mine}.{leaf}"]


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "alibi", "rotary", "none"])
def test_a_kv_cache_stands_for_the_preceding_tokens(positions):
    model, _ = make_pack(GPT | {"model.positions": positions}, TEXT)
    tokens = torch.randint(V, (3, 4, T))
    tail = model(tokens[..., 3:], past=model.prefill(tokens[..., :3]))
    torch.testing.assert_close(tail, model(tokens)[:, :, 3:], **CLOSE)
    positions = torch.randint(T - 3, (3, 4, 2))
    picked = tail.gather(2, positions[..., None].expand(-1, -1, -1, V))
    torch.testing.assert_close(model(tokens[..., 3:], positions, past=model.prefill(tokens[..., :3])), picked, **CLOSE)


# ---- LSTM with a projection, and frozen embeddings ----

LSTM = {"task.kind": "text", "model.kind": "lstm", "model.dim": 6, "model.hidden": 7, "model.projection": 6,
        "model.activation": "relu", "model.gate_biases": 2, "model.tied": True, "model.output_bias": False}  # fmt: skip


@pytest.mark.parametrize("frozen", [False, True])
def test_lstm_with_projection_equals_torchs_lstm_and_linear(frozen, tmp_path):
    table = np.random.RandomState(1).standard_normal((V, 6))
    np.savez(tmp_path / "table.npz", tokens=table)
    model, parameters = make_pack(LSTM | ({"model.embeddings": str(tmp_path / "table.npz")} if frozen else {}), TEXT)
    tokens = torch.randint(V, (3, 4, T))
    for slot in range(3):
        ours = run_tensors(parameters, slot)
        assert ("embed.weight" in ours) is not frozen
        embed = torch.from_numpy(table) if frozen else ours["embed.weight"]
        theirs = nn.LSTM(6, 7, 2, batch_first=True, dtype=torch.float64)
        for i in range(2):
            for kind in ("weight", "bias"):
                getattr(theirs, f"{kind}_ih_l{i}").data = ours[f"cells.{i}.input.{kind}"]
                getattr(theirs, f"{kind}_hh_l{i}").data = ours[f"cells.{i}.state.{kind}"]
        linear = nn.Linear(7, 6, dtype=torch.float64)
        linear.weight.data, linear.bias.data = ours["projection.weight"], ours["projection.bias"]
        expected = linear(theirs(embed[tokens[slot]])[0]).relu() @ embed.T
        torch.testing.assert_close(model(tokens)[slot], expected, **CLOSE)


@pytest.mark.parametrize("output_bias", [False, True])
def test_frozen_embeddings_are_not_parameters(tmp_path, output_bias):
    tables = {"tokens": np.random.randn(V, 24), "positions": np.random.randn(T + 2, 24)}
    np.savez(tmp_path / "tables.npz", **tables)
    overrides = GPT | {"model.positions": "learned", "model.output_bias": output_bias}
    model, parameters = make_pack(overrides | {"model.embeddings": str(tmp_path / "tables.npz")}, TEXT)
    assert not {"embed.weight", "position_table.weight"} & parameters.shapes.keys()
    learned, theirs = make_pack(overrides, TEXT)
    tokens = torch.randint(V, (3, 4, T))
    for slot in range(3):
        arrays = parameters.get_arrays(slot) | {
            "embed.weight": tables["tokens"],
            "position_table.weight": tables["positions"][:T],
        }
        theirs.load_arrays(slot, arrays)
    torch.testing.assert_close(model(tokens), learned(tokens), **CLOSE)
    parameters.compute_gradients(model(tokens).square().sum())
    assert (parameters.gradients != 0).any()


# ---- independence of runs ----

DROPS = {"model.embedding_dropout": 0.2, "model.attention_dropout": 0.3, "model.mlp_dropout": 0.4,
         "model.residual_dropout": 0.1, "model.dropout": 0.2}  # fmt: skip
FAMILIES = [
    (GPT | DROPS | {"model.positions": "alibi"}, TEXT),
    (GPT | DROPS | {"model.positions": "rotary", "model.qkv_bias": False, "model.hidden": 5}, TEXT),
    (LSTM | {"model.embedding_dropout": 0.2, "model.dropout": 0.3}, TEXT),
    (
        ENCODER | DROPS | {"model.batch_norm": True, "model.classifier_dropout": 0.3, "model.positions": "learned"},
        LABELS,
    ),
    (ENCODER | {"model.positions": "alibi", "model.final_norm": True, "model.norm": "post"}, LABELS),
]


@pytest.mark.parametrize(("overrides", "dataset_info"), FAMILIES)
def test_stacked_runs_match_runs_alone_with_dropout_and_running_stats(overrides, dataset_info):
    varied = [{}, {"model.init": "orthogonal"}, {"model.embedding_dropout": 0.0, "model.init": "xavier-normal"}]
    seeds, tokens = (3, 5, 3), torch.randint(V, (3, 4, T))
    together, parameters = make_pack(overrides, dataset_info, seeds, varied)
    logits = together.train()(tokens)
    parameters.compute_gradients(logits.logsumexp(-1).sum())
    for slot in range(3):
        alone, own = make_pack(overrides, dataset_info, seeds[slot : slot + 1], varied[slot : slot + 1])
        own.load_arrays(0, parameters.get_arrays(slot))
        torch.testing.assert_close(alone.train()(tokens[slot : slot + 1])[0], logits[slot], **CLOSE)
        own.compute_gradients(alone(tokens[slot : slot + 1]).logsumexp(-1).sum())
        if "model.batch_norm" not in overrides:
            torch.testing.assert_close(own.gradients[0], parameters.gradients[slot], **CLOSE)
        for name, tensor in running_stats(together).items():
            assert not torch.equal(tensor[slot], tensor[(slot + 1) % 3]), name


@pytest.mark.parametrize(("overrides", "dataset_info"), FAMILIES)
def test_no_run_affects_the_gradients_of_another(overrides, dataset_info):
    model, parameters = make_pack(overrides, dataset_info)
    tokens = torch.randint(V, (3, 4, T))
    for run in range(3):
        parameters.compute_gradients(model.train()(tokens)[run].logsumexp(-1).sum())
        for other in range(3):
            reached = parameters.gradients[other].abs().sum()
            assert (reached > 0) if other == run else (reached == 0)


def test_attention_dropout_is_active_in_training_mode_only():
    overrides = GPT | {"model.positions": "none", "model.attention_dropout": 0.3, "model.layers": 1}
    model, _ = make_pack(overrides, TEXT)
    tokens = torch.randint(V, (3, 50, 20))
    whole, dropped = model(tokens), model.train()(tokens)
    assert not torch.allclose(whole, dropped)
    assert torch.equal(model.eval()(tokens), whole)
