"""SGD with momentum; weight decay is added to the gradient (L2), as in torch.optim.SGD without Nesterov's variant."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from seedbed.models.parameters import FlatParameters
from seedbed.settings import TrainSettings
from seedbed.training.optimizers.base import ElementwiseOptimizer


class Momentum(ElementwiseOptimizer):
    def __init__(self, train_settings: Sequence[TrainSettings], parameters: FlatParameters) -> None:
        super().__init__(train_settings, parameters)
        dtype = parameters.weights.dtype
        self._constants = self.weight_decay.to(dtype), self.per_run(lambda t: t.momentum).to(dtype)

    def hyperparameters(self, lr: Float[Tensor, "R 1"]) -> tuple[Float[Tensor, "R 1"], ...]:
        return lr.to(self.parameters.weights.dtype), *self._constants

    @staticmethod
    def update(w: Tensor, moments: Sequence[Tensor], g: Tensor, *hyperparameters: Tensor) -> None:
        lr, weight_decay, momentum = hyperparameters
        (velocity,) = moments
        velocity.mul_(momentum).add_(g).add_(weight_decay * w)
        w.sub_(velocity * lr)
