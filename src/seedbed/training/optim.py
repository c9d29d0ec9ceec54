"""SGD, momentum, Adam and AdamW over a pack: every run has its own learning rate, weight decay, betas and clip norm.

All weights of a pack are one (R, P) tensor, so an update is a few operations on it. The formulas are those of
torch.optim: weight decay is added to the gradient (L2), except for AdamW, which scales the weights (Loshchilov and
Hutter, "Decoupled Weight Decay Regularization", algorithm 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seedbed.settings import TrainSettings

MAX_CHUNK_ELEMENTS = 2**17  # stays in cache between operations, which whole rows would not (docs/log.md)
N_MOMENTS = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}


def clip_scales(norms: Float[Tensor, "R"], limits: Float[Tensor, "R 1"]) -> Float[Tensor, "R 1"]:
    """Factor of each run's gradient that keeps its norm within the limit (0: no limit)."""
    return torch.where(limits > 0, (limits / (norms[:, None] + 1e-6)).clamp(max=1.0), 1.0)


def _column_chunks(n_runs: int, n: int) -> Iterator[slice]:
    """Slices of columns that are small enough to stay in a core's cache from one operation to the next."""
    width = max(1, MAX_CHUNK_ELEMENTS // n_runs)
    return (slice(start, start + width) for start in range(0, n, width))


class Optimizer:
    """One optimizer for all runs; `update_rule` (with clipping) may be replaced by a compiled or fused one."""

    def __init__(
        self,
        train_settings: Sequence[TrainSettings],
        weights: Float[Tensor, "R P"],
        decay_mask: Bool[Tensor, "P"] | None = None,
    ) -> None:
        """`decay_mask` selects the weights that decay; None: all."""

        def per_run(get: Callable[[TrainSettings], float]) -> Float[Tensor, "R 1"]:
            return torch.tensor([[get(train)] for train in train_settings], dtype=torch.float64, device=weights.device)

        self.kind = train_settings[0].optimizer
        self.update_rule = clip_and_mask(UPDATE_RULES[self.kind])
        self.weights, self.decay_mask = weights, decay_mask
        self.lr = per_run(lambda t: t.lr)
        self.weight_decay, self.eps = per_run(lambda t: t.weight_decay), per_run(lambda t: t.eps)
        self.clip = per_run(lambda t: t.clip).to(weights.dtype)
        self.momentum = per_run(lambda t: t.momentum)
        self.beta1, self.beta2 = per_run(lambda t: t.betas[0]), per_run(lambda t: t.betas[1])
        self.moments = [torch.zeros_like(weights) for _ in range(N_MOMENTS[self.kind])]
        self.n_updates = torch.zeros_like(self.lr)
        # Tensors that never change are made once: making each would be a kernel launch per update on a GPU.
        self._zero = torch.zeros_like(self.lr[0, 0])
        constants = {"decay": self.weight_decay, "momentum": self.momentum, "eps": self.eps}
        constants |= {"beta1": self.beta1, "beta2": self.beta2}
        self._constants = {name: tensor.to(weights.dtype) for name, tensor in constants.items()}
        self._constants |= {f"1-{name}": 1 - self._constants[name] for name in ("beta1", "beta2")}

    def next_hyperparameters(
        self, norms: Float[Tensor, "R"], lr_factors: Float[Tensor, "R"], active: Bool[Tensor, "R"]
    ) -> tuple[Float[Tensor, "R 1"], ...]:
        """Counts an update; returns what `step` needs: each run's clip scale and the arguments of the update rule."""
        lr = torch.where(active, lr_factors, self._zero)[:, None] * self.lr
        self.n_updates += 1
        return clip_scales(norms, self.clip), *self._rule_arguments(lr)

    def step(
        self,
        gradients: Float[Tensor, "R P"],
        active: Bool[Tensor, "R"],
        scales: Float[Tensor, "R 1"],
        *arguments: Float[Tensor, "R 1"],
    ) -> None:
        """Clips and applies the gradients of active runs; the others keep their weights, even with NaN gradients."""
        if self.decay_mask is not None:
            lr, decay, *rest = arguments
            arguments = lr, torch.where(self.decay_mask, decay, 1.0 if self.kind == "adamw" else 0.0), *rest
        if self.weights.device.type != "cpu":
            self.update_rule(self.weights, self.moments, gradients, scales, active[:, None], *arguments)
            return
        # On the CPU the check costs nothing (no synchronization), and usually nothing has to be clipped or masked.
        is_unclipped = bool((active & (scales[:, 0] == 1)).all())
        rule = UPDATE_RULES[self.kind] if is_unclipped else self.update_rule
        for columns in _column_chunks(*self.weights.shape):
            weights, chunk_gradients, *moments = [x[:, columns] for x in (self.weights, gradients, *self.moments)]
            chunk_arguments = (x if x.shape[1] == 1 else x[:, columns] for x in arguments)
            clipping = () if is_unclipped else (scales, active[:, None])
            rule(weights, moments, chunk_gradients, *clipping, *chunk_arguments)

    def _rule_arguments(self, lr: Float[Tensor, "R 1"]) -> tuple[Tensor, ...]:
        """The update rule's arguments in order, one value per run; computed in float64, then rounded."""
        constants, dtype = self._constants, self.clip.dtype
        if self.kind == "sgd":
            return lr.to(dtype), constants["decay"]
        if self.kind == "momentum":
            return lr.to(dtype), constants["decay"], constants["momentum"]
        step_size = lr / (1 - self.beta1**self.n_updates)
        bias_correction2_sqrt = (1 - self.beta2**self.n_updates).sqrt()
        decay_factor = 1 - lr * self.weight_decay
        return self.adam_arguments(step_size.to(dtype), decay_factor.to(dtype), bias_correction2_sqrt.to(dtype))

    def adam_arguments(
        self, step_size: Tensor, decay_factor: Tensor, bias_correction2_sqrt: Tensor
    ) -> tuple[Float[Tensor, "R 1"], ...]:
        """The arguments of `_adam` or `_adamw` in order; `decay_factor` is AdamW's, Adam's L2 decay is constant."""
        c = self._constants
        decay = decay_factor if self.kind == "adamw" else c["decay"]
        return step_size, decay, c["1-beta1"], c["beta2"], c["1-beta2"], bias_correction2_sqrt, c["eps"]

    def state(self) -> dict[str, Tensor]:
        return {"updates": self.n_updates} | {f"moment{i}": moment for i, moment in enumerate(self.moments)}

    def restore(self, state: dict[str, Tensor]) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


def clip_and_mask(rule: Callable[..., None]) -> Callable[..., None]:
    """The update rule with clipped gradients; those of inactive runs become zero, even where they are NaN."""

    def clipped_rule(
        w: Tensor, moments: Sequence[Tensor], g: Tensor, clip_scale: Tensor, active: Tensor, *arguments: Tensor
    ) -> None:
        rule(w, moments, torch.where(active, g * clip_scale, 0.0), *arguments)

    return clipped_rule


def _sgd(w: Tensor, _: Sequence[Tensor], g: Tensor, lr: Tensor, weight_decay: Tensor) -> None:
    w.sub_(lr * (g + weight_decay * w))


def _momentum(
    w: Tensor, moments: Sequence[Tensor], g: Tensor, lr: Tensor, weight_decay: Tensor, momentum: Tensor
) -> None:
    (velocity,) = moments
    velocity.mul_(momentum).add_(g).add_(weight_decay * w)
    w.sub_(velocity * lr)


def _adam(w: Tensor, moments: Sequence[Tensor], g: Tensor, *arguments: Tensor) -> None:
    step_size, weight_decay, *rest = arguments
    _adam_step(w, moments, g + weight_decay * w, step_size, *rest)


def _adamw(w: Tensor, moments: Sequence[Tensor], g: Tensor, *arguments: Tensor) -> None:
    step_size, decay_factor, *rest = arguments
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


UPDATE_RULES: dict[str, Callable[..., None]] = {"sgd": _sgd, "momentum": _momentum, "adam": _adam, "adamw": _adamw}
