"""Incremental decoding: one token per step with a preallocated KV cache (GPT) or a carried state (LSTM).

    decoder = make_decoder(model, n_runs=1, n_samples=4, capacity=128)
    decoder.prefill(prompt)               # (R, b, T): b is 1 if all samples share the prompt
    logits = decoder.step(tokens)         # (R, B) → (R, B, V)

A step computes the logits of `model(tokens)` at the last position, without dropout. For a single token, module calls
and parameter lookups cost more than the arithmetic, so each decoder binds the weights once into plain functions.
Choosing the next token is left to `sampler.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from seedbed.errors import UsageError
from seedbed.models.gpt import DECODED_POSITIONS, GPT, Attention, Block
from seedbed.models.hooks import NO_HOOKS
from seedbed.models.layers import LayerNorm, Linear
from seedbed.models.lstm import LSTM, LSTMCell, LSTMState
from seedbed.models.positions import rotate_pairs
from seedbed.sampling.kv_cache import (
    RotaryAngles,
    alibi_last_query_bias,
    allocate_zeros,
    iter_blocks,
    position_embeddings,
    prefill_cache,
    rotary_angles,
)
from seedbed.sampling.numpy_decoder import NumpyDecoder

TensorFunction: TypeAlias = Callable[[Tensor], Tensor]
CACHE_GROWTH_POSITIONS = 32  # the KV cache grows by this many positions


class Decoder(Protocol):
    """A model together with its cache of the tokens so far."""

    def prefill(self, tokens: Int[Tensor, "R b T"]) -> None:
        """Resets the cache and fills it with these tokens (possibly none)."""
        ...

    def step(self, tokens: Int[Tensor, "R B"]) -> Float[Tensor, "R B V"]:
        """Appends one token to every sample and returns the logits of the next token."""
        ...


def make_decoder(model: nn.Module, n_runs: int, n_samples: int, capacity: int) -> Decoder:
    """Returns a decoder for at most `capacity` tokens per sample; NumPy for a single sample of one GPT on the CPU.

    The cached decoders spell a model's forward pass out once more, so they take only models that they know in full.
    """
    if isinstance(model, GPT | LSTM) and not is_standard(model):
        return RecomputingDecoder(model, n_samples)
    if isinstance(model, GPT):
        if n_runs == n_samples == 1 and model.embed.weight.device.type == "cpu":
            return NumpyDecoder(model, capacity)
        return GPTDecoder(model, n_runs, n_samples, capacity)
    if isinstance(model, LSTM):
        return LSTMDecoder(model, n_samples)
    raise UsageError("this model predicts labels and generates no text; sample from a gpt or an lstm")


def is_standard(model: GPT | LSTM) -> bool:
    """True if every part of the model is one that the cached decoders compute."""
    if isinstance(model, LSTM):
        return type(model) is LSTM and all(type(cell) is LSTMCell for cell in model.cells)
    if type(model) is not GPT or not all(isinstance(block, Block) and block.is_standard for block in model.blocks):
        return False
    return all(block.attention.position_encoding in DECODED_POSITIONS for block in iter_blocks(model))


class RecomputingDecoder:
    """Runs the model's own forward over all tokens at each step: slow, and right for any model."""

    def __init__(self, model: nn.Module, n_samples: int) -> None:
        self.model, self.n_samples = model, n_samples
        self._tokens = torch.empty(0, dtype=torch.int64)

    def prefill(self, tokens: Int[Tensor, "R b T"]) -> None:
        self._tokens = tokens.expand(-1, self.n_samples, -1)

    def step(self, tokens: Int[Tensor, "R B"]) -> Float[Tensor, "R B V"]:
        self._tokens = torch.cat([self._tokens, tokens[..., None]], dim=-1)
        return self.model(self._tokens)[..., -1, :]


class GPTDecoder:
    """Decodes with a KV cache. Activations are (B, D) for one run and (R, B, D) for several.

    The cache of each head is contiguous and slightly larger than needed: a step attends over all of it and masks the
    unwritten positions, because slicing would leave gaps between heads that defeat hardware prefetching (three times
    slower, docs/log.md). A full cache is copied into a larger one.
    """

    def __init__(self, model: GPT, n_runs: int, n_samples: int, capacity: int) -> None:
        self.model, self.n_cached, self.shape, self.capacity = model, 0, (n_runs, n_samples), capacity
        self._layers = [_CachedBlock(block) for block in iter_blocks(model)]
        self._position_embeddings = position_embeddings(model, capacity)
        attention = next(iter_blocks(model)).attention
        self._frequencies, self._heads = attention.frequencies, attention.heads
        self._bias = _attention_bias(attention, capacity)
        self._kv_cache = self._allocate_cache(0)

    def prefill(self, tokens: Int[Tensor, "R b T"]) -> None:
        self.n_cached = tokens.shape[-1]
        self._kv_cache = self._allocate_cache(self.n_cached)
        # Not strict: there are no layers to copy for an empty prompt.
        for layer_cache, keys_values in zip(self._kv_cache, prefill_cache(self.model, tokens), strict=False):
            for cached, computed in zip(layer_cache, keys_values, strict=True):
                cached.view(*self.shape, *cached.shape[1:])[..., : self.n_cached, :] = computed.transpose(2, 3)

    def _allocate_cache(self, n_positions: int) -> Float[Tensor, "L 2 RB H S K"]:
        """An empty cache for at least n_positions + 1 positions, rounded up to a multiple of CACHE_GROWTH_POSITIONS."""
        size = min(self.capacity, -(-(n_positions + 1) // CACHE_GROWTH_POSITIONS) * CACHE_GROWTH_POSITIONS)
        attention, n_rows = next(iter_blocks(self.model)).attention, self.shape[0] * self.shape[1]
        shape = (len(self._layers), 2, n_rows, self._heads, size, attention.dim // self._heads)
        return allocate_zeros(shape, like=attention.qkv.weight)

    def _grow_cache(self) -> None:
        if self.n_cached == self._kv_cache.shape[-2]:
            full_cache = self._kv_cache
            self._kv_cache = self._allocate_cache(self.n_cached)
            self._kv_cache[..., : self.n_cached, :] = full_cache

    def step(self, tokens: Int[Tensor, "R B"]) -> Float[Tensor, "R B V"]:
        self._grow_cache()
        x = self.model.embed(tokens[..., None])[..., 0, :]
        if self._position_embeddings is not None:
            x = x + self._position_embeddings[:, self.n_cached, None]
        if len(x) == 1:
            x = x[0]
        angles, bias = rotary_angles(self.n_cached, self._frequencies, x.dtype), self._current_bias()
        for layer, layer_cache in zip(self._layers, self._kv_cache, strict=True):
            x = layer.step(x, layer_cache, self.n_cached, bias, angles)
        self.n_cached += 1
        x = x.view(*self.shape, 1, -1)
        if self.model.final_norm is not None:
            x = self.model.final_norm(x)
        return self.model.output(x)[..., 0, :]

    def _current_bias(self) -> Float[Tensor, "RBH 1 S"]:
        """Attention bias (ALiBi and mask) of a query at the next position."""
        size, start = self._kv_cache.shape[-2], self.capacity - 1 - self.n_cached
        return self._bias[:, start : start + size].repeat(self._kv_cache.shape[2], 1)[:, None]


class _CachedBlock:
    """One transformer block as a function of the current token and the layer's KV cache."""

    def __init__(self, block: Block) -> None:
        attention, mlp = block.attention, block.mlp
        self.heads, self.head_dim = attention.heads, attention.dim // attention.heads
        self._norm_first = block.norm_first
        self._norm1, self._norm2 = _bind_layer_norm(block.norm1), _bind_layer_norm(block.norm2)
        self._qkv, self._out = _bind_linear(attention.qkv), _bind_linear(attention.out)
        self._up, self._activation, self._down = _bind_linear(mlp.up), mlp.activation, _bind_linear(mlp.down)

    def step(
        self,
        x: Float[Tensor, "*R B D"],
        kv_cache: Float[Tensor, "2 RB H S K"],
        position: int,
        bias: Tensor,
        angles: RotaryAngles | None,
    ) -> Float[Tensor, "*R B D"]:
        """The residual stream after this block; writes the token's key and value into the cache at `position`."""
        if self._norm_first:
            x = x + self._attend(self._norm1(x), kv_cache, position, bias, angles)
            return x + self._down(self._activation(self._up(self._norm2(x))))
        x = self._norm1(x + self._attend(x, kv_cache, position, bias, angles))
        return self._norm2(x + self._down(self._activation(self._up(x))))

    def _attend(self, x: Tensor, kv_cache: Tensor, position: int, bias: Tensor, angles: RotaryAngles | None) -> Tensor:
        qkv = self._qkv(x).view(-1, 3, self.heads, self.head_dim)
        if angles is not None:
            qkv[:, :2] = rotate_pairs(qkv[:, :2], *angles)
        kv_cache[:, :, :, position] = qkv[:, 1:].transpose(0, 1)
        keys, values = kv_cache.flatten(1, 2)
        query = qkv[:, 0].reshape(-1, 1, self.head_dim)
        # For a single query, two batched matmuls are faster than the fused SDPA kernel, which loops over heads.
        scores = torch.baddbmm(bias, query, keys.mT, alpha=self.head_dim**-0.5)
        return self._out(torch.bmm(scores.softmax(-1), values).view(x.shape))


def _bind_linear(linear: Linear) -> TensorFunction:
    """The linear map as a function of one token; copies the transposed weight, since a contiguous matmul is faster."""
    weight, bias = linear.weight.mT.contiguous(), linear.bias
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


def _attention_bias(attention: Attention, capacity: int) -> Float[Tensor, "H S"]:
    """Bias by distance (ALiBi or zeros) followed by −∞ for unwritten positions; each query uses a slice of it."""
    weight, alibi = attention.qkv.weight, alibi_last_query_bias(attention.slopes, capacity)
    past = weight.new_zeros(attention.heads, capacity) if alibi is None else alibi.to(weight.dtype)
    return torch.cat([past, past.new_full(past.shape, float("-inf"))], dim=1)


class LSTMDecoder:
    """Decodes with the hidden and cell state of every layer after the last token."""

    def __init__(self, model: LSTM, n_samples: int) -> None:
        self.model, self.n_samples = model, n_samples
        self._states: list[LSTMState] = []

    def prefill(self, tokens: Int[Tensor, "R b T"]) -> None:
        self._states = [
            (self._expand_to_samples(h), self._expand_to_samples(c)) for h, c in prefill_cache(self.model, tokens)
        ]

    def _expand_to_samples(self, state: Float[Tensor, "R b D"]) -> Float[Tensor, "R B D"]:
        return state.expand(-1, self.n_samples, -1)

    def step(self, tokens: Int[Tensor, "R B"]) -> Float[Tensor, "R B V"]:
        x, states = self.model.embed(tokens[..., None]), []
        for i, cell in enumerate(self.model.cells):
            assert isinstance(cell, LSTMCell)
            x, state = cell(x, self._states[i] if self._states else None, NO_HOOKS, "")
            states.append(state)
        self._states = states
        if self.model.projection is not None:
            x = self.model.activation(self.model.projection(x))
        return self.model.output(x)[..., 0, :]
