"""Per-sample loss and number of correctly predicted tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


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


def n_correct(
    logits: Float[Tensor, "R B K V"], targets: Int[Tensor, "R B K"], target_mask: Bool[Tensor, "R B K"] | None = None
) -> Int[Tensor, "R B"]:
    """Number of scored tokens of each sample that the argmax of the logits predicts."""
    correct = logits.argmax(-1) == targets
    return (correct if target_mask is None else correct & target_mask).sum(-1)
