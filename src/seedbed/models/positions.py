"""Position encodings, by the name that `model.positions` gives them.

A transformer can use positions in three ways: add embeddings to the tokens, rotate queries and keys, or bias attention
scores. An encoding overrides the ones it uses; the model calls all three, so no other file asks which encoding it has.
To add one, write a class here, enter it in `POSITION_ENCODINGS`, and add its name to `POSITION_KINDS` in
`families/transformer_settings.py`, with the shapes of its parameters if it has any. Fast paths leave it to this code.
"""

from __future__ import annotations

from math import log

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seedbed.models.families.transformer_settings import N_T5_BUCKETS, POSITION_KINDS, TransformerSettings
from seedbed.models.layers import Positions, Role, absolute_positions, embedding, register_table
from seedbed.settings import register_choice

T5_MAX_DISTANCE = 128  # from here on all distances are one bucket, as in T5


class PositionEncoding(nn.Module):
    """No encoding: only a causal mask tells positions apart."""

    def __init__(self, settings: TransformerSettings, context: int) -> None:
        super().__init__()

    def add(self, x: Tensor, n_past: int) -> Tensor:
        """Token embeddings (…, T, D) plus those of their positions, which follow n_past cached ones."""
        return x

    def rotate(self, x: Tensor, positions: Positions, n: int, n_past: int) -> Tensor:
        """Queries or keys (…, T, H, K) at these of n positions that follow n_past cached ones, rotated."""
        return x

    def bias(self, x: Tensor, positions: Positions, n_past: int) -> Float[Tensor, "... T S H"] | None:
        """Bias on the scores of attention from these positions of x to all positions, cached ones first."""
        return None


class LearnedPositions(PositionEncoding):
    """One learned (or frozen) embedding per position of the training context."""

    weight_role: Role = "embedding"
    weight: Tensor

    def __init__(self, settings: TransformerSettings, context: int) -> None:
        super().__init__(settings, context)
        register_table(self, context, settings.dim, frozen=settings.embeddings is not None)

    def add(self, x: Tensor, n_past: int) -> Tensor:
        return x + self.weight[:, None, n_past : n_past + x.shape[2]]


class SinusoidalPositions(PositionEncoding):
    """Fixed embeddings of sines and cosines, computed on the fly beyond the training context."""

    sinusoids: Tensor

    def __init__(self, settings: TransformerSettings, context: int) -> None:
        super().__init__(settings, context)
        self.dim, self.exponent = settings.dim, settings.position_exponent
        self.register_buffer("sinusoids", sinusoidal_embedding(context, self.dim, self.exponent), persistent=False)

    def add(self, x: Tensor, n_past: int) -> Tensor:
        n = n_past + x.shape[-2]
        in_context = n <= len(self.sinusoids)
        sinusoids = self.sinusoids if in_context else sinusoidal_embedding(n, self.dim, self.exponent)
        return x + sinusoids[n_past:n].to(x)


class ALiBi(PositionEncoding):
    """Attention with linear biases (Press et al. 2021): each head penalises distance by its own slope."""

    slopes: Tensor

    def __init__(self, settings: TransformerSettings, context: int) -> None:
        super().__init__(settings, context)
        self.register_buffer("slopes", alibi_slopes(settings.heads), persistent=False)

    def bias(self, x: Tensor, positions: Positions, n_past: int) -> Tensor:
        n = x.shape[-2]
        return alibi_bias(self.slopes, absolute_positions(positions, n, x.device, n_past), n_past + n).to(x.dtype)


class RotaryPositions(PositionEncoding):
    """Rotary position embedding (Su et al. 2021): rotates queries and keys by angles that grow with the position."""

    frequencies: Tensor

    def __init__(self, settings: TransformerSettings, context: int) -> None:
        super().__init__(settings, context)
        self.register_buffer("frequencies", rotary_frequencies(settings.dim // settings.heads), persistent=False)

    def rotate(self, x: Tensor, positions: Positions, n: int, n_past: int) -> Tensor:
        return apply_rotary(x, absolute_positions(positions, n, x.device, n_past), self.frequencies)


class T5Bias(PositionEncoding):
    """T5's relative position bias (Raffel et al. 2020, section 2.1): one learned number per head and distance bucket.

    The table is shared by all layers, as in T5. The bias is added to the scaled scores; T5 itself does not scale them.
    """

    weight_role: Role = "embedding"
    weight: Tensor
    buckets: Tensor

    def __init__(self, settings: TransformerSettings, context: int) -> None:
        super().__init__(settings, context)
        register_table(self, N_T5_BUCKETS, settings.heads, frozen=False)
        # causal attention has all buckets for the past, bidirectional attention one half for each direction
        self.n_future = 0 if settings.causal else N_T5_BUCKETS // 2
        self.register_buffer("buckets", t5_buckets(N_T5_BUCKETS - self.n_future), persistent=False)

    def bias(self, x: Tensor, positions: Positions, n_past: int) -> Tensor:
        n = x.shape[-2]
        target = absolute_positions(positions, n, x.device, n_past)
        distance = target[..., None] - torch.arange(n_past + n, device=x.device)
        bucket = self.buckets[distance.abs().clamp(max=len(self.buckets) - 1)]
        bucket = torch.where(distance < 0, bucket + self.n_future, bucket)
        if bucket.ndim == 2:  # the same positions in all samples
            bucket = bucket.expand(len(self.weight), 1, -1, -1)
        return embedding(bucket.flatten(2), self.weight).unflatten(2, bucket.shape[2:]).to(x.dtype)


POSITION_ENCODINGS: dict[str, type[PositionEncoding]] = {
    "sinusoidal": SinusoidalPositions,
    "learned": LearnedPositions,
    "alibi": ALiBi,
    "rotary": RotaryPositions,
    "t5": T5Bias,
    "none": PositionEncoding,
}


def register_positions(name: str, encoding: type[PositionEncoding]) -> type[PositionEncoding]:
    """Makes `model.positions` accept an encoding without parameters; returns it."""
    register_choice("positions", POSITION_KINDS, name)
    POSITION_ENCODINGS[name] = encoding
    return encoding


# ---- formulas ----


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


def rotary_frequencies(head_dim: int) -> Float[Tensor, "{head_dim}//2"]:
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


def t5_buckets(n_buckets: int) -> Int[Tensor, "n"]:
    """Bucket of each distance from 0 to T5_MAX_DISTANCE, which stands for all larger ones.

    The first half of the buckets are single distances, the other half grow logarithmically. Computed in float32, as in
    the authors' code, which decides where a distance is exactly on a border.
    """
    n_exact = n_buckets // 2
    distance = torch.arange(T5_MAX_DISTANCE + 1)
    fraction = torch.log(distance.clamp(min=1).float() / n_exact) / log(T5_MAX_DISTANCE / n_exact)
    larger = n_exact + (fraction * (n_buckets - n_exact)).long()
    return torch.where(distance < n_exact, distance, larger.clamp(max=n_buckets - 1))
