"""What a sample's prediction is worth: its loss and whether it is right."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


def sample_losses(logits: Float[Tensor, "R B K V"], targets: Int[Tensor, "R B K"]) -> Float[Tensor, "R B"]:
    """Each sample's mean over its scored tokens, in nats, so that long and short samples weigh the same."""
    tokens = F.cross_entropy(logits.flatten(0, 2), targets.flatten(), reduction="none")
    return tokens.view(targets.shape).mean(-1)


def samples_right(logits: Float[Tensor, "R B K V"], targets: Int[Tensor, "R B K"]) -> Bool[Tensor, "R B"]:
    """Whether every scored token of a sample is the most likely one."""
    return (logits.argmax(-1) == targets).all(-1)
