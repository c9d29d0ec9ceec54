"""T5's relative position bias equals that of transformers' T5Attention, causal and bidirectional, in float64."""

from __future__ import annotations

import pytest
import torch

from seedbed.models.build import build_pack
from seedbed.models.hooks import get_activations
from seedbed.models.positions import POSITION_ENCODINGS, T5Bias
from seedbed.settings import DatasetInfo, Settings, describe_accepted_values

modeling_t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
INFO = DatasetInfo(vocab_size=11, context_length=9, n_train=5, n_classes=3)
KINDS = {
    "gpt": {"task.kind": "text"},
    "encoder": {"task.kind": "labels", "model.kind": "encoder"},
}


def make_model(kind: str, n_runs: int = 2):
    shape = {"model.positions": "t5", "model.dim": 12, "model.heads": 3, "model.layers": 2}
    settings = [Settings.from_flat(KINDS[kind] | shape)] * n_runs
    return build_pack(settings, range(n_runs), torch.zeros(1, dtype=torch.int64), torch.float64, INFO)


def hf_attention(kind: str, weight: torch.Tensor):
    """T5Attention with this table of biases."""
    config = modeling_t5.T5Config(d_model=12, d_kv=4, num_heads=3, is_decoder=kind == "gpt")
    attention = modeling_t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()
    attention.relative_attention_bias.weight.data = weight
    return attention


def test_every_accepted_name_has_an_encoding():
    names = ", ".join(f'"{name}"' for name in POSITION_ENCODINGS)
    assert describe_accepted_values("model.positions") == f"one of {names}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [7, 160])
def test_the_bias_is_that_of_transformers(kind, n):
    model, parameters = make_model(kind)
    encoding = model.position_table
    assert isinstance(encoding, T5Bias)
    ours = encoding.bias(torch.zeros(2, 1, n, 12, dtype=torch.float64), None, 0)
    for slot in range(2):
        weight = torch.from_numpy(parameters.get_arrays(slot)["position_table.weight"])
        theirs = hf_attention(kind, weight).compute_bias(n, n)[0].movedim(0, -1)
        kept = torch.ones(n, n).tril().bool() if kind == "gpt" else torch.ones(n, n).bool()
        assert torch.equal(ours[slot, 0][kept], theirs[kept])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [7, 40], ids=["short", "long"])
def test_every_layer_adds_the_bias_to_its_scaled_scores(kind, n):
    model, parameters = make_model(kind)
    tokens = torch.randint(11, (2, 3, n), generator=torch.Generator().manual_seed(1))
    values = get_activations(model, tokens, "blocks.*.attention.*")
    future = torch.ones(n, n).triu(1).bool() if kind == "gpt" else torch.zeros(n, n).bool()
    for slot in range(2):
        weight = torch.from_numpy(parameters.get_arrays(slot)["position_table.weight"])
        bias = hf_attention(kind, weight).compute_bias(n, n)
        for layer in range(2):
            q, k, v = (values[f"blocks.{layer}.attention.{name}"][slot].transpose(1, 2) for name in "qkv")
            pattern = (q @ k.mT / 2 + bias).masked_fill(future, -torch.inf).softmax(-1)
            found = values[f"blocks.{layer}.attention.pattern"][slot]
            torch.testing.assert_close(found, pattern, rtol=1e-12, atol=1e-12)
            expected = (pattern @ v).transpose(1, 2)
            torch.testing.assert_close(values[f"blocks.{layer}.attention.z"][slot], expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("n", [9, 40])
def test_dropout_of_attention_keeps_the_bias(n):
    """A rate too small to drop anything takes the dropout path, which computes long causal attention in two halves."""
    model, _ = make_model("gpt")
    tokens = torch.randint(11, (2, 3, n), generator=torch.Generator().manual_seed(1))
    expected = model.train()(tokens)
    for block in model.blocks:
        block.attention.dropout.configure([2**-17 + 1e-9] * 2, [1, 2], "test", torch.zeros(1, dtype=torch.int64))
        block.attention.dropout.thresholds.fill_(-(2**15))
        block.attention.dropout.scales.fill_(1.0)
    torch.testing.assert_close(model(tokens), expected, rtol=1e-11, atol=1e-11)
