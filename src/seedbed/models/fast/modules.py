"""Fused modules, and the one place that chooses them.

    model = use_fast_modules(settings.model.build(info))

Each is a subclass of the readable module it replaces, overrides one method, and falls back to the readable one where
hooks, dropout, dtype or device rule the kernel out. Only modules of exactly the readable types are replaced, so a fast
path never leaves out what a subclass or a new kind of module adds. Parameters and names stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seedbed.models.encoder import Encoder
from seedbed.models.fast.fused_ops import (
    can_fuse_add_norm,
    can_fuse_attention,
    fused_attention,
    fused_lstm,
    linear_add_norm,
    linear_gelu,
    should_use_fused_lstm,
    should_use_torch_lstm,
    torch_lstm,
)
from seedbed.models.gpt import GPT, MLP, Attention, Block, TransformerBackbone
from seedbed.models.hooks import NO_HOOKS, Hooks
from seedbed.models.layers import LayerNorm, Positions, select_positions
from seedbed.models.lstm import LSTMCell
from seedbed.models.positions import ALiBi, LearnedPositions, PositionEncoding, SinusoidalPositions
from seedbed.models.sequence_model import LayerCache, SequenceModel

# Position encodings that the fused attention kernel computes, or that are complete before attention.
FUSED_ENCODINGS = (PositionEncoding, SinusoidalPositions, LearnedPositions, ALiBi)


class FastAttention(Attention):
    """Attention by our Triton kernel for medium lengths on a GPU."""

    def attend(
        self, x: Tensor, positions: Positions, past: LayerCache | None, hooks: Hooks, name: str,
        cache: list[LayerCache] | None = None,
    ) -> Tensor:  # fmt: skip
        if positions is None and past is None and cache is None and self._can_fuse(x, hooks):
            encoding = self.encoding
            slopes = encoding.slopes if isinstance(encoding, ALiBi) else None
            return fused_attention(self.qkv, x, self.heads, self.causal, slopes)
        return super().attend(x, positions, past, hooks, name, cache)

    def _can_fuse(self, x: Tensor, hooks: Hooks) -> bool:
        """True if the kernel computes all that happens between QKV projection and head outputs."""
        known = type(self.encoding) in FUSED_ENCODINGS
        return known and not (hooks.active or self.dropout.is_active) and can_fuse_attention(x, self.heads)


class FastMLP(MLP):
    """On a GPU adding the bias is fused with the GELU."""

    def compute_hidden(self, x: Tensor, hooks: Hooks, name: str) -> Tensor:
        if self.activation is F.gelu and not hooks.active:
            return self.dropout(linear_gelu(self.up, x))
        return super().compute_hidden(x, hooks, name)


class FastBlock(Block):
    """On a GPU each residual add is fused with the norm that follows it."""

    def forward(
        self, x: Tensor, positions: Positions, past: LayerCache | None, hooks: Hooks, name: str,
        cache: list[LayerCache] | None = None,
    ) -> Tensor:  # fmt: skip
        # not when compiling, where it was no faster (docs/log.md)
        fuses = not self.norm_first and self.can_fuse(hooks) and not torch.compiler.is_compiling()
        if not (fuses and can_fuse_add_norm(x)):
            return super().forward(x, positions, past, hooks, name, cache)
        heads_out = self.attention.attend(x, positions, past, NO_HOOKS, name, cache)
        _, x = linear_add_norm(
            select_positions(x, positions), self.attention.out, heads_out, self.norm1, keep_stream_dtype=True
        )
        hidden = self.mlp.compute_hidden(x, NO_HOOKS, "")
        return linear_add_norm(x, self.mlp.down, hidden, self.norm2, keep_stream_dtype=True)[1]

    def can_fuse(self, hooks: Hooks) -> bool:
        """True if attention and MLP are known, and what they add to the residual stream has no hooks or dropout."""
        is_known = type(self.attention) is FastAttention and type(self.mlp) is FastMLP
        has_dropout = self.dropout.is_active or self.residual1.is_active or self.residual2.is_active
        return is_known and not (hooks.active or has_dropout)

    def forward_fused_pre_norm(self, x: Tensor, normed: Tensor, next_norm: LayerNorm | None) -> tuple[Tensor, Tensor]:
        """Maps (x, norm1(x)) to the new x and next_norm(x); each residual add is fused with the norm after it."""
        heads_out = self.attention.attend(normed, None, None, NO_HOOKS, "")
        x, normed = linear_add_norm(x, self.attention.out, heads_out, self.norm2)
        return linear_add_norm(x, self.mlp.down, self.mlp.compute_hidden(normed, NO_HOOKS, ""), next_norm)


class FastBackbone(TransformerBackbone):
    """Pre-norm blocks pass on the residual stream together with its norm."""

    def run_blocks(self, x: Tensor, positions: Positions, past: Sequence[LayerCache] | None, hooks: Hooks) -> Tensor:
        if positions is not None or past is not None or not (can_fuse_add_norm(x) and self._can_fuse_pre_norm(hooks)):
            return super().run_blocks(x, positions, past, hooks)
        blocks = cast("list[FastBlock]", list(self.blocks))
        normed = blocks[0].norm1(x)
        for block, next_norm in zip(blocks, [*(later.norm1 for later in blocks[1:]), self.final_norm], strict=True):
            x, normed = block.forward_fused_pre_norm(x, normed, next_norm)
        return normed

    def _can_fuse_pre_norm(self, hooks: Hooks) -> bool:
        return all(type(one) is FastBlock and one.norm_first and one.can_fuse(hooks) for one in self.blocks)


class FastGPT(FastBackbone, GPT):
    pass


class FastEncoder(FastBackbone, Encoder):
    pass


class FastLSTMCell(LSTMCell):
    """torch's own LSTM, or all runs at once on a GPU, instead of a loop over positions."""

    def forward(self, x: Tensor, past: LayerCache | None, hooks: Hooks, name: str) -> tuple[Tensor, LayerCache]:
        if not hooks.active:
            h, c = self.initial_state(x) if past is None else past
            if should_use_torch_lstm(x):
                return torch_lstm(x, (h, c), self.input, self.state)
            if should_use_fused_lstm(x):
                return fused_lstm(self.input(x), (h, c), self.state)
        return super().forward(x, past, hooks, name)


FAST_MODULES: dict[type[nn.Module], type[nn.Module]] = {
    Attention: FastAttention,
    MLP: FastMLP,
    Block: FastBlock,
    GPT: FastGPT,
    Encoder: FastEncoder,
    LSTMCell: FastLSTMCell,
}


def use_fast_modules(model: SequenceModel) -> SequenceModel:
    """The model with every module of a known type replaced by its fused version, in place."""
    for module in model.modules():
        module.__class__ = FAST_MODULES.get(type(module), type(module))
    return model
