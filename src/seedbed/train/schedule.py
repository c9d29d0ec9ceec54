"""Learning rates over time: one factor a run, each with its own schedule.

Warm-up grows linearly to 1 over `warmup` updates; then the factor stays, falls linearly or along a cosine to
`lr_floor` at the last update, drops by `lr_factor` every `lr_every` updates, or drops when a reading stops improving.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seedbed.settings import Train


class Schedule:
    """The state of `plateau` is kept in `best`, `waited` and `drop`; all other kinds have none."""

    def __init__(self, trains: Sequence[Train], totals: Int[Tensor, "R"]) -> None:
        device = totals.device

        def dial(value: Callable[[Train], float]) -> Float[Tensor, "R"]:
            return torch.tensor([value(train) for train in trains], dtype=torch.float64, device=device)

        self.warmup, self.floor = dial(lambda t: t.warmup), dial(lambda t: t.lr_floor)
        self.every, self.drop_factor = dial(lambda t: t.lr_every), dial(lambda t: t.lr_factor)
        self.patience, self.threshold = dial(lambda t: t.patience), dial(lambda t: t.threshold)
        self.span = (totals - self.warmup).clamp(min=1)
        self._is = {
            kind: torch.tensor([t.schedule == kind for t in trains], device=device)
            for kind in ("linear", "cosine", "step", "plateau")
        }
        self._constant = all(t.schedule == "constant" and t.warmup == 0 for t in trains)
        self.watches = [t.watch if t.schedule == "plateau" else None for t in trains]
        self.best = torch.full_like(self.floor, torch.inf)
        self.waited, self.drop = torch.zeros_like(self.floor), torch.ones_like(self.floor)

    def factors(self, step: Int[Tensor, "1"]) -> Float[Tensor, "R"]:
        """What multiplies each run's learning rate in the update after `step` updates."""
        if self._constant:
            return self.drop
        after = (step - self.warmup).clamp(min=0)
        done = (after / self.span).clamp(max=1)
        factor = torch.where(self._is["linear"], 1 + (self.floor - 1) * done, self.drop)
        cosine = self.floor + (1 - self.floor) * (1 + torch.cos(torch.pi * done)) / 2
        factor = torch.where(self._is["cosine"], cosine, factor)
        factor = torch.where(self._is["step"], self.drop_factor ** torch.floor(after / self.every), factor)
        return torch.where(step < self.warmup, (step + 1) / self.warmup.clamp(min=1), factor)

    def observe(self, reading: Float[Tensor, "R"]) -> None:
        """Shows `plateau` its reading; as torch's ReduceLROnPlateau with a relative threshold, cooldown 0."""
        better = reading < self.best * (1 - self.threshold)
        self.best.copy_(torch.where(better, reading, self.best))
        waited = torch.where(better, 0.0, self.waited + 1)
        due = self._is["plateau"] & (waited > self.patience)
        self.drop.copy_(torch.where(due, self.drop * self.drop_factor, self.drop))
        self.waited.copy_(torch.where(due, 0.0, waited))

    def state(self) -> dict[str, Tensor]:
        return {"best": self.best, "waited": self.waited, "drop": self.drop}

    def restore(self, state: dict[str, Tensor]) -> None:
        for name, held in self.state().items():
            held.copy_(state[name])
