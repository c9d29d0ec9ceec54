"""Position encodings: sinusoidal embeddings, ALiBi biases on attention scores, rotary embeddings."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def sinusoidal_embedding(n: int, dim: int, exponent: str) -> Float[Tensor, "T D"]:
    """Embeddings of n positions: sine in the even and cosine in the odd dimensions.

    The angle of position t in dimensions 2k and 2k+1 is t / 10000^e: with e = k/d as in the course hand-out, or
    with e = 2k/d as in "Attention Is All You Need", section 3.5.
    """
    k = torch.arange(dim // 2, dtype=torch.float64)
    power = (2 if exponent == "2k/d" else 1) * k / dim
    angle = torch.arange(n, dtype=torch.float64)[:, None] / 10_000**power
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


def alibi_slopes(n_heads: int) -> Float[Tensor, "H"]:
    """Slopes 2^(−8h/H), h = 1 … H, of ALiBi (Press et al. 2021, section 3).

    If H is not a power of two: the slopes of the next lower power, then every other slope of the next higher one, as in
    the authors' code.
    """
    below = 2 ** (n_heads.bit_length() - 1)
    slopes = [2 ** (-8 * h / below) for h in range(1, below + 1)]
    between = [2 ** (-8 * h / (2 * below)) for h in range(1, 2 * below + 1, 2)]
    return torch.tensor((slopes + between)[:n_heads], dtype=torch.float64)


def alibi_bias(
    slopes: Float[Tensor, "H"], positions: Int[Tensor, "... T"], n_source: int
) -> Float[Tensor, "... T S H"]:
    """ALiBi bias −slope · |i − j| on the attention scores."""
    source = torch.arange(n_source, device=positions.device)
    return -(positions[..., None] - source).abs()[..., None] * slopes


def rotary_frequencies(head_dim: int) -> Float[Tensor, "K/2"]:
    """Rotation angle per position of each pair of dimensions, 10000^(−2k/K) (Su et al. 2021, section 3.2.2)."""
    return 10_000 ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)


def apply_rotary(
    x: Float[Tensor, "... T H K"], positions: Int[Tensor, "... T"], frequencies: Float[Tensor, "K/2"]
) -> Float[Tensor, "... T H K"]:
    """Rotary position embedding; dimension k is paired with k + K/2, as in GPT-NeoX and LLaMA."""
    angle = (positions[..., None] * frequencies)[..., None, :]
    return rotate_pairs(x, angle.cos().to(x.dtype), angle.sin().to(x.dtype))


def rotate_pairs(x: Float[Tensor, "... K"], cos: Float[Tensor, "... K/2"], sin: Float[Tensor, "... K/2"]) -> Tensor:
    """Rotates each pair of dimensions (k, k + K/2) by the given angles."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
