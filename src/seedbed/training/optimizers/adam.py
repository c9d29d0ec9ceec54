"""Adam and AdamW, as in torch.optim: Adam adds weight decay to the gradient (L2), AdamW scales the weights by it
(Loshchilov and Hutter, "Decoupled Weight Decay Regularization", algorithm 2).

On a GPU `fused_adam` does the same in two kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from seedbed.models.bitwise import power
from seedbed.models.layers import HAS_TRITON
from seedbed.models.parameters import FlatParameters
from seedbed.settings import TrainSettings
from seedbed.training.optimizers.base import ActiveAndHyperparameters, ElementwiseOptimizer

if TYPE_CHECKING:
    from seedbed.training.trainer import Trainer


class Adam(ElementwiseOptimizer):
    is_decoupled: ClassVar[bool] = False

    def __init__(
        self,
        train_settings: Sequence[TrainSettings],
        parameters: FlatParameters,
        columns: Sequence[slice] | None = None,
    ) -> None:
        super().__init__(train_settings, parameters, columns)
        dtype = parameters.weights.dtype
        self.beta1, self.beta2 = self.per_run(lambda t: t.betas[0]), self.per_run(lambda t: t.betas[1])
        # Rounded once: each conversion would be a kernel launch per update on a GPU.
        beta1, beta2, eps = (x.to(dtype) for x in (self.beta1, self.beta2, self.per_run(lambda t: t.eps)))
        self._constants = 1 - beta1, beta2, 1 - beta2, eps
        self._l2_decay = self.weight_decay.to(dtype)

    def hyperparameters(self, lr: Float[Tensor, "R 1"]) -> tuple[Float[Tensor, "R 1"], ...]:
        dtype = self.parameters.weights.dtype
        step_size = lr / (1 - power(self.beta1, self.n_updates))
        bias_correction2_sqrt = (1 - power(self.beta2, self.n_updates)).sqrt()
        decay_factor = 1 - lr * self.weight_decay
        return self.arrange(step_size.to(dtype), decay_factor.to(dtype), bias_correction2_sqrt.to(dtype))

    def arrange(
        self, step_size: Tensor, decay_factor: Tensor, bias_correction2_sqrt: Tensor
    ) -> tuple[Float[Tensor, "R 1"], ...]:
        """The arguments of `update` in order; `decay_factor` is AdamW's, Adam's L2 decay is constant."""
        one_minus_beta1, beta2, one_minus_beta2, eps = self._constants
        decay = decay_factor if self.is_decoupled else self._l2_decay
        return step_size, decay, one_minus_beta1, beta2, one_minus_beta2, bias_correction2_sqrt, eps

    @staticmethod
    def update(w: Tensor, moments: Sequence[Tensor], g: Tensor, *hyperparameters: Tensor) -> None:
        step_size, weight_decay, *rest = hyperparameters
        _adam_step(w, moments, g + weight_decay * w, step_size, *rest)

    def fuse(self) -> Callable[[Trainer, Tensor, Tensor], ActiveAndHyperparameters] | None:
        """Float32 on a GPU, with weight decay on all weights."""
        weights = self.parameters.weights
        if not (HAS_TRITON and weights.is_cuda and weights.dtype == torch.float32 and self.decay_mask is None):
            return None
        from seedbed.training import fused_adam

        self.clipped_update = partial(fused_adam.fused_adam_step, decoupled=self.is_decoupled)
        return fused_adam.active_and_lr


class AdamW(Adam):
    NO_DECAY = 1.0
    is_decoupled = True

    @staticmethod
    def update(w: Tensor, moments: Sequence[Tensor], g: Tensor, *hyperparameters: Tensor) -> None:
        step_size, decay_factor, *rest = hyperparameters
        w.mul_(decay_factor)
        _adam_step(w, moments, g, step_size, *rest)


def _adam_step(
    w: Tensor,
    moments: Sequence[Tensor],
    g: Tensor,
    step_size: Tensor,
    one_minus_beta1: Tensor,
    beta2: Tensor,
    one_minus_beta2: Tensor,
    bias_correction2_sqrt: Tensor,
    eps: Tensor,
) -> None:
    exp_avg, exp_avg_sq = moments
    exp_avg.lerp_(g, one_minus_beta1)
    exp_avg_sq.mul_(beta2).add_(g.square().mul_(one_minus_beta2))
    w.sub_((exp_avg * step_size).div_(exp_avg_sq.sqrt().div_(bias_correction2_sqrt).add_(eps)))
