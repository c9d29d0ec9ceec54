"""Update rules over rows: every run has its own learning rate, decay, betas and clip.

All weights of a pack are one (R, P) tensor, so an update is a few operations on it. The formulas are those of
torch.optim: weight decay is added to the gradient (L2) but for AdamW, which shrinks the weights (Loshchilov and
Hutter, "Decoupled Weight Decay Regularization", algorithm 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seedbed.settings import TrainSettings

MAX_CHUNK_ELEMENTS = 2**17  # numbers of a tensor; operations on whole rows would each fetch them anew (docs/log.md)
N_MOMENTS = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}


def clip_scales(norms: Float[Tensor, "R"], limits: Float[Tensor, "R 1"]) -> Float[Tensor, "R 1"]:
    """What multiplies each run's gradient so that its norm stays within its limit (0: no limit)."""
    return torch.where(limits > 0, (limits / (norms[:, None] + 1e-6)).clamp(max=1.0), 1.0)


def _column_chunks(n_runs: int, n: int) -> Iterator[slice]:
    """Columns that are updated together: as many as stay in a core's cache from one operation to the next."""
    width = max(1, MAX_CHUNK_ELEMENTS // n_runs)
    return (slice(start, start + width) for start in range(0, n, width))


class Optimizer:
    """`rule` is the arithmetic on whole rows, clipping included; it may be replaced by a compiled one."""

    def __init__(
        self,
        train_settings: Sequence[TrainSettings],
        weights: Float[Tensor, "R P"],
        decay_mask: Bool[Tensor, "P"] | None = None,
    ) -> None:
        """`decayed` tells which weights decay; None: all."""

        def dial(value: Callable[[TrainSettings], float]) -> Float[Tensor, "R 1"]:
            return torch.tensor(
                [[value(train)] for train in train_settings], dtype=torch.float64, device=weights.device
            )

        self.kind = train_settings[0].optimizer
        self.update_rule = clip_and_mask(UPDATE_RULES[self.kind])
        self.weights, self.decay_mask = weights, decay_mask
        self.lr = dial(lambda t: t.lr)
        self.weight_decay, self.eps = dial(lambda t: t.weight_decay), dial(lambda t: t.eps)
        self.clip = dial(lambda t: t.clip).to(weights.dtype)
        self.momentum = dial(lambda t: t.momentum)
        self.beta1, self.beta2 = dial(lambda t: t.betas[0]), dial(lambda t: t.betas[1])
        self.moments = [torch.zeros_like(weights) for _ in range(N_MOMENTS[self.kind])]
        self.n_updates = torch.zeros_like(self.lr)
        self._zero = torch.zeros_like(self.lr[0, 0])  # numbers that never change, made once: each is a kernel on a GPU
        dials = {"decay": self.weight_decay, "momentum": self.momentum, "eps": self.eps}
        dials |= {"beta1": self.beta1, "beta2": self.beta2}
        self._constants = {name: held.to(weights.dtype) for name, held in dials.items()}
        self._constants |= {f"1-{name}": 1 - self._constants[name] for name in ("beta1", "beta2")}

    def next_hyperparameters(
        self, norms: Float[Tensor, "R"], lr_factors: Float[Tensor, "R"], active: Bool[Tensor, "R"]
    ) -> tuple[Float[Tensor, "R 1"], ...]:
        """What the next `move` needs of each run: the scale of its gradient, and its numbers in the rule."""
        rate = torch.where(active, lr_factors, self._zero)[:, None] * self.lr
        self.n_updates += 1
        return clip_scales(norms, self.clip), *self._rule_arguments(rate)

    def step(
        self,
        gradients: Float[Tensor, "R P"],
        active: Bool[Tensor, "R"],
        scales: Float[Tensor, "R 1"],
        *numbers: Float[Tensor, "R 1"],
    ) -> None:
        """Clips and moves the active rows; the others stay as they are, whatever their gradients hold."""
        if self.decay_mask is not None:
            size, decay, *rest = numbers
            numbers = size, torch.where(self.decay_mask, decay, 1.0 if self.kind == "adamw" else 0.0), *rest
        if self.weights.device.type != "cpu":
            self.update_rule(self.weights, self.moments, gradients, scales, active[:, None], *numbers)
            return
        as_they_are = bool((active & (scales[:, 0] == 1)).all())  # a look that costs nothing here
        rule = UPDATE_RULES[self.kind] if as_they_are else self.update_rule
        for some in _column_chunks(*self.weights.shape):
            rows = [x[:, some] for x in (self.weights, gradients, *self.moments)]
            own = (x if x.shape[1] == 1 else x[:, some] for x in numbers)
            limits = () if as_they_are else (scales, active[:, None])
            rule(rows[0], rows[2:], rows[1], *limits, *own)

    def _rule_arguments(self, lr: Float[Tensor, "R 1"]) -> tuple[Tensor, ...]:
        """One number a run for each place in the rule; worked out in double precision, and only here."""
        fixed, dtype = self._constants, self.clip.dtype
        if self.kind == "sgd":
            return lr.to(dtype), fixed["decay"]
        if self.kind == "momentum":
            return lr.to(dtype), fixed["decay"], fixed["momentum"]
        size = lr / (1 - self.beta1**self.n_updates)
        root = (1 - self.beta2**self.n_updates).sqrt()
        return self.adam_arguments(size.to(dtype), (1 - lr * self.weight_decay).to(dtype), root.to(dtype))

    def adam_arguments(
        self, step_size: Tensor, decay_factor: Tensor, bias_correction2_sqrt: Tensor
    ) -> tuple[Float[Tensor, "R 1"], ...]:
        """All that Adam's rules take, in their order, of which only these change; Adam's decay does not shrink."""
        fixed = self._constants
        decay = decay_factor if self.kind == "adamw" else fixed["decay"]
        return step_size, decay, fixed["1-beta1"], fixed["beta2"], fixed["1-beta2"], bias_correction2_sqrt, fixed["eps"]

    def state(self) -> dict[str, Tensor]:
        return {"updates": self.n_updates} | {f"moment{i}": moment for i, moment in enumerate(self.moments)}

    def restore(self, state: dict[str, Tensor]) -> None:
        for name, held in self.state().items():
            held.copy_(state[name])


def clip_and_mask(rule: Callable[..., None]) -> Callable[..., None]:
    """A rule with clipped gradients, and none where a run is not active: whatever they hold, NaN too."""

    def limited(w: Tensor, moments: Sequence[Tensor], g: Tensor, scale: Tensor, on: Tensor, *numbers: Tensor) -> None:
        rule(w, moments, torch.where(on, g * scale, 0.0), *numbers)

    return limited


def _sgd(w: Tensor, _: Sequence[Tensor], g: Tensor, rate: Tensor, decay: Tensor) -> None:
    w.sub_(rate * (g + decay * w))


def _momentum(w: Tensor, moments: Sequence[Tensor], g: Tensor, rate: Tensor, decay: Tensor, keep: Tensor) -> None:
    (velocity,) = moments
    velocity.mul_(keep).add_(g).add_(decay * w)
    w.sub_(velocity * rate)


def _adam(w: Tensor, moments: Sequence[Tensor], g: Tensor, *numbers: Tensor) -> None:
    size, decay, *rest = numbers
    _adam_step(w, moments, g + decay * w, size, *rest)


def _adamw(w: Tensor, moments: Sequence[Tensor], g: Tensor, *numbers: Tensor) -> None:
    size, shrink, *rest = numbers
    w.mul_(shrink)
    _adam_step(w, moments, g, size, *rest)


def _adam_step(
    w: Tensor,
    moments: Sequence[Tensor],
    g: Tensor,
    size: Tensor,
    new1: Tensor,
    keep2: Tensor,
    new2: Tensor,
    root: Tensor,
    eps: Tensor,
) -> None:
    first, second = moments
    first.lerp_(g, new1)
    second.mul_(keep2).add_(g.square().mul_(new2))
    w.sub_((first * size).div_(second.sqrt().div_(root).add_(eps)))


UPDATE_RULES: dict[str, Callable[..., None]] = {"sgd": _sgd, "momentum": _momentum, "adam": _adam, "adamw": _adamw}
