"""Every optimizer keeps the contract and equals torch's own in float64, or a few lines written by hand."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn, optim

from seedbed.models.parameters import Param
from seedbed.settings import OPTIMIZERS, TrainSettings
from tests.contracts.optimizer import OptimizerContract, Reference

BETAS = ({"betas": (0.9, 0.999)}, {"betas": (0.8, 0.95), "eps": 1e-3}, {"betas": (0.0, 0.9)})


class TestSGD(OptimizerContract):
    kind = "sgd"

    def reference(self, train: TrainSettings, weights: dict[str, nn.Parameter], params: Sequence[Param]) -> Reference:
        return optim.SGD(weights.values(), lr=train.lr, weight_decay=train.weight_decay).step


class TestMomentum(OptimizerContract):
    kind = "momentum"
    own_settings = ({"momentum": 0.0}, {"momentum": 0.3}, {"momentum": 0.9})

    def reference(self, train: TrainSettings, weights: dict[str, nn.Parameter], params: Sequence[Param]) -> Reference:
        return optim.SGD(weights.values(), train.lr, train.momentum, weight_decay=train.weight_decay).step


class TestAdam(OptimizerContract):
    kind = "adam"
    own_settings = BETAS

    def reference(self, train: TrainSettings, weights: dict[str, nn.Parameter], params: Sequence[Param]) -> Reference:
        return optim.Adam(weights.values(), train.lr, train.betas, train.eps, train.weight_decay).step


class TestAdamW(OptimizerContract):
    kind = "adamw"
    own_settings = BETAS

    def reference(self, train: TrainSettings, weights: dict[str, nn.Parameter], params: Sequence[Param]) -> Reference:
        return optim.AdamW(weights.values(), train.lr, train.betas, train.eps, train.weight_decay).step


class TestLion(OptimizerContract):
    """By hand, line by line as in algorithm 2 of Chen et al. 2023."""

    kind = "lion"
    own_settings = ({"betas": (0.9, 0.99)}, {"betas": (0.8, 0.95)}, {"betas": (0.0, 0.9)})

    def reference(self, train: TrainSettings, weights: dict[str, nn.Parameter], params: Sequence[Param]) -> Reference:
        beta1, beta2 = train.betas
        momentum = {name: weight.detach() * 0 for name, weight in weights.items()}

        def step() -> None:
            for name, theta in weights.items():
                g = theta.grad
                c = beta1 * momentum[name] + (1 - beta1) * g
                theta.data -= train.lr * (c.sign() + train.weight_decay * theta.data)
                momentum[name] = beta2 * momentum[name] + (1 - beta2) * g

        return step


def test_every_optimizer_has_a_contract_test() -> None:
    """Plugins of other tests are not in the package."""
    tested = {one.kind for one in OptimizerContract.__subclasses__()}
    assert {kind for kind, info in OPTIMIZERS.items() if info.implementation.startswith("seedbed.")} == tested
