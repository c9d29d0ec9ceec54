"""Update rules over rows: every run has its own learning rate, decay, betas and clip.

All weights of a pack are one (R, P) tensor, so an update is a few operations on it. The formulas are those of
torch.optim: weight decay is added to the gradient (L2) but for AdamW, which shrinks the weights (Loshchilov and
Hutter, "Decoupled Weight Decay Regularization", algorithm 2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seedbed.settings import Train

N_MOMENTS = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}


def clip_rows(gradients: Float[Tensor, "R P"], limits: Float[Tensor, "R 1"]) -> Float[Tensor, "R"]:
    """Scales each row down to its limit (0: no limit), in place; gives the norms from before."""
    norms = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
    scale = (limits / (norms + 1e-6)).clamp(max=1.0)
    gradients.mul_(torch.where(limits > 0, scale, 1.0))
    return norms[:, 0]


class Optimizer:
    def __init__(self, trains: Sequence[Train], weights: Float[Tensor, "R P"]) -> None:
        def dial(value: Callable[[Train], float], dtype: torch.dtype = weights.dtype) -> Float[Tensor, "R 1"]:
            return torch.tensor([[value(train)] for train in trains], dtype=dtype, device=weights.device)

        self.kind = trains[0].optimizer
        self.weights = weights
        self.lr = dial(lambda t: t.lr, torch.float64)
        self.decay, self.clip, self.eps = dial(lambda t: t.weight_decay), dial(lambda t: t.clip), dial(lambda t: t.eps)
        self.momentum = dial(lambda t: t.momentum)
        self.beta1, self.beta2 = dial(lambda t: t.betas[0], torch.float64), dial(lambda t: t.betas[1], torch.float64)
        self._keep1, self._keep2 = self.beta1.to(weights.dtype), self.beta2.to(weights.dtype)
        self.moments = [torch.zeros_like(weights) for _ in range(N_MOMENTS[self.kind])]
        self.updates = torch.zeros_like(self.lr)

    def update(self, gradients: Float[Tensor, "R P"], factors: Float[Tensor, "R"], active: Bool[Tensor, "R"]) -> None:
        """Moves the active rows; the others stay as they are, whatever their gradients hold."""
        gradients = torch.where(active[:, None], gradients, 0.0)
        rate = torch.where(active, factors, 0.0)[:, None] * self.lr
        self.updates += 1
        rule = {"sgd": self._sgd, "momentum": self._momentum, "adam": self._adam, "adamw": self._adamw}[self.kind]
        rule(gradients, rate)

    def _sgd(self, gradients: Tensor, rate: Tensor) -> None:
        self.weights.sub_((gradients + self.decay * self.weights).mul_(rate.to(gradients.dtype)))

    def _momentum(self, gradients: Tensor, rate: Tensor) -> None:
        (velocity,) = self.moments
        velocity.mul_(self.momentum).add_(gradients).add_(self.decay * self.weights)
        self.weights.sub_(velocity * rate.to(gradients.dtype))

    def _adam(self, gradients: Tensor, rate: Tensor) -> None:
        self._adam_step(gradients + self.decay * self.weights, rate)

    def _adamw(self, gradients: Tensor, rate: Tensor) -> None:
        self.weights.mul_((1 - rate * self.decay).to(gradients.dtype))
        self._adam_step(gradients, rate)

    def _adam_step(self, gradients: Tensor, rate: Tensor) -> None:
        first, second = self.moments
        first.lerp_(gradients, 1 - self._keep1)
        second.mul_(self._keep2).add_(gradients.square().mul_(1 - self._keep2))
        size = (rate / (1 - self.beta1**self.updates)).to(gradients.dtype)
        root = (1 - self.beta2**self.updates).sqrt().to(gradients.dtype)
        self.weights.sub_((first * size).div_(second.sqrt().div_(root).add_(self.eps)))

    def state(self) -> dict[str, Tensor]:
        return {"updates": self.updates} | {f"moment{i}": moment for i, moment in enumerate(self.moments)}

    def restore(self, state: dict[str, Tensor]) -> None:
        for name, held in self.state().items():
            held.copy_(state[name])
