"""The handwritten backward pass of the LSTM recurrence equals autograd's."""

from __future__ import annotations

import torch
from torch import Tensor

from seedbed.models.fast.lstm_recurrence import run_lstm_recurrence


def random_tensor(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def reference_recurrence(
    input_gates: Tensor, weight: Tensor, h: Tensor, c: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    states = []
    for gates in input_gates.unbind(2):
        i, f, g, o = (gates + h @ weight.mT).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    return torch.stack(states, dim=2), (h, c)


def test_recurrence_has_the_states_and_gradients_of_a_loop_over_cells():
    torch.manual_seed(1)
    inputs = random_tensor(3, 4, 5, 24), random_tensor(3, 24, 6), random_tensor(3, 4, 6), random_tensor(3, 4, 6)
    output_weights = [torch.randn(3, 4, 5, 6), torch.randn(3, 4, 6), torch.randn(3, 4, 6)]
    results = []
    for recurrence in (run_lstm_recurrence, reference_recurrence):
        states, (h, c) = recurrence(*inputs)
        outputs = [states, h, c]
        loss = sum((x * weight).sum() for x, weight in zip(outputs, output_weights, strict=True))
        results.append([*outputs, *torch.autograd.grad(loss, inputs)])
    for ours, theirs in zip(*results, strict=True):
        assert (ours - theirs).abs().max() < 1e-12


def test_recurrence_over_one_position_passes_gradcheck():
    inputs = random_tensor(2, 3, 1, 8), random_tensor(2, 8, 2), random_tensor(2, 3, 2), random_tensor(2, 3, 2)
    assert torch.autograd.gradcheck(lambda *x: run_lstm_recurrence(*x)[0], inputs)


def test_matmuls_in_bfloat16_keep_states_and_gradients_close():
    torch.manual_seed(2)
    inputs = [
        random_tensor(2, 3, 6, 16).detach().float(),
        random_tensor(2, 16, 4).detach().float(),
        *random_tensor(2, 2, 3, 4).detach().float(),
    ]
    inputs = [x.requires_grad_() for x in inputs]
    exact = reference_recurrence(*(x.double() for x in inputs))[0]
    results = run_lstm_recurrence(inputs[0], inputs[1].to(torch.bfloat16), *inputs[2:])[0]
    assert results.dtype == torch.float32
    grads = [torch.autograd.grad(states.square().sum(), inputs) for states in (results, exact)]
    assert 0 < (results - exact).norm() / exact.norm() < 1e-2
    for ours, theirs in zip(*grads, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() / theirs.norm() < 2e-2
