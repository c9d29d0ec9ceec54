"""KV-cached decoding of a GPT: one token per step, with the weights bound once into plain functions.

For a single token, module calls and parameter lookups cost more than the arithmetic. This spells a GPT's forward pass
out once more, so it takes only models whose parts it all knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from seedbed.models.decoding import Decoder, RecomputingDecoder, prefill_cache
from seedbed.models.fast.modules import FAST_MODULES
from seedbed.models.gpt import GPT, MLP, Attention, Block
from seedbed.models.layers import LayerNorm, Linear
from seedbed.models.positions import (
    ALiBi,
    LearnedPositions,
    PositionEncoding,
    RotaryPositions,
    SinusoidalPositions,
    T5Bias,
    rotate_pairs,
    sinusoidal_embedding,
)

TensorFunction: TypeAlias = Callable[[Tensor], Tensor]
RotaryAngles: TypeAlias = tuple[Tensor, Tensor]  # cos and sin
CACHE_GROWTH_POSITIONS = 32  # the KV cache grows by this many positions
# Encodings whose bias, if any, depends only on the distance between two positions.
DECODED_ENCODINGS = (PositionEncoding, SinusoidalPositions, LearnedPositions, ALiBi, RotaryPositions, T5Bias)


def make_gpt_decoder(model: GPT, n_runs: int, n_samples: int, capacity: int) -> Decoder:
    """The fastest decoder that knows every part of the model; NumPy for a single sample of one run on the CPU."""
    from seedbed.models.fast.numpy_decoder import NumpyDecoder

    if not is_standard(model):
        return RecomputingDecoder(model, n_samples)
    if n_runs == n_samples == 1 and model.embed.weight.device.type == "cpu":
        return NumpyDecoder(model, capacity)
    return GPTDecoder(model, n_runs, n_samples, capacity)


def is_standard(model: GPT) -> bool:
    """True if every part of the model is one that the cached decoders compute."""
    parts: list[tuple[nn.Module, type[nn.Module]]] = [(model, GPT)]
    for block in iter_blocks(model):
        parts += [(block, Block), (block.attention, Attention), (block.mlp, MLP)]
    known = all(type(part) in (readable, FAST_MODULES[readable]) for part, readable in parts)
    return known and type(model.position_table) in DECODED_ENCODINGS


class _CachedGPT:
    """What both decoders below share: a GPT's blocks as functions of one token, and its other layers.

    Activations are (B, D) for one run and (R, B, D) for several.
    """

    def __init__(self, model: GPT, n_runs: int, n_samples: int, capacity: int, copy_weights: bool) -> None:
        self.model, self.shape, self.capacity = model, (n_runs, n_samples), capacity
        self._layers = [_CachedBlock(block, copy_weights) for block in iter_blocks(model)]
        self._attention = next(iter_blocks(model)).attention
        self._position_embeddings = position_embeddings(model, capacity)

    def _cache_shape(self, n_positions: int) -> tuple[int, ...]:
        """(L, 2, RB, H, S, K): keys and values of each layer."""
        n_rows, heads = self.shape[0] * self.shape[1], self._attention.heads
        return len(self._layers), 2, n_rows, heads, n_positions, self._attention.dim // heads

    def _fill(self, kv_cache: Float[Tensor, "L 2 RB H S K"], tokens: Int[Tensor, "R b T"]) -> None:
        """Writes the keys and values of these tokens to the beginning of the cache."""
        # Not strict: there are no layers to copy for an empty prompt.
        for layer_cache, keys_values in zip(kv_cache, prefill_cache(self.model, tokens), strict=False):
            for cached, computed in zip(layer_cache, keys_values, strict=True):
                cached.view(*self.shape, *cached.shape[1:])[..., : tokens.shape[-1], :] = computed.transpose(2, 3)

    def _forward(
        self,
        tokens: Int[Tensor, "R B"],
        kv_cache: Float[Tensor, "L 2 RB H S K"],
        position: int | Int[Tensor, "1"],
        position_embedding: Float[Tensor, "#R 1 D"] | None,
        bias: Float[Tensor, "RBH 1 S"],
    ) -> Float[Tensor, "R B V"]:
        """Logits after these tokens, all at this position; `bias` is that of positions and mask."""
        x = self.model.embed(tokens[..., None])[..., 0, :]
        if position_embedding is not None:
            x = x + position_embedding
        if len(x) == 1:
            x = x[0]
        angles = rotary_angles(position, self.model.position_table, x.dtype)
        for layer, layer_cache in zip(self._layers, kv_cache, strict=True):
            x = layer.step(x, layer_cache, position, bias, angles)
        x = x.view(*self.shape, 1, -1)
        if self.model.final_norm is not None:
            x = self.model.final_norm(x)
        return self.model.output(x)[..., 0, :]


class GPTDecoder(_CachedGPT):
    """Decodes with a KV cache that grows.

    The cache of each head is contiguous and slightly larger than needed: a step attends over all of it and masks the
    unwritten positions, because slicing would leave gaps between heads that defeat hardware prefetching (three times
    slower, docs/log.md). A full cache is copied into a larger one.
    """

    def __init__(self, model: GPT, n_runs: int, n_samples: int, capacity: int) -> None:
        super().__init__(model, n_runs, n_samples, capacity, copy_weights=True)
        self.n_cached = 0
        self._bias = _attention_bias(self._attention, capacity)
        self._kv_cache = self._allocate_cache(0)

    def prefill(self, tokens: Int[Tensor, "R b T"]) -> None:
        self.n_cached = tokens.shape[-1]
        self._kv_cache = self._allocate_cache(self.n_cached)
        self._fill(self._kv_cache, tokens)

    def _allocate_cache(self, n_positions: int) -> Float[Tensor, "L 2 RB H S K"]:
        """An empty cache for at least n_positions + 1 positions, rounded up to a multiple of CACHE_GROWTH_POSITIONS."""
        size = min(self.capacity, -(-(n_positions + 1) // CACHE_GROWTH_POSITIONS) * CACHE_GROWTH_POSITIONS)
        return allocate_zeros(self._cache_shape(size), like=self._attention.qkv.weight)

    def step(self, tokens: Int[Tensor, "R B"]) -> Float[Tensor, "R B V"]:
        position, added = self.n_cached, None
        if position == self._kv_cache.shape[-2]:
            full_cache = self._kv_cache
            self._kv_cache = self._allocate_cache(position)
            self._kv_cache[..., :position, :] = full_cache
        if self._position_embeddings is not None:
            added = self._position_embeddings[:, position, None]
        size, start = self._kv_cache.shape[-2], self.capacity - 1 - position
        bias = self._bias[:, None, :, start : start + size].expand(*self.shape, -1, -1).reshape(-1, 1, size)
        self.n_cached += 1
        return self._forward(tokens, self._kv_cache, position, added, bias)


class StaticGPTDecoder(_CachedGPT):
    """A GPT decoder that can be captured as a CUDA graph: its tensors stay in place and it asks the host for nothing.

    The cache has its full size from the start, the position is a tensor, and weights are read where the model has them.
    """

    def __init__(self, model: GPT, n_runs: int, n_samples: int, capacity: int) -> None:
        super().__init__(model, n_runs, n_samples, capacity, copy_weights=False)
        self._kv_cache = self._attention.qkv.weight.new_zeros(self._cache_shape(capacity))
        self._bias = _attention_bias(self._attention, capacity).clone()
        self._offsets = torch.arange(capacity, device=self._bias.device)
        self._n_cached = torch.zeros(1, dtype=torch.int64, device=self._bias.device)

    def prefill(self, tokens: Int[Tensor, "R b T"]) -> None:
        self._n_cached.fill_(tokens.shape[-1])
        self._bias.copy_(_attention_bias(self._attention, self.capacity))
        self._fill(self._kv_cache, tokens)

    def step(self, tokens: Int[Tensor, "R B"]) -> Float[Tensor, "R B V"]:
        added = None
        if self._position_embeddings is not None:
            added = self._position_embeddings.index_select(1, self._n_cached)
        bias = self._bias.index_select(-1, self.capacity - 1 - self._n_cached + self._offsets)[:, None]
        bias = bias.expand(*self.shape, -1, -1).reshape(-1, 1, self.capacity)
        logits = self._forward(tokens, self._kv_cache, self._n_cached, added, bias)
        self._n_cached += 1
        return logits


class _CachedBlock:
    """One transformer block as a function of the current token and the layer's KV cache."""

    def __init__(self, block: Block, copy_weights: bool) -> None:
        attention, mlp = block.attention, block.mlp
        self.heads, self.head_dim = attention.heads, attention.dim // attention.heads
        self._norm_first = block.norm_first
        self._norm1, self._norm2 = _bind_layer_norm(block.norm1), _bind_layer_norm(block.norm2)
        self._activation = mlp.activation
        self._qkv, self._out, self._up, self._down = (
            _bind_linear(linear, copy_weights) for linear in (attention.qkv, attention.out, mlp.up, mlp.down)
        )

    def step(
        self,
        x: Float[Tensor, "*R B D"],
        kv_cache: Float[Tensor, "2 RB H S K"],
        position: int | Int[Tensor, "1"],
        bias: Tensor,
        angles: RotaryAngles | None,
    ) -> Float[Tensor, "*R B D"]:
        """The residual stream after this block; writes the token's key and value into the cache at `position`."""
        if self._norm_first:
            x = x + self._attend(self._norm1(x), kv_cache, position, bias, angles)
            return x + self._down(self._activation(self._up(self._norm2(x))))
        x = self._norm1(x + self._attend(x, kv_cache, position, bias, angles))
        return self._norm2(x + self._down(self._activation(self._up(x))))

    def _attend(
        self, x: Tensor, kv_cache: Tensor, position: int | Tensor, bias: Tensor, angles: RotaryAngles | None
    ) -> Tensor:
        qkv = self._qkv(x).view(-1, 3, self.heads, self.head_dim)
        if angles is not None:
            qkv[:, :2] = rotate_pairs(qkv[:, :2], *angles)
        if isinstance(position, int):
            kv_cache[:, :, :, position] = qkv[:, 1:].transpose(0, 1)
        else:
            kv_cache.index_copy_(3, position, qkv[:, 1:].transpose(0, 1)[..., None, :])
        keys, values = kv_cache.flatten(1, 2)
        query = qkv[:, 0].reshape(-1, 1, self.head_dim)
        # For a single query, two batched matmuls are faster than the fused SDPA kernel, which loops over heads.
        scores = torch.baddbmm(bias, query, keys.mT, alpha=self.head_dim**-0.5)
        return self._out(torch.bmm(scores.softmax(-1), values).view(x.shape))


def _bind_linear(linear: Linear, copy_weights: bool) -> TensorFunction:
    """The linear map as a function of one token; a copy of the transposed weight makes it faster on a CPU."""
    weight, bias = linear.weight.mT, linear.bias
    if copy_weights:
        weight = weight.contiguous()
    if len(weight) > 1:
        rows = None if bias is None else bias[:, None]
        return (lambda x: torch.bmm(x, weight)) if rows is None else (lambda x: torch.baddbmm(rows, x, weight))
    matrix, row = weight[0], None if bias is None else bias[0]
    return (lambda x: torch.mm(x, matrix)) if row is None else (lambda x: torch.addmm(row, x, matrix))


def _bind_layer_norm(layer_norm: LayerNorm) -> TensorFunction:
    weight, bias, shape = layer_norm.weight, layer_norm.bias, layer_norm.weight.shape[1:]
    if len(weight) > 1:
        scale, shift = weight[:, None], bias[:, None]
        return lambda x: torch.addcmul(shift, F.layer_norm(x, shape), scale)
    gain, offset = weight[0], bias[0]
    return lambda x: F.layer_norm(x, shape, gain, offset)


def _attention_bias(attention: Attention, capacity: int) -> Float[Tensor, "#R H S"]:
    """Bias by distance (or zeros) followed by −∞ for unwritten positions; each query uses a slice of it."""
    past = last_query_bias(attention, capacity)
    past = attention.qkv.weight.new_zeros(1, attention.heads, capacity) if past is None else past
    return torch.cat([past, past.new_full(past.shape, float("-inf"))], dim=-1)


def iter_blocks(model: GPT) -> Iterator[Block]:
    for block in model.blocks:
        assert isinstance(block, Block)
        yield block


def position_embeddings(model: GPT, capacity: int) -> Float[Tensor, "#R S D"] | None:
    """Additive position embeddings (learned or sinusoidal), or None if the model uses another kind."""
    encoding = model.position_table
    if isinstance(encoding, LearnedPositions):
        return encoding.weight
    if not isinstance(encoding, SinusoidalPositions):
        return None
    return sinusoidal_embedding(capacity, encoding.dim, encoding.exponent).to(model.embed.weight)[None]


def rotary_angles(
    position: int | Int[Tensor, "1"], encoding: PositionEncoding, dtype: torch.dtype
) -> RotaryAngles | None:
    """Rotary cos and sin for a position, or None if the model has no rotary embedding."""
    if not isinstance(encoding, RotaryPositions):
        return None
    angle = position * encoding.frequencies
    return angle.cos().to(dtype), angle.sin().to(dtype)


def last_query_bias(attention: Attention, capacity: int) -> Float[Tensor, "#R H S"] | None:
    """Position bias of a query at the last position, or None; its last n entries are the bias over n keys."""
    like = attention.qkv.weight.new_empty(capacity, 0)  # only its length, device and dtype matter
    bias = attention.encoding.bias(like, slice(-1, None), 0)
    return None if bias is None else bias.detach().reshape(-1, capacity, attention.heads).mT


def allocate_zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """Zeros; on the CPU allocated by NumPy in huge pages, which batched matmuls read a third faster (docs/log.md)."""
    if like.device.type != "cpu":
        return like.new_zeros(tuple(shape))
    return torch.from_numpy(np.zeros(shape, dtype=like.new_empty(0).numpy().dtype))
