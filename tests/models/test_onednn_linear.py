"""oneDNN's linear layers equal F.linear of each run in value and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from seedbed.models.fast.linear import (
    HAS_ONEDNN,
    MIN_ONEDNN_MULTIPLICATIONS,
    MIN_ONEDNN_ROWS,
    onednn_linear,
    should_use_onednn,
)
from seedbed.settings import Settings
from seedbed.training.trainer import Trainer

onednn = pytest.mark.skipif(not HAS_ONEDNN, reason="this torch has no oneDNN")


@onednn
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(("n_runs", "n_rows"), [(1, 581), (3, 600)])
def test_value_and_gradients_equal_f_linear(n_runs, n_rows, with_bias):
    torch.manual_seed(0)
    shapes = [(n_runs, n_rows, 13), (n_runs, 11, 13), (n_runs, 11)][: 3 if with_bias else 2]
    single = [torch.randn(shape).requires_grad_() for shape in shapes]
    ours = onednn_linear(*single, *[None] * (3 - len(single)))
    grad = torch.randn_like(ours)
    mine = torch.autograd.grad(ours, single, grad)
    for run in range(n_runs):
        double = [one[run].detach().double().requires_grad_() for one in single]
        exact = F.linear(*double)
        torch.testing.assert_close(ours[run].double(), exact, rtol=1e-5, atol=1e-5)
        theirs = torch.autograd.grad(exact, double, grad[run].double())
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a[run].double(), b, rtol=1e-4, atol=1e-4)


def test_only_large_float32_products_of_one_run_use_onednn():
    weight = torch.empty(1, MIN_ONEDNN_MULTIPLICATIONS // MIN_ONEDNN_ROWS // 64, 64)
    assert should_use_onednn(torch.empty(1, MIN_ONEDNN_ROWS, 64), weight) is HAS_ONEDNN
    assert should_use_onednn(torch.empty(5, MIN_ONEDNN_ROWS, 64), weight.expand(5, -1, -1)) is HAS_ONEDNN
    assert not should_use_onednn(torch.empty(2, MIN_ONEDNN_ROWS // 2, 64), weight.expand(2, -1, -1))
    assert not should_use_onednn(torch.empty(1, MIN_ONEDNN_ROWS - 1, 64), torch.empty(1, 9999, 64))
    assert not should_use_onednn(torch.empty(1, MIN_ONEDNN_ROWS, 64), weight[:, 1:])
    assert not should_use_onednn(torch.empty(1, MIN_ONEDNN_ROWS, 64, dtype=torch.float64), weight)


@onednn
def test_training_with_and_without_onednn_agrees_to_float32_precision(monkeypatch):
    settings = Settings.from_flat({"task.p": 31, "model.layers": 1, "model.dim": 16})
    weights = []
    for available in (True, False):
        monkeypatch.setattr("seedbed.models.fast.linear.HAS_ONEDNN", available)
        trainer = Trainer([settings], [0], "cpu", torch.float32)
        for _ in range(3):
            trainer.train_step()
        weights.append(trainer.parameters.weights)
    torch.testing.assert_close(*weights, rtol=1e-4, atol=2e-5)
