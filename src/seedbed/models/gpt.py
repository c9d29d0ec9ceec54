"""Decoder-only transformer (GPT): attention, MLP, block, model; the encoder shares the backbone.

The last block and the output layer run only at the requested `positions`: no other logits are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, cast

import torch
from torch import Tensor, nn

from seedbed.kind_settings import GPTSettings, TransformerSettings
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

# Position encodings that the fused attention kernel, and the decoders in sampling/, compute. Any other kind takes the
# readable path, which is slower and never leaves something out; the same goes for subclasses of the modules below.
FUSED_POSITIONS: Final = frozenset({"sinusoidal", "learned", "alibi", "none"})
DECODED_POSITIONS: Final = FUSED_POSITIONS | {"rotary"}

KVCache: TypeAlias = tuple[Tensor, Tensor]  # keys and values of one block, (R, B, S, H, K) each


class Attention(nn.Module):
    """Multi-head self-attention, causal or bidirectional, with a joint QKV projection."""

    def __init__(self, settings: TransformerSettings, causal: bool) -> None:
        super().__init__()
        self.heads, self.dim, self.causal = settings.heads, settings.dim, causal
        self.position_encoding: str = settings.positions
        self.qkv = Linear(settings.dim, 3 * settings.dim, settings.has_qkv_bias, n_parts=3)
        self.out = Linear(settings.dim, settings.dim, settings.attention_bias)
        self.dropout = Dropout("attention_dropout")
        self.slopes: Tensor | None
        self.frequencies: Tensor | None
        slopes = alibi_slopes(settings.heads) if settings.positions == "alibi" else None
        frequencies = rotary_frequencies(settings.dim // settings.heads) if settings.positions == "rotary" else None
        self.register_buffer("slopes", slopes, persistent=False)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        past: KVCache | None,
        hooks: Hooks,
        name: str,
        cache: list[KVCache] | None = None,
    ) -> Tensor:
        return self.out(self.attend(x, positions, past, hooks, name, cache))

    def attend(
        self,
        x: Tensor,
        positions: Positions,
        past: KVCache | None,
        hooks: Hooks,
        name: str,
        cache: list[KVCache] | None = None,
    ) -> Tensor:
        """Concatenated head outputs before the output projection; appends this block's keys and values to `cache`."""
        if positions is None and past is None and cache is None and self._can_fuse(x, hooks):
            return fused_attention(self.qkv, x, self.heads, self.causal, self.slopes)
        parts = (part.unflatten(-1, (self.heads, -1)) for part in self._project_qkv(x, positions))
        query, key, value = (hooks(f"{name}.{letter}", part) for letter, part in zip("qkv", parts, strict=True))
        n, n_past = x.shape[-2], 0 if past is None else past[0].shape[-3]
        query, key = self._apply_rotary(query, positions, n, n_past), self._apply_rotary(key, None, n, n_past)
        if cache is not None:
            cache.append((key, value))
        if past is not None:
            key, value = append_past(past[0], key), append_past(past[1], value)
        mask = causal_mask(positions, n, x.device, n_past) if self.causal else x.new_ones(n, n, dtype=torch.bool)
        bias = None
        if self.slopes is not None:
            bias = alibi_bias(self.slopes, absolute_positions(positions, n, x.device, n_past), n_past + n).to(x.dtype)
        # SDPA's built-in causal mask fits only where the queries are at all source positions
        causal = None if self.causal and (positions is not None or past is not None) else self.causal
        heads_out = self._attention_output(query, key, value, mask, bias, causal, hooks, f"{name}.pattern")
        return hooks(f"{name}.z", heads_out).flatten(-2)

    def _can_fuse(self, x: Tensor, hooks: Hooks) -> bool:
        """True if the fused kernel is known to compute all that happens between QKV projection and head outputs."""
        known = type(self) is Attention and self.position_encoding in FUSED_POSITIONS
        return known and not (hooks.active or self.dropout.is_active) and can_fuse_attention(x, self.heads)

    def _attention_output(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor,
        bias: Tensor | None,
        causal: bool | None,
        hooks: Hooks,
        name: str,
    ) -> Tensor:
        """Head outputs; recording the attention weights without replacing them leaves the result bit-identical."""
        if self.dropout.is_active:
            if hooks.is_requested(name):
                hooks(name, attention_weights(query, key, mask, bias))
            return attention_with_dropout(query, key, value, mask, bias, causal, self.dropout)
        if hooks.is_requested(name):
            pattern = attention_weights(query, key, mask, bias)
            replaced = hooks(name, pattern)
            # an equal replacement takes the usual path below, whose rounding differs
            if replaced is not pattern and not torch.equal(replaced, pattern):
                return apply_attention_weights(replaced, value)
        return attention(query, key, value, mask, bias, causal)

    def prefill(self, x: Tensor) -> KVCache:
        """Keys and values of these positions, without computing attention."""
        key, value = self.qkv(x, slice(self.dim, None)).unflatten(-1, (2 * self.heads, -1)).chunk(2, dim=-2)
        return self._apply_rotary(key, None, x.shape[-2], 0), value

    def _apply_rotary(self, x: Tensor, positions: Positions, n: int, n_past: int) -> Tensor:
        """Queries or keys with rotary position embedding, if the model uses it."""
        if self.frequencies is None:
            return x
        return apply_rotary(x, absolute_positions(positions, n, x.device, n_past), self.frequencies)

    def _project_qkv(self, x: Tensor, positions: Positions) -> tuple[Tensor, ...]:
        if positions is None:
            return self.qkv(x).split(self.dim, dim=-1)
        query, key_value = self.qkv.forward_split([select_positions(x, positions), x], [self.dim, 2 * self.dim])
        return query, *key_value.split(self.dim, dim=-1)


class MLP(nn.Module):
    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.up = Linear(settings.dim, settings.mlp_width, settings.mlp_bias)
        self.down = Linear(settings.mlp_width, settings.dim, settings.mlp_bias)
        self.activation = ACTIVATIONS[settings.activation]
        self.is_gelu = settings.activation == "gelu"
        self.dropout = Dropout("mlp_dropout")

    def forward(self, x: Tensor, hooks: Hooks, name: str) -> Tensor:
        return self.down(self.compute_hidden(x, hooks, name))

    def compute_hidden(self, x: Tensor, hooks: Hooks, name: str) -> Tensor:
        """Hidden activations, the input of the down projection."""
        if self.is_gelu and not hooks.active:
            return self.dropout(linear_gelu(self.up, x))
        hidden = self.activation(hooks(f"{name}.pre", self.up(x)))
        return self.dropout(hooks(f"{name}.post", hidden))


class Block(nn.Module):
    def __init__(self, settings: TransformerSettings, causal: bool = True) -> None:
        super().__init__()
        self.norm_first = settings.norm == "pre"
        self.attention, self.mlp = Attention(settings, causal), MLP(settings)
        self.norm1, self.norm2 = LayerNorm(settings.dim), LayerNorm(settings.dim)
        self.dropout = Dropout()
        self.residual1, self.residual2 = Dropout("residual_dropout"), Dropout("residual_dropout")

    def prefill(self, x: Tensor) -> KVCache:
        return self.attention.prefill(self.norm1(x) if self.norm_first else x)

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        past: KVCache | None,
        hooks: Hooks,
        name: str,
        cache: list[KVCache] | None = None,
    ) -> Tensor:
        """Residual stream after this block at the requested positions; appends its keys and values to `cache`."""
        inner, x = f"{name}.attention", hooks(f"{name}.in", x)
        if self.norm_first:
            attended = hooks(f"{inner}.out", self.attention(self.norm1(x), positions, past, hooks, inner, cache))
            x = hooks(f"{name}.mid", select_positions(x, positions) + self.residual1(attended))
            return hooks(f"{name}.out", x + self._forward_mlp(self.norm2(x), hooks, f"{name}.mlp"))
        can_fuse = self.is_standard and not (hooks.active or self.has_active_dropout)
        if can_fuse and not torch.compiler.is_compiling() and can_fuse_add_norm(x):
            # not when compiling, where it was no faster (docs/log.md)
            return self._forward_fused_post_norm(x, positions, past, cache)
        attended = hooks(f"{inner}.out", self.attention(x, positions, past, hooks, inner, cache))
        x = hooks(f"{name}.mid", self.norm1(select_positions(x, positions) + self.residual1(attended)))
        return hooks(f"{name}.out", self.norm2(x + self._forward_mlp(x, hooks, f"{name}.mlp")))

    @property
    def is_standard(self) -> bool:
        """True if block, attention and MLP are these very classes: fused paths do not know what a subclass changes."""
        return type(self) is Block and type(self.attention) is Attention and type(self.mlp) is MLP

    @property
    def has_active_dropout(self) -> bool:
        """True if dropout is applied to what attention or the MLP adds to the residual stream."""
        return self.dropout.is_active or self.residual1.is_active or self.residual2.is_active

    def _forward_fused_post_norm(
        self, x: Tensor, positions: Positions, past: KVCache | None, cache: list[KVCache] | None
    ) -> Tensor:
        """`forward` for post-norm without hooks or dropout: residual add and norm fused into one kernel."""
        heads_out = self.attention.attend(x, positions, past, NO_HOOKS, "", cache)
        _, x = linear_add_norm(
            select_positions(x, positions), self.attention.out, heads_out, self.norm1, keep_stream_dtype=True
        )
        return linear_add_norm(
            x, self.mlp.down, self.mlp.compute_hidden(x, NO_HOOKS, ""), self.norm2, keep_stream_dtype=True
        )[1]

    @property
    def can_fuse_pre_norm(self) -> bool:
        """True if the block is a standard pre-norm one and adds to the residual stream without dropout."""
        return self.is_standard and self.norm_first and not self.has_active_dropout

    def forward_fused_pre_norm(self, x: Tensor, normed: Tensor, next_norm: LayerNorm | None) -> tuple[Tensor, Tensor]:
        """Maps (x, norm1(x)) to the new x and next_norm(x); each residual add is fused with the norm after it."""
        heads_out = self.attention.attend(normed, None, None, NO_HOOKS, "")
        x, normed = linear_add_norm(x, self.attention.out, heads_out, self.norm2)
        return linear_add_norm(x, self.mlp.down, self.mlp.compute_hidden(normed, NO_HOOKS, ""), next_norm)

    def _forward_mlp(self, x: Tensor, hooks: Hooks, name: str) -> Tensor:
        return hooks(f"{name}.out", self.residual2(self.dropout(self.mlp(x, hooks, name))))


class TransformerBackbone(nn.Module):
    """Embeddings and blocks, shared by decoder and encoder."""

    def __init__(self, settings: TransformerSettings, vocabulary: int, context: int, causal: bool) -> None:
        super().__init__()
        frozen = settings.embeddings is not None
        self.embed = Embedding(vocabulary, settings.dim, frozen=frozen)
        self.position_table = None
        if settings.positions == "learned":
            self.position_table = PositionEmbedding(context, settings.dim, frozen)
        self.sinusoids: Tensor | None
        sinusoids = None
        if settings.positions == "sinusoidal":
            sinusoids = sinusoidal_embedding(context, settings.dim, settings.position_exponent)
        self.register_buffer("sinusoids", sinusoids, persistent=False)
        self.exponent = settings.position_exponent
        self.embed_dropout = Dropout("embedding_dropout")
        self.blocks = nn.ModuleList(Block(settings, causal) for _ in range(settings.layers))
        self.final_norm = LayerNorm(settings.dim) if settings.final_norm else None

    def embed_tokens(self, tokens: Tensor, n_past: int = 0, hooks: Hooks = NO_HOOKS) -> Tensor:
        """Token embeddings plus position embeddings, for tokens that follow n_past cached ones."""
        x = hooks("embed.tokens", self.embed(tokens))
        if self.position_table is not None:
            x = self.position_table(x, n_past)
        elif self.sinusoids is not None:
            x = x + self._get_sinusoids(n_past + x.shape[-2])[n_past:].to(x)
        return to_autocast_dtype(self.embed_dropout(x))

    def run_blocks(self, x: Tensor, positions: Positions, past: Sequence[KVCache] | None, hooks: Hooks) -> Tensor:
        """Residual stream after all blocks, with the final norm if the model has one."""
        if positions is None and past is None and not hooks.active and self._can_fuse_pre_norm(x):
            return self._run_blocks_fused(x)
        for i, block in enumerate(self.blocks):
            needed = positions if block is self.blocks[-1] else None
            x = block(x, needed, None if past is None else past[i], hooks, f"blocks.{i}")
        return x if self.final_norm is None else hooks("final_norm", self.final_norm(x))

    def _can_fuse_pre_norm(self, x: Tensor) -> bool:
        """True if every residual add can be fused with the norm that follows it."""
        return can_fuse_add_norm(x) and all(isinstance(one, Block) and one.can_fuse_pre_norm for one in self.blocks)

    def _run_blocks_fused(self, x: Tensor) -> Tensor:
        """`run_blocks` without hooks: each block passes on the residual stream and its norm."""
        blocks = cast("list[Block]", list(self.blocks))
        normed = blocks[0].norm1(x)
        for block, next_norm in zip(blocks, [*(later.norm1 for later in blocks[1:]), self.final_norm], strict=True):
            x, normed = block.forward_fused_pre_norm(x, normed, next_norm)
        return normed

    def _get_sinusoids(self, n: int) -> Tensor:
        """Sinusoidal embeddings of the first n positions, computed on the fly beyond the training context."""
        assert self.sinusoids is not None
        if n <= len(self.sinusoids):
            return self.sinusoids[:n]
        return sinusoidal_embedding(n, self.sinusoids.shape[1], self.exponent)


class GPT(TransformerBackbone):
    def __init__(self, settings: GPTSettings, vocabulary: int, context: int) -> None:
        super().__init__(settings, vocabulary, context, causal=True)
        self.output = OutputLayer(settings.dim, vocabulary, settings.output_bias, self.embed if settings.tied else None)

    def forward(
        self,
        tokens: Tensor,
        positions: Positions = None,
        hooks: Hooks = NO_HOOKS,
        past: Sequence[KVCache] | None = None,
    ) -> Tensor:
        """Next-token logits at the requested positions; `past` is the cache of the preceding tokens (`prefill`)."""
        n_past = 0 if past is None else past[0][0].shape[-3]
        x = hooks("embed", self.embed_tokens(tokens, n_past, hooks))
        return hooks("logits", self.output(self.run_blocks(x, positions, past, hooks)))

    def prefill(self, tokens: Tensor) -> list[KVCache]:
        """KV cache of these tokens, one entry per block."""
        *blocks, last = cast("list[Block]", list(self.blocks))
        cache: list[KVCache] = []
        x = self.embed_tokens(tokens)
        for block in blocks:
            x = block(x, None, None, NO_HOOKS, "", cache)
        return [*cache, last.prefill(x)]  # the last block's output is not needed
