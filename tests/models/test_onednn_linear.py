"""oneDNN's linear equals F.linear in value and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from seedbed.models.fast.onednn_linear import (
    HAS_ONEDNN,
    MIN_MULTIPLICATIONS,
    MIN_ROWS,
    onednn_linear,
    should_use_onednn,
)
from seedbed.settings import Settings
from seedbed.training.trainer import Trainer

onednn = pytest.mark.skipif(not HAS_ONEDNN, reason="this torch has no oneDNN")


@onednn
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shape", [(7, 83, 13), (600, 13)])
def test_value_and_gradients_equal_f_linear(shape, with_bias):
    torch.manual_seed(0)
    tensors = [torch.randn(shape), torch.randn(11, 13), torch.randn(11)][: 3 if with_bias else 2]
    single = [one.clone().requires_grad_() for one in tensors]
    double = [one.double().requires_grad_() for one in tensors]
    ours, exact = onednn_linear(*single, *[None] * (3 - len(single))), F.linear(*double)
    torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-5)
    grad = torch.randn_like(ours)
    mine, theirs = torch.autograd.grad(ours, single, grad), torch.autograd.grad(exact, double, grad.double())
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)


def test_only_large_float32_products_use_onednn():
    weight = torch.empty(MIN_MULTIPLICATIONS // MIN_ROWS // 64, 64)
    assert should_use_onednn(torch.empty(2, MIN_ROWS // 2, 64), weight) is HAS_ONEDNN
    assert not should_use_onednn(torch.empty(MIN_ROWS - 1, 64), torch.empty(9999, 64))
    assert not should_use_onednn(torch.empty(MIN_ROWS, 64), weight[1:])
    assert not should_use_onednn(torch.empty(MIN_ROWS, 64, dtype=torch.float64), weight)


@onednn
def test_training_with_and_without_onednn_agrees_to_float32_precision(monkeypatch):
    settings = Settings.from_flat({"task.p": 31, "model.layers": 1, "model.dim": 16})
    weights = []
    for available in (True, False):
        monkeypatch.setattr("seedbed.models.fast.onednn_linear.HAS_ONEDNN", available)
        trainer = Trainer([settings], [0], "cpu", torch.float32)
        for _ in range(3):
            trainer.train_step()
        weights.append(trainer.parameters.weights)
    torch.testing.assert_close(*weights, rtol=1e-4, atol=2e-5)
