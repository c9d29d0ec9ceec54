"""Decoder-only transformer: parts, block, model; the encoder is made of the same parts.

The last block and the output run only at the positions that are wanted (`at`), since nobody reads the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import torch
from torch import Tensor, nn

from seedbed.models.batched_linear import to_autocast_dtype
from seedbed.models.fused_ops import (
    can_fuse_add_norm,
    can_fuse_attention,
    fused_attention,
    linear_add_norm,
    linear_gelu,
)
from seedbed.models.hooks import NO_HOOKS, Hooks
from seedbed.models.layers import (
    ACTIVATIONS,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    OutputLayer,
    PositionEmbedding,
    Positions,
    absolute_positions,
    append_past,
    apply_attention_weights,
    attention,
    attention_weights,
    attention_with_dropout,
    causal_mask,
    select_positions,
)
from seedbed.models.positions import alibi_bias, alibi_slopes, apply_rotary, rotary_frequencies, sinusoidal_embedding
from seedbed.settings import GPTSettings as GPTSettings
from seedbed.settings import TransformerSettings

KVCache: TypeAlias = tuple[Tensor, Tensor]  # keys and values of one block


class Attention(nn.Module):
    """Multi-head attention, causal or not; one matrix holds queries, keys and values."""

    def __init__(self, dials: TransformerSettings, causal: bool) -> None:
        super().__init__()
        self.heads, self.dim, self.causal = dials.heads, dials.dim, causal
        self.qkv = Linear(dials.dim, 3 * dials.dim, dials.has_qkv_bias, n_parts=3)
        self.out = Linear(dials.dim, dials.dim, dials.attention_bias)
        self.dropout = Dropout("attention_dropout")
        self.slopes: Tensor | None
        self.frequencies: Tensor | None
        slopes = alibi_slopes(dials.heads) if dials.positions == "alibi" else None
        frequencies = rotary_frequencies(dials.dim // dials.heads) if dials.positions == "rotary" else None
        self.register_buffer("slopes", slopes, persistent=False)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(
        self, x: Tensor, at: Positions, past: KVCache | None, taps: Hooks, name: str, kept: list[KVCache] | None = None
    ) -> Tensor:
        return self.out(self.attend(x, at, past, taps, name, kept))

    def attend(
        self, x: Tensor, at: Positions, past: KVCache | None, taps: Hooks, name: str, kept: list[KVCache] | None = None
    ) -> Tensor:
        """What all heads have mixed, side by side, before the last map; its keys and values are added to `kept`."""
        if at is None and past is None and kept is None and self._can_fuse(x, taps):
            return fused_attention(self.qkv, x, self.heads, self.causal, self.slopes)
        parts = (part.unflatten(-1, (self.heads, -1)) for part in self._project_qkv(x, at))
        query, key, value = (taps(f"{name}.{of}", part) for of, part in zip("qkv", parts, strict=True))
        n, n_past = x.shape[-2], 0 if past is None else past[0].shape[-3]
        query, key = self._apply_rotary(query, at, n, n_past), self._apply_rotary(key, None, n, n_past)
        if kept is not None:
            kept.append((key, value))
        if past is not None:
            key, value = append_past(past[0], key), append_past(past[1], value)
        seen = causal_mask(at, n, x.device, n_past) if self.causal else x.new_ones(n, n, dtype=torch.bool)
        bias = None
        if self.slopes is not None:
            bias = alibi_bias(self.slopes, absolute_positions(at, n, x.device, n_past), n_past + n).to(x.dtype)
        causal = None if self.causal and (at is not None or past is not None) else self.causal
        mixed = self._attention_output(query, key, value, seen, bias, causal, taps, f"{name}.pattern")
        return taps(f"{name}.z", mixed).flatten(-2)

    def _can_fuse(self, x: Tensor, taps: Hooks) -> bool:
        """Whether nobody looks at or changes anything between the map of the input and the mixed values."""
        watched = taps.active or self.dropout.is_active or self.frequencies is not None
        return not watched and can_fuse_attention(x, self.heads)

    def _attention_output(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        seen: Tensor,
        bias: Tensor | None,
        causal: bool | None,
        taps: Hooks,
        name: str,
    ) -> Tensor:
        """Values averaged by the attention weights; weights that are only read leave every bit as it was."""
        if self.dropout.is_active:
            if taps.is_requested(name):
                taps(name, attention_weights(query, key, seen, bias))
            return attention_with_dropout(query, key, value, seen, bias, causal, self.dropout)
        if taps.is_requested(name):
            pattern = attention_weights(query, key, seen, bias)
            changed = taps(name, pattern)
            if changed is not pattern and not torch.equal(changed, pattern):
                return apply_attention_weights(changed, value)
        return attention(query, key, value, seen, bias, causal)

    def prefill(self, x: Tensor) -> KVCache:
        """Keys and values, for those who come after."""
        key, value = self.qkv(x, slice(self.dim, None)).unflatten(-1, (2 * self.heads, -1)).chunk(2, dim=-2)
        return self._apply_rotary(key, None, x.shape[-2], 0), value

    def _apply_rotary(self, x: Tensor, at: Positions, n: int, n_past: int) -> Tensor:
        """Queries or keys turned by where they stand, if positions are told so."""
        return (
            x
            if self.frequencies is None
            else apply_rotary(x, absolute_positions(at, n, x.device, n_past), self.frequencies)
        )

    def _project_qkv(self, x: Tensor, at: Positions) -> tuple[Tensor, ...]:
        if at is None:
            return self.qkv(x).split(self.dim, dim=-1)
        query, others = self.qkv.forward_split([select_positions(x, at), x], [self.dim, 2 * self.dim])
        return query, *others.split(self.dim, dim=-1)


class MLP(nn.Module):
    def __init__(self, dials: TransformerSettings) -> None:
        super().__init__()
        self.up = Linear(dials.dim, dials.mlp_width, dials.mlp_bias)
        self.down = Linear(dials.mlp_width, dials.dim, dials.mlp_bias)
        self.activation = ACTIVATIONS[dials.activation]
        self.is_gelu = dials.activation == "gelu"
        self.dropout = Dropout("mlp_dropout")

    def forward(self, x: Tensor, taps: Hooks, name: str) -> Tensor:
        return self.down(self.compute_hidden(x, taps, name))

    def compute_hidden(self, x: Tensor, taps: Hooks, name: str) -> Tensor:
        """What the last map reads."""
        if self.is_gelu and not taps.active:
            return self.dropout(linear_gelu(self.up, x))
        hidden = self.activation(taps(f"{name}.pre", self.up(x)))
        return self.dropout(taps(f"{name}.post", hidden))


class Block(nn.Module):
    def __init__(self, dials: TransformerSettings, causal: bool = True) -> None:
        super().__init__()
        self.norm_first = dials.norm == "pre"
        self.attention, self.mlp = Attention(dials, causal), MLP(dials)
        self.norm1, self.norm2 = LayerNorm(dials.dim), LayerNorm(dials.dim)
        self.dropout = Dropout()
        self.residual1, self.residual2 = Dropout("residual_dropout"), Dropout("residual_dropout")

    def prefill(self, x: Tensor) -> KVCache:
        return self.attention.prefill(self.norm1(x) if self.norm_first else x)

    def forward(
        self, x: Tensor, at: Positions, past: KVCache | None, taps: Hooks, name: str, kept: list[KVCache] | None = None
    ) -> Tensor:
        """The stream at the wanted positions after this block, whose keys and values are added to `kept`."""
        inner, x = f"{name}.attention", taps(f"{name}.in", x)
        if self.norm_first:
            attended = taps(f"{inner}.out", self.attention(self.norm1(x), at, past, taps, inner, kept))
            x = taps(f"{name}.mid", select_positions(x, at) + self.residual1(attended))
            return taps(f"{name}.out", x + self._forward_mlp(self.norm2(x), taps, f"{name}.mlp"))
        if not (taps.active or self.has_active_dropout or torch.compiler.is_compiling()) and can_fuse_add_norm(x):
            return self._forward_fused_post_norm(x, at, past, kept)  # compiled, it was no faster (docs/log.md)
        attended = taps(f"{inner}.out", self.attention(x, at, past, taps, inner, kept))
        x = taps(f"{name}.mid", self.norm1(select_positions(x, at) + self.residual1(attended)))
        return taps(f"{name}.out", self.norm2(x + self._forward_mlp(x, taps, f"{name}.mlp")))

    @property
    def has_active_dropout(self) -> bool:
        """Whether not all of what the parts give is added to the stream."""
        return self.dropout.is_active or self.residual1.is_active or self.residual2.is_active

    def _forward_fused_post_norm(
        self, x: Tensor, at: Positions, past: KVCache | None, kept: list[KVCache] | None
    ) -> Tensor:
        """As `forward` with norms after the sums, where nobody looks: a sum and the norm of it are one pass."""
        mixed = self.attention.attend(x, at, past, NO_HOOKS, "", kept)
        _, x = linear_add_norm(select_positions(x, at), self.attention.out, mixed, self.norm1, keep_stream_dtype=True)
        return linear_add_norm(
            x, self.mlp.down, self.mlp.compute_hidden(x, NO_HOOKS, ""), self.norm2, keep_stream_dtype=True
        )[1]

    @property
    def can_fuse_pre_norm(self) -> bool:
        """Whether parts read norms and what they add to the stream is added as it is."""
        return self.norm_first and not self.has_active_dropout

    def forward_fused_pre_norm(self, x: Tensor, normed: Tensor, next_norm: LayerNorm | None) -> tuple[Tensor, Tensor]:
        """The stream and its norm after this block, from those before it; a sum and the norm of it are one pass."""
        mixed = self.attention.attend(normed, None, None, NO_HOOKS, "")
        x, normed = linear_add_norm(x, self.attention.out, mixed, self.norm2)
        return linear_add_norm(x, self.mlp.down, self.mlp.compute_hidden(normed, NO_HOOKS, ""), next_norm)

    def _forward_mlp(self, x: Tensor, taps: Hooks, name: str) -> Tensor:
        return taps(f"{name}.out", self.residual2(self.dropout(self.mlp(x, taps, name))))


class TransformerBackbone(nn.Module):
    """Tokens with their positions, on their way through blocks: what decoder and encoder have in common."""

    def __init__(self, dials: TransformerSettings, vocabulary: int, context: int, causal: bool) -> None:
        super().__init__()
        frozen = dials.embeddings is not None
        self.embed = Embedding(vocabulary, dials.dim, frozen=frozen)
        self.position_table = PositionEmbedding(context, dials.dim, frozen) if dials.positions == "learned" else None
        self.waves: Tensor | None
        waves = (
            sinusoidal_embedding(context, dials.dim, dials.position_exponent)
            if dials.positions == "sinusoidal"
            else None
        )
        self.register_buffer("waves", waves, persistent=False)
        self.exponent = dials.position_exponent
        self.embed_dropout = Dropout("embedding_dropout")
        self.blocks = nn.ModuleList(Block(dials, causal) for _ in range(dials.layers))
        self.final_norm = LayerNorm(dials.dim) if dials.final_norm else None

    def embed_tokens(self, tokens: Tensor, n_past: int = 0, taps: Hooks = NO_HOOKS) -> Tensor:
        """The vectors of these tokens where they stand, after n_past others."""
        x = taps("embed.tokens", self.embed(tokens))
        if self.position_table is not None:
            x = self.position_table(x, n_past)
        elif self.waves is not None:
            x = x + self._get_sinusoids(n_past + x.shape[-2])[n_past:].to(x)
        return to_autocast_dtype(self.embed_dropout(x))

    def run_blocks(self, x: Tensor, at: Positions, past: Sequence[KVCache] | None, taps: Hooks) -> Tensor:
        """The stream after all blocks, and normed once more if the model does that."""
        if at is None and past is None and not taps.active and self._can_fuse_pre_norm(x):
            return self._run_blocks_fused(x)
        for i, block in enumerate(self.blocks):
            wanted = at if block is self.blocks[-1] else None
            x = block(x, wanted, None if past is None else past[i], taps, f"blocks.{i}")
        return x if self.final_norm is None else taps("final_norm", self.final_norm(x))

    def _can_fuse_pre_norm(self, x: Tensor) -> bool:
        """Whether sums and norms can be done together all the way."""
        return can_fuse_add_norm(x) and all(cast(Block, block).can_fuse_pre_norm for block in self.blocks)

    def _run_blocks_fused(self, x: Tensor) -> Tensor:
        """As `through` where nobody looks: the stream and its norm go from block to block."""
        blocks = cast("list[Block]", list(self.blocks))
        normed = blocks[0].norm1(x)
        for block, following in zip(blocks, [*(later.norm1 for later in blocks[1:]), self.final_norm], strict=True):
            x, normed = block.forward_fused_pre_norm(x, normed, following)
        return normed

    def _get_sinusoids(self, n: int) -> Tensor:
        """The waves of the first n positions; past those of training they are made on the spot."""
        assert self.waves is not None
        return self.waves[:n] if n <= len(self.waves) else sinusoidal_embedding(n, self.waves.shape[1], self.exponent)


class GPT(TransformerBackbone):
    def __init__(self, dials: GPTSettings, vocabulary: int, context: int) -> None:
        super().__init__(dials, vocabulary, context, causal=True)
        self.output = OutputLayer(dials.dim, vocabulary, dials.output_bias, self.embed if dials.tied else None)

    def forward(
        self, tokens: Tensor, at: Positions = None, taps: Hooks = NO_HOOKS, past: Sequence[KVCache] | None = None
    ) -> Tensor:
        """Logits of the next token at the wanted positions; `past` is what was remembered of the tokens before."""
        n_past = 0 if past is None else past[0][0].shape[-3]
        x = taps("embed", self.embed_tokens(tokens, n_past, taps))
        return taps("logits", self.output(self.run_blocks(x, at, past, taps)))

    def prefill(self, tokens: Tensor) -> list[KVCache]:
        """What later tokens need of these: each block's keys and values."""
        *blocks, last = cast("list[Block]", list(self.blocks))
        memories: list[KVCache] = []
        x = self.embed_tokens(tokens)
        for block in blocks:
            x = block(x, None, None, NO_HOOKS, "", memories)
        return [*memories, last.prefill(x)]
