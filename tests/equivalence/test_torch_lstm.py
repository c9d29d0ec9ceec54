"""torch's LSTM kernel and our loop over cells agree in states, final (h, c) and all gradients."""

from __future__ import annotations

import pytest
import torch

from seedbed.models.fast.fused_ops import should_use_torch_lstm
from seedbed.models.fast.modules import FastLSTMCell
from seedbed.models.hooks import NO_HOOKS, Hooks
from seedbed.models.parameters import FlatParameters

UNUSED_HOOK = Hooks("no.such.hook")  # an active hook selects the loop over cells


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("biases", [0, 1, 2])
@pytest.mark.parametrize("n_runs", [1, 3])
@pytest.mark.parametrize("with_past", [False, True])
def test_torch_lstm_equals_the_loop_over_cells(dtype, biases, n_runs, with_past):
    torch.manual_seed(1)
    cell = FastLSTMCell(5, 7, biases)
    parameters = FlatParameters(cell, n_runs, torch.device("cpu"), dtype)
    parameters.weights.normal_(std=0.5)
    x = torch.randn(n_runs, 4, 6, 5, dtype=dtype, requires_grad=True)
    past = tuple(torch.randn(n_runs, 4, 7, dtype=dtype, requires_grad=True) for _ in "hc") if with_past else None
    assert should_use_torch_lstm(x)
    sources = [x, *cell.parameters(), *(past or ())]
    results = []
    for hooks in (NO_HOOKS, UNUSED_HOOK):
        states, (h, c) = cell(x, past, hooks, "lstm.0")
        loss = states.cos().sum() + 2 * h.sin().sum() + 3 * c.sin().sum()
        results.append([states, h, c, *torch.autograd.grad(loss, sources)])
    tolerance = {"rtol": 1e-11, "atol": 1e-11} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    for kernel, loop in zip(*results, strict=True):
        torch.testing.assert_close(kernel, loop, **tolerance)


def test_a_run_in_a_pack_is_bit_identical_to_the_run_alone():
    cell, alone = FastLSTMCell(5, 7, 1), FastLSTMCell(5, 7, 1)
    parameters, own = (FlatParameters(one, n, torch.device("cpu"), torch.float32) for one, n in ((cell, 3), (alone, 1)))
    parameters.weights.normal_()
    own.weights.copy_(parameters.weights[1:2])
    x = torch.randn(3, 4, 6, 5)
    assert torch.equal(cell(x, None, NO_HOOKS, "")[0][1], alone(x[1:2], None, NO_HOOKS, "")[0][0])
