"""Large products on a CPU: the same as F.linear, in value and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from seedbed.models import products
from seedbed.models.products import MANY, MUCH, map_rows, suits
from seedbed.settings import Settings
from seedbed.train.step import Trainer

onednn = pytest.mark.skipif(not products.HAS_ONEDNN, reason="this torch has no oneDNN")


@onednn
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(7, 83, 13), (600, 13)])
def test_value_and_gradients_are_those_of_a_linear_map(shape, biased):
    torch.manual_seed(0)
    given = [torch.randn(shape), torch.randn(11, 13), torch.randn(11)][: 3 if biased else 2]
    single = [one.clone().requires_grad_() for one in given]
    double = [one.double().requires_grad_() for one in given]
    ours, exact = map_rows(*single, *[None] * (3 - len(single))), F.linear(*double)
    torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-5)
    outward = torch.randn_like(ours)
    mine, theirs = torch.autograd.grad(ours, single, outward), torch.autograd.grad(exact, double, outward.double())
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)


def test_only_large_single_precision_products_are_taken():
    weight = torch.empty(MUCH // MANY // 64, 64)
    assert suits(torch.empty(2, MANY // 2, 64), weight) is products.HAS_ONEDNN
    assert not suits(torch.empty(MANY - 1, 64), torch.empty(9999, 64))
    assert not suits(torch.empty(MANY, 64), weight[1:])
    assert not suits(torch.empty(MANY, 64, dtype=torch.float64), weight)


@onednn
def test_training_without_it_gives_the_same_to_single_precision(monkeypatch):
    settings = Settings.of({"task.p": 31, "model.layers": 1, "model.dim": 16})
    weights = []
    for there in (True, False):
        monkeypatch.setattr(products, "HAS_ONEDNN", there)
        trainer = Trainer([settings], [0], "cpu", torch.float32)
        for _ in range(3):
            trainer.advance()
        weights.append(trainer.bank.weights)
    torch.testing.assert_close(*weights, rtol=1e-4, atol=2e-5)
