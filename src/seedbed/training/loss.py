"""Losses and scores of samples, and each run's mean loss since it was last evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seedbed.data.batch import SampleScores
from seedbed.settings import RUNNING_LOSS


def sample_losses(
    logits: Float[Tensor, "R B K V"],
    targets: Int[Tensor, "R B K"],
    target_mask: Bool[Tensor, "R B K"] | None = None,
    label_smoothing: float = 0.0,
) -> Float[Tensor, "R B"]:
    """Cross-entropy in nats, averaged over each sample's scored tokens: long and short samples count equally."""
    return average_tokens(token_losses(logits, targets, label_smoothing), target_mask)


def token_losses(
    logits: Float[Tensor, "*n V"], targets: Int[Tensor, "*n"], label_smoothing: float = 0.0
) -> Float[Tensor, "*n"]:
    """Cross-entropy of each token in nats."""
    flat = logits.flatten(0, -2)
    return F.cross_entropy(flat, targets.flatten(), reduction="none", label_smoothing=label_smoothing).view_as(targets)


def average_tokens(
    losses: Float[Tensor, "R B K"], target_mask: Bool[Tensor, "R B K"] | None = None
) -> Float[Tensor, "R B"]:
    """The mean over each sample's scored tokens."""
    if target_mask is None:
        return losses.mean(-1)
    return torch.where(target_mask, losses, 0.0).sum(-1) / target_mask.sum(-1)


class TokenScores(NamedTuple):
    """What is kept of the logits of evaluated tokens; one field for each of `SampleScores`."""

    losses: Float[Tensor, "*n"]
    correct: Bool[Tensor, "*n"]


def score_tokens(logits: Float[Tensor, "*n V"], targets: Int[Tensor, "*n"]) -> TokenScores:
    return TokenScores(token_losses(logits, targets), logits.argmax(-1) == targets)


def score_samples(tokens: TokenScores, target_mask: Bool[Tensor, "R B K"] | None = None) -> SampleScores:
    """The scores of samples, (R, B), from those of their tokens, (R, B, K)."""
    correct = tokens.correct if target_mask is None else tokens.correct & target_mask
    return SampleScores(average_tokens(tokens.losses, target_mask).double(), correct.sum(-1))


class RunningLoss:
    """Sums and counts, in float64, of the losses of a pack's updates; NaN for a run without one since it was evaluated.

    Weights change between those updates and dropout is on, so it is not the loss of any one model; but it needs no pass
    over the training set. Runs of a pack that end early are evaluated by themselves, so each run has its own count.
    """

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
