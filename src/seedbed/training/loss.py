"""What a sample's prediction is worth: its loss and how many of its tokens are right."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


def sample_losses(
    logits: Float[Tensor, "R B K V"],
    targets: Int[Tensor, "R B K"],
    scored: Bool[Tensor, "R B K"] | None = None,
    smoothing: float = 0.0,
) -> Float[Tensor, "R B"]:
    """Each sample's mean over its scored tokens, in nats, so that long and short samples weigh the same."""
    tokens = F.cross_entropy(logits.flatten(0, 2), targets.flatten(), reduction="none", label_smoothing=smoothing)
    tokens = tokens.view(targets.shape)
    if scored is None:
        return tokens.mean(-1)
    return torch.where(scored, tokens, 0.0).sum(-1) / scored.sum(-1)


def n_correct(
    logits: Float[Tensor, "R B K V"], targets: Int[Tensor, "R B K"], scored: Bool[Tensor, "R B K"] | None = None
) -> Int[Tensor, "R B"]:
    """How many scored tokens of a sample are the most likely ones."""
    right = logits.argmax(-1) == targets
    return (right if scored is None else right & scored).sum(-1)
