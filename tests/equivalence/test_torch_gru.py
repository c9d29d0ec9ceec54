"""Our GRU equals torch.nn.GRU in float64: logits and all gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.equivalence.test_models import SMALL, T, V, make_pack, run_tensors

PARAMETERS = {
    "input.weight": "weight_ih",
    "state.weight": "weight_hh",
    "input.bias": "bias_ih",
    "state.bias": "bias_hh",
}


@pytest.mark.parametrize("biases", [0, 1, 2])
def test_gru_equals_torch_gru(biases):
    _, model, parameters = make_pack(
        SMALL | {"model.kind": "gru", "model.hidden": 7, "model.gate_biases": biases, "model.layers": 3}
    )
    tokens = torch.randint(V, (3, 4, T))
    logits = model(tokens)
    gradients = dict(
        zip(parameters.shapes, torch.autograd.grad(logits.cos().sum(), parameters.parameters), strict=True)
    )
    for slot in range(3):
        ours = {name: tensor.requires_grad_() for name, tensor in run_tensors(parameters, slot).items()}
        theirs = nn.GRU(12, 7, 3, bias=biases > 0, batch_first=True, dtype=torch.float64)
        replaced = {}
        for i in range(3):
            for our_name, their_name in PARAMETERS.items():
                if biases or "weight" in our_name:
                    zeros = torch.zeros(21, dtype=torch.float64)  # one bias per gate: the second one is zero
                    replaced[f"{their_name}_l{i}"] = ours.get(f"cells.{i}.{our_name}", zeros)
        states, _ = torch.func.functional_call(theirs, replaced, (ours["embed.weight"][tokens[slot]],))
        expected = states @ ours["output.weight"].T + ours["output.bias"]
        torch.testing.assert_close(logits[slot], expected, rtol=1e-12, atol=1e-12)
        expected_gradients = torch.autograd.grad(expected.cos().sum(), list(ours.values()))
        for name, gradient in zip(ours, expected_gradients, strict=True):
            torch.testing.assert_close(gradients[name][slot], gradient, rtol=1e-10, atol=1e-11, msg=name)
