"""Decoder-only transformer: parts, block, model.

The last block and the output run only at the positions that are wanted (`at`), since nobody reads the others.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from seedbed.models.layers import (
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    Output,
    Positions,
    PositionTable,
    attend,
    attention_pattern,
    mix,
    take,
    visible,
)
from seedbed.models.positions import sinusoidal
from seedbed.models.taps import NO_TAPS, Taps
from seedbed.settings import GPT as GPTSettings

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}


class Attention(nn.Module):
    """Causal multi-head attention; one matrix holds queries, keys and values."""

    def __init__(self, dials: GPTSettings) -> None:
        super().__init__()
        self.heads, self.dim = dials.heads, dials.dim
        self.qkv = Linear(dials.dim, 3 * dials.dim, dials.attention_bias)
        self.out = Linear(dials.dim, dials.dim, dials.attention_bias)

    def forward(self, x: Tensor, at: Positions, taps: Taps, name: str) -> Tensor:
        query, key, value = (part.unflatten(-1, (self.heads, -1)) for part in self._project(x, at))
        seen = visible(at, x.shape[-2], x.device)
        if taps.wants(f"{name}.pattern"):
            pattern = attention_pattern(query, key, seen)
            mixed = mix(taps(f"{name}.pattern", pattern.movedim(-1, -3)).movedim(-3, -1), value)
        else:
            mixed = attend(query, key, value, seen)
        return self.out(mixed.flatten(-2))

    def _project(self, x: Tensor, at: Positions) -> tuple[Tensor, ...]:
        if at is None:
            return self.qkv(x).split(self.dim, dim=-1)
        query = self.qkv(take(x, at), slice(0, self.dim))
        return query, *self.qkv(x, slice(self.dim, None)).split(self.dim, dim=-1)


class MLP(nn.Module):
    def __init__(self, dials: GPTSettings) -> None:
        super().__init__()
        hidden = dials.mlp_multiplier * dials.dim
        self.up = Linear(dials.dim, hidden, dials.mlp_bias)
        self.down = Linear(hidden, dials.dim, dials.mlp_bias)
        self.activation = ACTIVATIONS[dials.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))


class Block(nn.Module):
    def __init__(self, dials: GPTSettings) -> None:
        super().__init__()
        self.norm_first = dials.norm == "pre"
        self.attention, self.mlp = Attention(dials), MLP(dials)
        self.norm1, self.norm2 = LayerNorm(dials.dim), LayerNorm(dials.dim)
        self.dropout = Dropout()

    def forward(self, x: Tensor, at: Positions, taps: Taps, name: str) -> Tensor:
        if self.norm_first:
            attended = taps(f"{name}.attention.out", self.attention(self.norm1(x), at, taps, f"{name}.attention"))
            x = take(x, at) + attended
            return taps(f"{name}.out", x + taps(f"{name}.mlp.out", self.dropout(self.mlp(self.norm2(x)))))
        attended = taps(f"{name}.attention.out", self.attention(x, at, taps, f"{name}.attention"))
        x = self.norm1(take(x, at) + attended)
        return taps(f"{name}.out", self.norm2(x + taps(f"{name}.mlp.out", self.dropout(self.mlp(x)))))


class GPT(nn.Module):
    def __init__(self, dials: GPTSettings, vocabulary: int, context: int) -> None:
        super().__init__()
        self.embed = Embedding(vocabulary, dials.dim)
        self.position_table = PositionTable(context, dials.dim) if dials.positions == "learned" else None
        self.waves: Tensor | None
        waves = sinusoidal(context, dials.dim, dials.position_exponent) if dials.positions == "sinusoidal" else None
        self.register_buffer("waves", waves, persistent=False)
        self.blocks = nn.ModuleList(Block(dials) for _ in range(dials.layers))
        self.final_norm = LayerNorm(dials.dim) if dials.final_norm else None
        self.output = Output(dials.dim, vocabulary, dials.output_bias, self.embed if dials.tied else None)

    def forward(self, tokens: Tensor, at: Positions = None, taps: Taps = NO_TAPS) -> Tensor:
        """Logits of the next token at the wanted positions."""
        x = taps("embed", self._place(self.embed(tokens)))
        for i, block in enumerate(self.blocks):
            x = block(x, at if block is self.blocks[-1] else None, taps, f"blocks.{i}")
        if self.final_norm is not None:
            x = taps("final_norm", self.final_norm(x))
        return taps("logits", self.output(x))

    def _place(self, x: Tensor) -> Tensor:
        if self.position_table is not None:
            return self.position_table(x)
        return x if self.waves is None else x + self.waves[: x.shape[-2]].to(x.dtype)
