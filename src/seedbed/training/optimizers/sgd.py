"""Stochastic gradient descent; weight decay is added to the gradient (L2), as in torch.optim.SGD."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from seedbed.models.parameters import FlatParameters
from seedbed.settings import TrainSettings
from seedbed.training.optimizers.base import ElementwiseOptimizer


class SGD(ElementwiseOptimizer):
    def __init__(self, train_settings: Sequence[TrainSettings], parameters: FlatParameters) -> None:
        super().__init__(train_settings, parameters)
        self._l2_decay = self.weight_decay.to(parameters.weights.dtype)

    def hyperparameters(self, lr: Float[Tensor, "R 1"]) -> tuple[Float[Tensor, "R 1"], ...]:
        return lr.to(self.parameters.weights.dtype), self._l2_decay

    @staticmethod
    def update(w: Tensor, moments: Sequence[Tensor], g: Tensor, *hyperparameters: Tensor) -> None:
        lr, weight_decay = hyperparameters
        w.sub_(lr * (g + weight_decay * w))
