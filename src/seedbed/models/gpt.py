"""Decoder-only transformer (GPT): attention, MLP, block, model; the encoder shares the backbone.

The last block and the output layer run only at the requested `positions`: no other logits are used. Fused versions of
these modules are in `fast/`, and equal them by test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from seedbed.models.families.transformer_settings import GPTSettings, TransformerSettings
from seedbed.models.hooks import NO_HOOKS, Hooks
from seedbed.models.layers import (
    ACTIVATIONS,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    OutputLayer,
    Positions,
    append_past,
    apply_attention_weights,
    attention,
    attention_weights,
    attention_with_dropout,
    causal_mask,
    select_positions,
    to_autocast_dtype,
)
from seedbed.models.positions import POSITION_ENCODINGS, PositionEncoding
from seedbed.models.sequence_model import LayerCache, SequenceModel


class Attention(nn.Module):
    """Multi-head self-attention, causal or bidirectional, with a joint QKV projection."""

    def __init__(self, settings: TransformerSettings, encoding: PositionEncoding) -> None:
        super().__init__()
        self.heads, self.dim, self.causal = settings.heads, settings.dim, settings.causal
        self.qkv = Linear(settings.dim, 3 * settings.dim, settings.has_qkv_bias, n_parts=3)
        self.out = Linear(settings.dim, settings.dim, settings.attention_bias)
        self.dropout = Dropout("attention_dropout")
        self._encoding = (encoding,)  # in a tuple, since all blocks share it and the backbone owns it

    @property
    def encoding(self) -> PositionEncoding:
        return self._encoding[0]

    def forward(
        self, x: Tensor, positions: Positions, past: LayerCache | None, hooks: Hooks, name: str,
        cache: list[LayerCache] | None = None,
    ) -> Tensor:  # fmt: skip
        """What attention adds to the residual stream; appends this block's keys and values to `cache`."""
        return self.out(self.attend(x, positions, past, hooks, name, cache))

    def attend(
        self, x: Tensor, positions: Positions, past: LayerCache | None, hooks: Hooks, name: str,
        cache: list[LayerCache] | None = None,
    ) -> Tensor:  # fmt: skip
        """Concatenated head outputs before the output projection."""
        parts = (part.unflatten(-1, (self.heads, -1)) for part in self._project_qkv(x, positions))
        query, key, value = (hooks(f"{name}.{letter}", part) for letter, part in zip("qkv", parts, strict=True))
        n, n_past = x.shape[-2], 0 if past is None else past[0].shape[-3]
        query, key = self.encoding.rotate(query, positions, n, n_past), self.encoding.rotate(key, None, n, n_past)
        if cache is not None:
            cache.append((key, value))
        if past is not None:
            key, value = append_past(past[0], key), append_past(past[1], value)
        mask = causal_mask(positions, n, x.device, n_past) if self.causal else x.new_ones(n, n, dtype=torch.bool)
        bias = self.encoding.bias(x, positions, n_past)
        # SDPA's built-in causal mask fits only where the queries are at all source positions
        causal = None if self.causal and (positions is not None or past is not None) else self.causal
        heads_out = self._head_outputs(query, key, value, mask, bias, causal, hooks, f"{name}.pattern")
        return hooks(f"{name}.z", heads_out).flatten(-2)

    def _head_outputs(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, bias: Tensor | None, causal: bool | None,
        hooks: Hooks, name: str,
    ) -> Tensor:  # fmt: skip
        """Recording the attention weights without replacing them leaves the result bit-identical."""
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

    def prefill(self, x: Tensor) -> LayerCache:
        """Keys and values of these positions, without computing attention."""
        key, value = self.qkv(x, slice(self.dim, None)).unflatten(-1, (2 * self.heads, -1)).chunk(2, dim=-2)
        return self.encoding.rotate(key, None, x.shape[-2], 0), value

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
        self.dropout = Dropout("mlp_dropout")

    def forward(self, x: Tensor, hooks: Hooks, name: str) -> Tensor:
        return self.down(self.compute_hidden(x, hooks, name))

    def compute_hidden(self, x: Tensor, hooks: Hooks, name: str) -> Tensor:
        """Hidden activations, the input of the down projection."""
        hidden = self.activation(hooks(f"{name}.pre", self.up(x)))
        return self.dropout(hooks(f"{name}.post", hidden))


class Block(nn.Module):
    def __init__(self, settings: TransformerSettings, encoding: PositionEncoding) -> None:
        super().__init__()
        self.norm_first = settings.norm == "pre"
        self.attention, self.mlp = Attention(settings, encoding), MLP(settings)
        self.norm1, self.norm2 = LayerNorm(settings.dim), LayerNorm(settings.dim)
        self.dropout = Dropout()
        self.residual1, self.residual2 = Dropout("residual_dropout"), Dropout("residual_dropout")

    def forward(
        self, x: Tensor, positions: Positions, past: LayerCache | None, hooks: Hooks, name: str,
        cache: list[LayerCache] | None = None,
    ) -> Tensor:  # fmt: skip
        """Residual stream after this block at the requested positions; appends its keys and values to `cache`."""
        inner, x = f"{name}.attention", hooks(f"{name}.in", x)
        attended = self.attention(self.norm1(x) if self.norm_first else x, positions, past, hooks, inner, cache)
        x = select_positions(x, positions) + self.residual1(hooks(f"{inner}.out", attended))
        if self.norm_first:
            x = hooks(f"{name}.mid", x)
            return hooks(f"{name}.out", x + self._forward_mlp(self.norm2(x), hooks, f"{name}.mlp"))
        x = hooks(f"{name}.mid", self.norm1(x))
        return hooks(f"{name}.out", self.norm2(x + self._forward_mlp(x, hooks, f"{name}.mlp")))

    def _forward_mlp(self, x: Tensor, hooks: Hooks, name: str) -> Tensor:
        return hooks(f"{name}.out", self.residual2(self.dropout(self.mlp(x, hooks, name))))

    def prefill(self, x: Tensor) -> LayerCache:
        return self.attention.prefill(self.norm1(x) if self.norm_first else x)


class TransformerBackbone(SequenceModel):
    """Embeddings and blocks, shared by decoder and encoder."""

    def __init__(self, settings: TransformerSettings, vocabulary: int, context: int) -> None:
        super().__init__(settings)
        self.embed = Embedding(vocabulary, settings.dim, frozen=settings.embeddings is not None)
        self.position_table = POSITION_ENCODINGS[settings.positions](settings, context)
        self.embed_dropout = Dropout("embedding_dropout")
        self.blocks = nn.ModuleList(Block(settings, self.position_table) for _ in range(settings.layers))
        self.final_norm = LayerNorm(settings.dim) if settings.final_norm else None

    def embed_tokens(self, tokens: Tensor, n_past: int = 0, hooks: Hooks = NO_HOOKS) -> Tensor:
        """Token embeddings plus position embeddings, for tokens that follow n_past cached ones."""
        x = self.position_table.add(hooks("embed.tokens", self.embed(tokens)), n_past)
        return to_autocast_dtype(self.embed_dropout(x))

    def run_blocks(self, x: Tensor, positions: Positions, past: Sequence[LayerCache] | None, hooks: Hooks) -> Tensor:
        """Residual stream after all blocks, with the final norm if the model has one."""
        for i, block in enumerate(self.blocks):
            needed = positions if block is self.blocks[-1] else None
            x = block(x, needed, None if past is None else past[i], hooks, f"blocks.{i}")
        return x if self.final_norm is None else hooks("final_norm", self.final_norm(x))

    def unembed(self, x: Tensor) -> Tensor:
        """Logits from the residual stream after any block, as the logit lens needs them."""
        return self.compute_logits(x if self.final_norm is None else self.final_norm(x))

    def compute_logits(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class GPT(TransformerBackbone):
    def __init__(self, settings: GPTSettings, vocabulary: int, context: int) -> None:
        super().__init__(settings, vocabulary, context)
        self.output = OutputLayer(settings.dim, vocabulary, settings.output_bias, self.embed if settings.tied else None)

    def forward(
        self,
        tokens: Tensor,
        positions: Positions = None,
        hooks: Hooks = NO_HOOKS,
        past: Sequence[LayerCache] | None = None,
    ) -> Tensor:
        """Next-token logits at the requested positions; `past` is the cache of the preceding tokens (`prefill`)."""
        n_past = 0 if past is None else past[0][0].shape[-3]
        x = hooks("embed", self.embed_tokens(tokens, n_past, hooks))
        return hooks("logits", self.compute_logits(self.run_blocks(x, positions, past, hooks)))

    def compute_logits(self, x: Tensor) -> Tensor:
        return self.output(x)

    def prefill(self, tokens: Tensor) -> list[LayerCache]:
        """Keys and values of these tokens in each block."""
        *blocks, last = cast("list[Block]", list(self.blocks))
        cache: list[LayerCache] = []
        x = self.embed_tokens(tokens)
        for block in blocks:
            x = block(x, None, None, NO_HOOKS, "", cache)
        return [*cache, last.prefill(x)]  # the last block's output is not needed
