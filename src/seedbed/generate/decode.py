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
from seedbed.generate.memory import blocks_of, places_of, remembered
from seedbed.models.gpt import GPT, Attention, Block
from seedbed.models.layers import LayerNorm, Linear
from seedbed.models.lstm import LSTM, Cell, Memory
from seedbed.models.positions import rotate
from seedbed.models.taps import NO_TAPS

Map: TypeAlias = Callable[[Tensor], Tensor]


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
    """Keys and values of all positions so far. Of one run, activations are (B, D); of several, (R, B, D)."""

    def __init__(self, model: GPT, n_runs: int, n_samples: int, capacity: int) -> None:
        self.model, self.n, self.shape = model, 0, (n_runs, n_samples)
        self._layers = [_Layer(block, n_runs, n_samples, capacity) for block in blocks_of(model)]
        self._places = places_of(model, capacity)

    def begin(self, tokens: Int[Tensor, "R b T"]) -> None:
        self.n = tokens.shape[-1]
        for layer, memory in zip(self._layers, remembered(self.model, tokens), strict=False):
            for held, part in zip((layer.keys, layer.values), memory, strict=True):
                held.view(*self.shape, -1, *held.shape[1:])[..., : self.n, :] = part.transpose(2, 3)

    def step(self, tokens: Int[Tensor, "R B"]) -> Float[Tensor, "R B V"]:
        x = self.model.embed(tokens[..., None])[..., 0, :]
        if self._places is not None:
            x = x + self._places[:, self.n, None]
        if len(x) == 1:
            x = x[0]
        for layer in self._layers:
            x = layer.step(x, self.n)
        self.n += 1
        x = x.view(*self.shape, 1, -1)
        if self.model.final_norm is not None:
            x = self.model.final_norm(x)
        return self.model.output(x)[..., 0, :]


class _Layer:
    """One block with its keys and values, (R·B·H, capacity, K) each."""

    def __init__(self, block: Block, n_runs: int, n_samples: int, capacity: int) -> None:
        attention, mlp = block.attention, block.mlp
        self.heads, self.width = attention.heads, attention.dim // attention.heads
        self._held = attention.qkv.weight.new_empty(2, n_runs * n_samples, self.heads, capacity, self.width)
        self.keys, self.values = self._held.flatten(1, 2)
        self._norm_first, self._norm1, self._norm2 = block.norm_first, _norm(block.norm1), _norm(block.norm2)
        self._qkv, self._out = _affine(attention.qkv), _affine(attention.out)
        self._up, self._activation, self._down = _affine(mlp.up), mlp.activation, _affine(mlp.down)
        self._bias, self._frequencies = _distances(attention, capacity), attention.frequencies

    def step(self, x: Float[Tensor, "*R B D"], n: int) -> Float[Tensor, "*R B D"]:
        """The stream after this block; the token stands at place n."""
        if self._norm_first:
            x = x + self._attend(self._norm1(x), n)
            return x + self._down(self._activation(self._up(self._norm2(x))))
        x = self._norm1(x + self._attend(x, n))
        return self._norm2(x + self._down(self._activation(self._up(x))))

    def _attend(self, x: Float[Tensor, "*R B D"], n: int) -> Float[Tensor, "*R B D"]:
        qkv = self._qkv(x).view(-1, 3, self.heads, self.width)
        if self._frequencies is not None:
            qkv = self._turned(qkv, n)
        self._held[:, :, :, n] = qkv[:, 1:].transpose(0, 1)
        query = (qkv[:, 0] * self.width**-0.5).view(-1, 1, self.width)
        scores = torch.bmm(
            query, self.keys[:, : n + 1].mT
        )  # for one query faster than the fused kernel, a head at a time
        if self._bias is not None:
            scores = (scores.view(-1, self.heads, n + 1) + self._bias[:, -n - 1 :]).view(scores.shape)
        mixed = torch.bmm(scores.softmax(-1), self.values[:, : n + 1])
        return self._out(mixed.view(x.shape))

    def _turned(self, qkv: Float[Tensor, "RB 3 H K"], n: int) -> Float[Tensor, "RB 3 H K"]:
        """Queries and keys turned by their place, values as they are."""
        assert self._frequencies is not None
        where = torch.full((1,), n, device=qkv.device)
        turned = rotate(qkv[:, :2].flatten(1, 2)[:, None], where, self._frequencies)
        return torch.cat([turned[:, 0].unflatten(1, (2, -1)), qkv[:, 2:]], dim=1)


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


def _distances(attention: Attention, capacity: int) -> Float[Tensor, "H S"] | None:
    """ALiBi's bias of a query at the last place; the last n entries are the bias over n keys."""
    if attention.slopes is None:
        return None
    back = torch.arange(capacity - 1, -1, -1, device=attention.slopes.device)
    return (-attention.slopes[:, None] * back).to(attention.qkv.weight.dtype)


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
