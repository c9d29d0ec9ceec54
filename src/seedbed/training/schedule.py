"""Learning-rate schedules: one factor per run, each with its own schedule.

Warm-up grows linearly to 1 over `warmup` updates. Then the factor stays constant, decays linearly or along a cosine to
`lr_floor` at the last update, is multiplied by `lr_factor` every `lr_every` updates, or whenever a metric plateaus.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seedbed.models.bitwise import power
from seedbed.settings import TrainSettings


class Schedule:
    """Learning-rate factors of all runs; only the plateau schedule has state, the others depend on the step alone."""

    def __init__(self, train_settings: Sequence[TrainSettings], n_steps: Int[Tensor, "R"]) -> None:
        device = n_steps.device

        def per_run(value: Callable[[TrainSettings], float]) -> Float[Tensor, "R"]:
            return torch.tensor([value(train) for train in train_settings], dtype=torch.float64, device=device)

        self.warmup_steps, self.lr_floor = per_run(lambda t: t.warmup), per_run(lambda t: t.lr_floor)
        self.drop_every, self.drop_factor = per_run(lambda t: t.lr_every), per_run(lambda t: t.lr_factor)
        self.patience, self.threshold = per_run(lambda t: t.patience), per_run(lambda t: t.threshold)
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
        """Each run's learning-rate factor for the update that follows `step` updates."""
        if self._is_constant:
            return self.plateau_factor
        n_decayed = (step - self.warmup_steps).clamp(min=0)
        progress = (n_decayed / self.decay_steps).clamp(max=1)
        factor = torch.where(self._kind_masks["linear"], 1 + (self.lr_floor - 1) * progress, self.plateau_factor)
        cosine = self.lr_floor + (1 - self.lr_floor) * (1 + torch.cos(torch.pi * progress)) / 2
        factor = torch.where(self._kind_masks["cosine"], cosine, factor)
        stepped = power(self.drop_factor[:, None], torch.floor(n_decayed / self.drop_every)[:, None])[:, 0]
        factor = torch.where(self._kind_masks["step"], stepped, factor)
        return torch.where(step < self.warmup_steps, (step + 1) / self.warmup_steps.clamp(min=1), factor)

    def update_plateau(self, metric: Float[Tensor, "R"]) -> None:
        """One step of torch's ReduceLROnPlateau with a relative threshold and no cooldown.

        NaN before the first value does not count: there is no running loss before the first update.
        """
        improved = metric < self.best * (1 - self.threshold)
        has_begun = ~metric.isnan() | (self.best < torch.inf)
        self.best.copy_(torch.where(improved, metric, self.best))
        n_bad = torch.where(improved, 0.0, self.n_bad_evaluations + has_begun)
        due = self._kind_masks["plateau"] & (n_bad > self.patience)
        self.plateau_factor.copy_(torch.where(due, self.plateau_factor * self.drop_factor, self.plateau_factor))
        self.n_bad_evaluations.copy_(torch.where(due, 0.0, n_bad))

    def state(self) -> dict[str, Tensor]:
        return {"best": self.best, "waited": self.n_bad_evaluations, "drop": self.plateau_factor}

    def restore(self, state: dict[str, Tensor]) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
