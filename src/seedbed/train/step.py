"""One update of every run of a pack: draw a batch, forward, loss, backward, clip, update.

Nothing here waits for the device: a run whose numbers stop being finite is noted and frozen by tensors alone, and its
neighbours, which share no operation with it, go on untouched.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from seedbed.data.batches import ArithmeticBatches
from seedbed.models.build import build_pack
from seedbed.settings import Settings
from seedbed.train.loss import sample_losses
from seedbed.train.optim import Optimizer, clip_rows
from seedbed.train.schedule import Schedule

CAUSES = ("", "its loss is no longer finite", "its gradient is no longer finite")


class Trainer:
    """The whole state of a pack while it trains."""

    def __init__(self, settings: Sequence[Settings], seeds: Sequence[int], device: str, dtype: torch.dtype) -> None:
        where = torch.device(device)
        trains = [one.train for one in settings]
        self.step = torch.zeros(1, dtype=torch.int64, device=where)  # updates done
        self.model, self.bank = build_pack(settings, seeds, self.step, dtype)
        self.batches = ArithmeticBatches([one.task for one in settings], seeds, [t.batch_size for t in trains], where)
        self.totals = [one.n_steps() for one in settings]
        self.ends = torch.tensor(self.totals, device=where)
        self.optimizer = Optimizer(trains, self.bank.weights)
        self.schedule = Schedule(trains, self.ends)
        self.broken_at = torch.full_like(self.ends, -1)  # the update at which a run diverged
        self.cause = torch.zeros_like(self.ends)

    def advance(self) -> None:
        """One update of every run that is neither done nor diverged."""
        self.model.train()
        loss = self._losses()
        self.bank.take_gradients(loss.sum())
        norms = clip_rows(self.bank.gradients, self.optimizer.clip)
        self._note_divergence(loss.detach(), norms)
        active = (self.broken_at < 0) & (self.step < self.ends)
        self.optimizer.update(self.bank.gradients, self.schedule.factors(self.step), active)
        self.step += 1

    def _losses(self) -> Float[Tensor, "R"]:
        batch = self.batches.draw(self.step)
        losses = sample_losses(self.model(batch.inputs, batch.at), batch.targets)
        return (losses * batch.weights.to(losses.dtype)).sum(1)

    def _note_divergence(self, loss: Float[Tensor, "R"], norms: Float[Tensor, "R"]) -> None:
        cause = torch.where(loss.isfinite(), torch.where(norms.isfinite(), 0, 2), 1)
        new = (cause > 0) & (self.broken_at < 0)
        self.cause = torch.where(new, cause, self.cause)
        self.broken_at = torch.where(new, self.step, self.broken_at)

    def state(self) -> dict[str, Tensor]:
        """Everything that decides the updates to come; draws need no state, they are counted by the step."""
        own = {"step": self.step, "broken_at": self.broken_at, "cause": self.cause, "weights": self.bank.weights}
        parts = {"optimizer": self.optimizer.state(), "schedule": self.schedule.state()}
        return own | {f"{part}.{name}": held for part, state in parts.items() for name, held in state.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Goes back to a state; the weights are written in place, since the model's parameters are views of them."""
        self.step.copy_(state["step"])
        self.bank.weights.copy_(state["weights"])
        self.broken_at, self.cause = state["broken_at"], state["cause"]
        self.optimizer.restore(_part(state, "optimizer."))
        self.schedule.restore(_part(state, "schedule."))


def _part(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): held for name, held in state.items() if name.startswith(prefix)}
