"""Fixed position vectors."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def sinusoidal(n: int, dim: int, exponent: str) -> Float[Tensor, "T D"]:
    """Sine in the even and cosine in the odd dimensions of n positions.

    The angle of position t in dimensions 2k and 2k+1 is t / 10000^e: with e = k/d as the course's hand-out has it, or
    with e = 2k/d as in "Attention Is All You Need", section 3.5.
    """
    k = torch.arange(dim // 2, dtype=torch.float64)
    power = (2 if exponent == "2k/d" else 1) * k / dim
    angle = torch.arange(n, dtype=torch.float64)[:, None] / 10_000**power
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
