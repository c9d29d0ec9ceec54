"""Learning rates over time: one factor a run, each with its own schedule.

Warm-up grows linearly to 1 over `warmup` updates; then the factor stays, falls linearly or along a cosine to
`lr_floor` at the last update, drops by `lr_factor` every `lr_every` updates, or drops when a reading stops improving.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seedbed.settings import TrainSettings


class Schedule:
    """The state of `plateau` is kept in `best`, `waited` and `drop`; all other kinds have none."""

    def __init__(self, train_settings: Sequence[TrainSettings], n_steps: Int[Tensor, "R"]) -> None:
        device = n_steps.device

        def dial(value: Callable[[TrainSettings], float]) -> Float[Tensor, "R"]:
            return torch.tensor([value(train) for train in train_settings], dtype=torch.float64, device=device)

        self.warmup_steps, self.lr_floor = dial(lambda t: t.warmup), dial(lambda t: t.lr_floor)
        self.drop_every, self.drop_factor = dial(lambda t: t.lr_every), dial(lambda t: t.lr_factor)
        self.patience, self.threshold = dial(lambda t: t.patience), dial(lambda t: t.threshold)
        self.decay_steps = (n_steps - self.warmup_steps).clamp(min=1)
        self._kind_masks = {
            kind: torch.tensor([t.schedule == kind for t in train_settings], device=device)
            for kind in ("linear", "cosine", "step", "plateau")
        }
        self._is_constant = all(t.schedule == "constant" and t.warmup == 0 for t in train_settings)
        self.plateau_metrics = [t.plateau_metric if t.schedule == "plateau" else None for t in train_settings]
        self.best = torch.full_like(self.lr_floor, torch.inf)
        self.n_bad_evaluations, self.plateau_factor = torch.zeros_like(self.lr_floor), torch.ones_like(self.lr_floor)

    def lr_factors(self, step: Int[Tensor, "1"]) -> Float[Tensor, "R"]:
        """What multiplies each run's learning rate in the update after `step` updates."""
        if self._is_constant:
            return self.plateau_factor
        after = (step - self.warmup_steps).clamp(min=0)
        done = (after / self.decay_steps).clamp(max=1)
        factor = torch.where(self._kind_masks["linear"], 1 + (self.lr_floor - 1) * done, self.plateau_factor)
        cosine = self.lr_floor + (1 - self.lr_floor) * (1 + torch.cos(torch.pi * done)) / 2
        factor = torch.where(self._kind_masks["cosine"], cosine, factor)
        factor = torch.where(self._kind_masks["step"], self.drop_factor ** torch.floor(after / self.drop_every), factor)
        return torch.where(step < self.warmup_steps, (step + 1) / self.warmup_steps.clamp(min=1), factor)

    def update_plateau(self, metric: Float[Tensor, "R"]) -> None:
        """Shows `plateau` its reading; as torch's ReduceLROnPlateau with a relative threshold, cooldown 0."""
        better = metric < self.best * (1 - self.threshold)
        self.best.copy_(torch.where(better, metric, self.best))
        waited = torch.where(better, 0.0, self.n_bad_evaluations + 1)
        due = self._kind_masks["plateau"] & (waited > self.patience)
        self.plateau_factor.copy_(torch.where(due, self.plateau_factor * self.drop_factor, self.plateau_factor))
        self.n_bad_evaluations.copy_(torch.where(due, 0.0, waited))

    def state(self) -> dict[str, Tensor]:
        return {"best": self.best, "waited": self.n_bad_evaluations, "drop": self.plateau_factor}

    def restore(self, state: dict[str, Tensor]) -> None:
        for name, held in self.state().items():
            held.copy_(state[name])
