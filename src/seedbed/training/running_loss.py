"""The running training loss: each run's mean loss over its updates since it was last evaluated, in float64.

Weights change between those updates and dropout is on, so it is not the loss of any one model; but it needs no pass
over the training set. Runs of a pack that end early are evaluated by themselves, so each run has its own count.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seedbed.settings import RUNNING_LOSS


class RunningLoss:
    """Sums and counts of the losses of a pack's updates; NaN for a run without an update since it was evaluated."""

    def __init__(self, n_runs: int, device: torch.device, *, has_perplexity: bool) -> None:
        self._sums = torch.zeros(n_runs, dtype=torch.float64, device=device)
        self._counts = torch.zeros_like(self._sums)
        self._has_perplexity = has_perplexity

    def add(self, losses: Float[Tensor, "R"], active: Bool[Tensor, "R"]) -> None:
        """Counts one update of the active runs; a loss that made a run diverge is not one."""
        self._sums += torch.where(active, losses, 0.0)
        self._counts += active

    def metrics(self) -> dict[str, Float[Tensor, "R"]]:
        """The mean loss of every run and, for text, its perplexity."""
        loss = self._sums / self._counts
        return {RUNNING_LOSS: loss} | ({"train/running_perplexity": loss.exp()} if self._has_perplexity else {})

    def reset(self, slots: Sequence[int]) -> None:
        """Starts again after an evaluation of these runs."""
        index = torch.tensor(slots, device=self._sums.device)
        self._sums[index] = self._counts[index] = 0.0

    def state(self) -> dict[str, Tensor]:
        return {"sums": self._sums, "counts": self._counts}
