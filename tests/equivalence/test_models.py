"""Our models equal independent implementations in float64, and runs of a pack are independent."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from seedbed.models.build import build_model, build_pack
from seedbed.models.hooks import Hooks
from seedbed.models.model_size import count_parameters
from seedbed.settings import Settings
from tests.equivalence.reference_gpt import PlainGPT

V, T = 18, 6  # p = 13
SMALL = {"task.p": 13, "model.layers": 2, "model.dim": 12}


def make_pack(overrides, seeds=(3, 5, 8), noise=0.1):
    """Three runs in float64, with noise on the initial weights so that zeros and ones cannot hide a mistake."""
    settings = [Settings.from_flat(overrides)] * len(seeds)
    model, parameters = build_pack(settings, seeds, torch.zeros(1, dtype=torch.int64), torch.float64)
    torch.manual_seed(0)
    parameters.weights += noise * torch.randn_like(parameters.weights)
    return settings[0], model, parameters


def run_tensors(parameters, slot):
    return {name: torch.from_numpy(array) for name, array in parameters.get_arrays(slot).items()}


GPT_KINDS = [
    {},
    {"model.norm": "pre", "model.final_norm": True, "model.mlp_bias": True},
    {"model.positions": "learned", "model.tied": True},
    {"model.positions": "none", "model.tied": True, "model.output_bias": False, "model.attention_bias": False},
    {"model.position_exponent": "2k/d", "model.activation": "relu", "model.mlp_multiplier": 3, "model.heads": 3},
    {"model.layers": 1, "model.output_bias": False, "model.heads": 1},
    {"model.positions": "alibi", "model.norm": "pre", "model.qkv_bias": False, "model.mlp_bias": True},
    {"model.positions": "alibi", "model.heads": 6, "model.hidden": 7},
    {"model.positions": "rotary", "model.heads": 3, "model.attention_bias": False, "model.qkv_bias": True},
    {"model.positions": "t5", "model.norm": "pre", "model.heads": 3},
]


@pytest.mark.parametrize("overrides", GPT_KINDS)
def test_gpt_equals_the_reference(overrides):
    settings, model, parameters = make_pack(SMALL | overrides)
    tokens = torch.randint(V, (3, 4, T))
    logits = model(tokens)
    for slot in range(3):
        plain = PlainGPT(settings.model, V, T).double()
        plain.load(run_tensors(parameters, slot))
        torch.testing.assert_close(logits[slot], plain(tokens[slot]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("positions", ["none", "alibi", "rotary", "sinusoidal", "t5"])
@pytest.mark.parametrize("length", [5, 16, 17, 40])
def test_short_and_long_attention_equal_the_reference(length, positions):
    """Up to 16 positions use elementwise multiply-and-sum, longer sequences SDPA."""
    settings = Settings.from_flat(SMALL | {"model.positions": positions, "model.heads": 3})
    model, parameters = build_pack([settings] * 2, [1, 2], torch.zeros(1, dtype=torch.int64), torch.float64)
    tokens = torch.randint(V, (2, 3, length))
    for slot in range(2):
        plain = PlainGPT(settings.model, V, length).double()
        plain.load(run_tensors(parameters, slot))
        torch.testing.assert_close(model(tokens)[slot], plain(tokens[slot]), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("biases", [0, 1, 2])
def test_lstm_equals_torch_lstm(biases):
    _, model, parameters = make_pack(
        SMALL | {"model.kind": "lstm", "model.hidden": 7, "model.gate_biases": biases, "model.layers": 3}
    )
    tokens = torch.randint(V, (3, 4, T))
    logits = model(tokens)
    for slot in range(3):
        ours = run_tensors(parameters, slot)
        theirs = nn.LSTM(12, 7, 3, bias=biases > 0, batch_first=True, dtype=torch.float64)
        for i in range(3):
            getattr(theirs, f"weight_ih_l{i}").data = ours[f"cells.{i}.input.weight"]
            getattr(theirs, f"weight_hh_l{i}").data = ours[f"cells.{i}.state.weight"]
            if biases:
                getattr(theirs, f"bias_ih_l{i}").data = ours[f"cells.{i}.input.bias"]
                merged = torch.zeros(28, dtype=torch.float64)  # one bias per gate: the second one is zero
                getattr(theirs, f"bias_hh_l{i}").data = ours.get(f"cells.{i}.state.bias", merged)
        states, _ = theirs(ours["embed.weight"][tokens[slot]])
        expected = states @ ours["output.weight"].T + ours["output.bias"]
        torch.testing.assert_close(logits[slot], expected, rtol=1e-12, atol=1e-12)


ALL_KINDS = [SMALL | kind for kind in GPT_KINDS] + [
    SMALL | {"model.kind": "lstm"},
    SMALL | {"model.kind": "lstm", "model.tied": True, "model.gate_biases": 2},
    SMALL | {"model.kind": "lstm", "model.hidden": 12, "model.projection": 5},
    SMALL | {"model.kind": "gru", "model.hidden": 7},
]


@pytest.mark.parametrize("overrides", ALL_KINDS)
def test_selected_positions_have_the_same_logits(overrides):
    _, model, _ = make_pack(overrides)
    tokens = torch.randint(V, (3, 4, T))
    whole = model(tokens)
    torch.testing.assert_close(model(tokens, slice(-2, None)), whole[:, :, -2:], rtol=1e-12, atol=1e-12)
    positions = torch.randint(T, (3, 4, 2))
    picked = whole.gather(2, positions[..., None].expand(-1, -1, -1, V))
    torch.testing.assert_close(model(tokens, positions), picked, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("overrides", ALL_KINDS)
def test_the_future_never_changes_a_logit(overrides):
    _, model, _ = make_pack(overrides)
    tokens = torch.randint(V, (3, 4, T))
    changed = tokens.clone()
    changed[..., 4:] = (changed[..., 4:] + 1) % V
    assert torch.equal(model(tokens)[:, :, :4], model(changed)[:, :, :4])


@pytest.mark.parametrize("overrides", ALL_KINDS)
def test_no_run_affects_the_gradients_of_another(overrides):
    """d loss_i / d w_j is exactly 0 for i ≠ j, for every parameter."""
    _, model, parameters = make_pack(overrides)
    tokens = torch.randint(V, (3, 4, T))
    for run in range(3):
        parameters.compute_gradients(model(tokens)[run].logsumexp(-1).sum())
        for other in range(3):
            reached = parameters.gradients[other].abs().sum()
            assert (reached > 0) if other == run else (reached == 0)


def test_concatenated_gradients_equal_copied_ones():
    """With a 12 × 13 matrix and biases of 12, so that there is padding between parameters."""
    _, model, parameters = make_pack(SMALL)
    loss = model(torch.randint(V, (3, 4, T))).logsumexp(-1).sum()
    gradients = torch.autograd.grad(loss, parameters.parameters, retain_graph=True)
    copied = parameters.compute_gradients(loss).clone()
    assert copied.count_nonzero() < copied.numel()
    parameters.gradients.fill_(torch.nan)
    assert torch.equal(parameters.concatenate_gradients(gradients), copied)


@pytest.mark.parametrize("overrides", ALL_KINDS)
def test_recording_changes_nothing_and_patterns_sum_to_one(overrides):
    _, model, _ = make_pack(overrides)
    tokens = torch.randint(V, (3, 4, T))
    hooks = Hooks("*")
    torch.testing.assert_close(model(tokens, hooks=hooks), model(tokens), rtol=1e-12, atol=1e-12)
    assert torch.equal(hooks.activations["logits"], model(tokens, hooks=Hooks("*")))
    if (gates := Settings.from_flat(overrides).model.gate_hooks) is not None:
        width = overrides.get("model.hidden", 12)
        assert hooks.activations[f"{gates.layers}.1.{gates.state}"].shape == (3, 4, T, width)
    else:
        heads = overrides.get("model.heads", 4)
        pattern = hooks.activations["blocks.0.attention.pattern"]
        assert pattern.shape == (3, 4, heads, T, T)
        torch.testing.assert_close(pattern.sum(-1), torch.ones_like(pattern[..., 0]))
        assert (pattern.triu(1) == 0).all()


def test_closed_form_counts_equal_those_of_the_modules():
    switches = {
        "gpt": [
            ("model.positions", ("sinusoidal", "learned")), ("model.tied", (False, True)),
            ("model.output_bias", (True, False)), ("model.attention_bias", (True, False)),
            ("model.mlp_bias", (True, False)), ("model.final_norm", (False, True)), ("task.orders", ((2,), (2, 3))),
        ],
        "lstm": [
            ("model.gate_biases", (0, 1, 2)), ("model.output_bias", (True, False)), ("model.hidden", (None, 9)),
            ("model.layers", (1, 3)), ("model.tied", (False,)),
        ],
    }  # fmt: skip
    for kind, overrides in switches.items():
        names = [name for name, _ in overrides]
        for values in itertools.product(*(choices for _, choices in overrides)):
            settings = Settings.from_flat(
                {"task.p": 13, "model.kind": kind, "model.dim": 8} | dict(zip(names, values, strict=True))
            )
            sizes = {name: p.numel() for name, p in build_model(settings).named_parameters()}
            tables = sum(n for name, n in sizes.items() if name in ("embed.weight", "position_table.weight"))
            counted = count_parameters(settings)
            assert (counted.total, counted.non_embedding) == (sum(sizes.values()), sum(sizes.values()) - tables), (
                settings
            )
