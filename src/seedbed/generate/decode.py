"""Models read token by token: each step writes what later ones need into memory that was set aside before.

    decoder = decoder_of(model, n_runs=1, n_samples=4, capacity=128)
    decoder.begin(prompt)                 # (R, b, T): b is 1 where all samples share the prompt
    logits = decoder.step(tokens)         # (R, B) → (R, B, V)

What a step computes is what `model(tokens)` computes at the last position without dropout. One token is so little work
that calling modules and looking up parameters would cost more than the arithmetic, so each decoder binds the weights
once, as plain functions. Which token comes next is left to `sample.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from seedbed.errors import UsageError
from seedbed.generate.lone import LoneDecoder
from seedbed.generate.memory import Angles, angles_at, blocks_of, distances_of, places_of, remembered, zeros
from seedbed.models.gpt import GPT, Attention, Block
from seedbed.models.layers import LayerNorm, Linear
from seedbed.models.lstm import LSTM, Cell, Memory
from seedbed.models.positions import turn
from seedbed.models.taps import NO_TAPS

Map: TypeAlias = Callable[[Tensor], Tensor]
ROOM = 32  # places that a decoder's room grows by


class Decoder(Protocol):
    """The tokens read so far, as a model remembers them."""

    def begin(self, tokens: Int[Tensor, "R b T"]) -> None:
        """Forgets everything and reads these tokens, which may be none."""
        ...

    def step(self, tokens: Int[Tensor, "R B"]) -> Float[Tensor, "R B V"]:
        """Reads one more token of every sample; the logits of the token after it."""
        ...


def decoder_of(model: nn.Module, n_runs: int, n_samples: int, capacity: int) -> Decoder:
    """A decoder that can hold `capacity` tokens of every sample of every run."""
    if isinstance(model, GPT):
        if n_runs == n_samples == 1 and model.embed.weight.device.type == "cpu":
            return LoneDecoder(model, capacity)
        return GPTDecoder(model, n_runs, n_samples, capacity)
    if isinstance(model, LSTM):
        return LSTMDecoder(model, n_samples)
    raise UsageError("this model tells labels and writes no text; sample from a gpt or an lstm")


class GPTDecoder:
    """Keys and values of all positions so far. Of one run, activations are (B, D); of several, (R, B, D).

    Keys and values of a head lie side by side in memory, with room for a few places more: a step reads the room to its
    end and hides what is not written yet, since gaps between heads would stop the processor from reading ahead (three
    times slower, docs/log.md). When the room is full they move to a larger one.
    """

    def __init__(self, model: GPT, n_runs: int, n_samples: int, capacity: int) -> None:
        self.model, self.n, self.shape, self.capacity = model, 0, (n_runs, n_samples), capacity
        self._layers = [_Layer(block) for block in blocks_of(model)]
        self._places = places_of(model, capacity)
        attention = next(blocks_of(model)).attention
        self._frequencies, self._heads = attention.frequencies, attention.heads
        self._bias = _biases(attention, capacity)
        self._held = self._room(0)

    def begin(self, tokens: Int[Tensor, "R b T"]) -> None:
        self.n = tokens.shape[-1]
        self._held = self._room(self.n)
        for held, memory in zip(self._held, remembered(self.model, tokens), strict=False):
            for kept, part in zip(held, memory, strict=True):
                kept.view(*self.shape, *kept.shape[1:])[..., : self.n, :] = part.transpose(2, 3)

    def _room(self, n: int) -> Float[Tensor, "L 2 RB H S K"]:
        """Nothing yet, with room for n places and some more."""
        size = min(self.capacity, -(-(n + 1) // ROOM) * ROOM)
        attention, n_rows = next(blocks_of(self.model)).attention, self.shape[0] * self.shape[1]
        shape = (len(self._layers), 2, n_rows, self._heads, size, attention.dim // self._heads)
        return zeros(shape, like=attention.qkv.weight)

    def _make_room(self) -> None:
        if self.n == self._held.shape[-2]:
            held = self._held
            self._held = self._room(self.n)
            self._held[..., : self.n, :] = held

    def step(self, tokens: Int[Tensor, "R B"]) -> Float[Tensor, "R B V"]:
        self._make_room()
        x = self.model.embed(tokens[..., None])[..., 0, :]
        if self._places is not None:
            x = x + self._places[:, self.n, None]
        if len(x) == 1:
            x = x[0]
        angles, bias = angles_at(self.n, self._frequencies, x.dtype), self._bias_now()
        for layer, held in zip(self._layers, self._held, strict=True):
            x = layer.step(x, held, self.n, bias, angles)
        self.n += 1
        x = x.view(*self.shape, 1, -1)
        if self.model.final_norm is not None:
            x = self.model.final_norm(x)
        return self.model.output(x)[..., 0, :]

    def _bias_now(self) -> Float[Tensor, "RBH 1 S"]:
        """What is added to the scores of a query at the next place."""
        size, start = self._held.shape[-2], self.capacity - 1 - self.n
        return self._bias[:, start : start + size].repeat(self._held.shape[2], 1)[:, None]


class _Layer:
    """One block, as a function of what is remembered before it."""

    def __init__(self, block: Block) -> None:
        attention, mlp = block.attention, block.mlp
        self.heads, self.width = attention.heads, attention.dim // attention.heads
        self._norm_first, self._norm1, self._norm2 = block.norm_first, _norm(block.norm1), _norm(block.norm2)
        self._qkv, self._out = _affine(attention.qkv), _affine(attention.out)
        self._up, self._activation, self._down = _affine(mlp.up), mlp.activation, _affine(mlp.down)

    def step(
        self, x: Float[Tensor, "*R B D"], held: Float[Tensor, "2 RB H S K"], n: int, bias: Tensor, angles: Angles | None
    ) -> Float[Tensor, "*R B D"]:
        """The stream after this block; the token stands at place n, where its key and value are written."""
        if self._norm_first:
            x = x + self._attend(self._norm1(x), held, n, bias, angles)
            return x + self._down(self._activation(self._up(self._norm2(x))))
        x = self._norm1(x + self._attend(x, held, n, bias, angles))
        return self._norm2(x + self._down(self._activation(self._up(x))))

    def _attend(self, x: Tensor, held: Tensor, n: int, bias: Tensor, angles: Angles | None) -> Tensor:
        qkv = self._qkv(x).view(-1, 3, self.heads, self.width)
        if angles is not None:
            qkv[:, :2] = turn(qkv[:, :2], *angles)
        held[:, :, :, n] = qkv[:, 1:].transpose(0, 1)
        keys, values = held.flatten(1, 2)
        query = qkv[:, 0].reshape(-1, 1, self.width)
        # For one query two batched products are faster than the fused kernel, which goes head by head.
        scores = torch.baddbmm(bias, query, keys.mT, alpha=self.width**-0.5)
        return self._out(torch.bmm(scores.softmax(-1), values).view(x.shape))


def _affine(part: Linear) -> Map:
    """The map of one token; turned matrices are copied, since products with them are faster row by row."""
    weight, bias = part.weight.mT.contiguous(), part.bias
    if len(weight) > 1:
        rows = None if bias is None else bias[:, None]
        return (lambda x: torch.bmm(x, weight)) if rows is None else (lambda x: torch.baddbmm(rows, x, weight))
    matrix, row = weight[0], None if bias is None else bias[0]
    return (lambda x: torch.mm(x, matrix)) if row is None else (lambda x: torch.addmm(row, x, matrix))


def _norm(part: LayerNorm) -> Map:
    weight, bias, shape = part.weight, part.bias, part.weight.shape[1:]
    if len(weight) > 1:
        scale, shift = weight[:, None], bias[:, None]
        return lambda x: torch.addcmul(shift, F.layer_norm(x, shape), scale)
    gain, offset = weight[0], bias[0]
    return lambda x: F.layer_norm(x, shape, gain, offset)


def _biases(attention: Attention, capacity: int) -> Float[Tensor, "H S"]:
    """What is added to scores by distance (ALiBi, or nothing), then −∞ for places that come after the query's."""
    weight, distances = attention.qkv.weight, distances_of(attention.slopes, capacity)
    before = weight.new_zeros(attention.heads, capacity) if distances is None else distances.to(weight.dtype)
    return torch.cat([before, before.new_full(before.shape, float("-inf"))], dim=1)


class LSTMDecoder:
    """State and cell of every layer after the last token."""

    def __init__(self, model: LSTM, n_samples: int) -> None:
        self.model, self.n_samples = model, n_samples
        self._memories: list[Memory] = []

    def begin(self, tokens: Int[Tensor, "R b T"]) -> None:
        self._memories = [(self._for_all(h), self._for_all(c)) for h, c in remembered(self.model, tokens)]

    def _for_all(self, state: Float[Tensor, "R b D"]) -> Float[Tensor, "R B D"]:
        return state.expand(-1, self.n_samples, -1)

    def step(self, tokens: Int[Tensor, "R B"]) -> Float[Tensor, "R B V"]:
        x, memories = self.model.embed(tokens[..., None]), []
        for i, cell in enumerate(self.model.cells):
            assert isinstance(cell, Cell)
            x, memory = cell(x, self._memories[i] if self._memories else None, NO_TAPS, "")
            memories.append(memory)
        self._memories = memories
        if self.model.projection is not None:
            x = self.model.activation(self.model.projection(x))
        return self.model.output(x)[..., 0, :]
