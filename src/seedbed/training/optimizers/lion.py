"""Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2), with decoupled weight decay.

    θ ← θ − η (sign(β₁ m + (1 − β₁) g) + λ θ),    m ← β₂ m + (1 − β₂) g

Every weight moves by the full learning rate, so Lion needs one that is 3 to 10 times smaller than AdamW's, and a weight
decay that is as much larger; the paper's betas are (0.9, 0.99).
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from seedbed.models.parameters import FlatParameters
from seedbed.settings import TrainSettings
from seedbed.training.optimizers.base import ElementwiseOptimizer


class Lion(ElementwiseOptimizer):
    NO_DECAY = 1.0

    def __init__(self, train_settings: Sequence[TrainSettings], parameters: FlatParameters) -> None:
        super().__init__(train_settings, parameters)
        betas = self.per_run(lambda t: t.betas[0]), self.per_run(lambda t: t.betas[1])
        self._constants = tuple((1 - beta).to(parameters.weights.dtype) for beta in betas)

    def hyperparameters(self, lr: Float[Tensor, "R 1"]) -> tuple[Float[Tensor, "R 1"], ...]:
        dtype = self.parameters.weights.dtype
        return lr.to(dtype), (1 - lr * self.weight_decay).to(dtype), *self._constants

    @staticmethod
    def update(w: Tensor, moments: Sequence[Tensor], g: Tensor, *hyperparameters: Tensor) -> None:
        lr, decay_factor, one_minus_beta1, one_minus_beta2 = hyperparameters
        (momentum,) = moments
        w.mul_(decay_factor).sub_(momentum.lerp(g, one_minus_beta1).sign_().mul_(lr))
        momentum.lerp_(g, one_minus_beta2)
