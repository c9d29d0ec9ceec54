"""Models read token by token: each step writes what later ones need into memory that was set aside before.

    decoder = decoder_of(model, n_runs=1, n_samples=4, capacity=128)
    decoder.begin(prompt)                 # (R, b, T): b is 1 where all samples share the prompt
    logits = decoder.step(tokens)         # (R, B) → (R, B, V)

What a step computes is what `model(tokens)` computes at the last position without dropout. One token is so little work
that calling modules and looking up parameters would cost more than the arithmetic, so each decoder binds the weights
once, as plain functions. Which token comes next is left to `sample.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.special import erf
from torch import Tensor, nn

from seedbed.errors import UsageError
from seedbed.models.gpt import GPT, Attention, Block
from seedbed.models.layers import LayerNorm, Linear
from seedbed.models.lstm import LSTM, Cell, Memory
from seedbed.models.positions import rotate, sinusoidal
from seedbed.models.taps import NO_TAPS

Map: TypeAlias = Callable[[Tensor], Tensor]
Vector: TypeAlias = NDArray[Any]
NORM_EPS = 1e-5  # torch's layer_norm


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


def remembered(model: GPT | LSTM, tokens: Int[Tensor, "R b T"]) -> list[Memory]:
    """What the model remembers of these tokens, layer by layer, without dropout; nothing of none."""
    if not tokens.shape[-1]:
        return []
    with evaluating(model):
        return model.remember(tokens)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model without dropout and without gradients, afterwards as it was."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


class GPTDecoder:
    """Keys and values of all positions so far. Of one run, activations are (B, D); of several, (R, B, D)."""

    def __init__(self, model: GPT, n_runs: int, n_samples: int, capacity: int) -> None:
        self.model, self.n, self.shape = model, 0, (n_runs, n_samples)
        self._layers = [_Layer(block, n_runs, n_samples, capacity) for block in _blocks(model)]
        self._places = _places(model, capacity)

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
        scores = torch.bmm(query, self.keys[:, : n + 1].mT)  # for one query faster than the fused kernel, a head at a time
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


def _blocks(model: GPT) -> Iterator[Block]:
    for block in model.blocks:
        assert isinstance(block, Block)
        yield block


def _places(model: GPT, capacity: int) -> Float[Tensor, "#R S D"] | None:
    """The vector of each place that is added to a token's, if the model tells positions so."""
    if model.position_table is not None:
        return model.position_table.weight
    if model.waves is None:
        return None
    return sinusoidal(capacity, model.waves.shape[1], model.exponent).to(model.embed.weight)[None]


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


class LoneDecoder:
    """As `GPTDecoder`, for one sample of one run on the CPU: in NumPy, which is twice as fast for products this small."""

    def __init__(self, model: GPT, capacity: int) -> None:
        self.model, self.n = model, 0
        self._layers = [_LoneLayer(block, capacity) for block in _blocks(model)]
        places = _places(model, capacity)
        self._places = None if places is None else _array(places)
        self._table = _array(model.embed.weight)
        self._final_norm = None if model.final_norm is None else _lone_norm(model.final_norm)

    def begin(self, tokens: Int[Tensor, "R b T"]) -> None:
        self.n = tokens.shape[-1]
        for layer, (key, value) in zip(self._layers, remembered(self.model, tokens), strict=False):
            layer.keys[:, : self.n] = key[0, 0].transpose(0, 1).numpy()
            layer.values[:, : self.n] = value[0, 0].transpose(0, 1).numpy()

    def step(self, tokens: Int[Tensor, "R B"]) -> Float[Tensor, "R B V"]:
        x = self._table[int(tokens)]
        if self._places is not None:
            x = x + self._places[self.n]
        for layer in self._layers:
            x = layer.step(x, self.n)
        self.n += 1
        if self._final_norm is not None:
            x = self._final_norm(x)
        return self.model.output(torch.from_numpy(x)[None, None, None])[..., 0, :]


class _LoneLayer:
    """One block with its keys and values, (H, capacity, K) each."""

    def __init__(self, block: Block, capacity: int) -> None:
        attention, mlp = block.attention, block.mlp
        self.heads, self.width = attention.heads, attention.dim // attention.heads
        self._qkv, self._out = _lone_affine(attention.qkv), _lone_affine(attention.out)
        self._up, self._down = _lone_affine(mlp.up), _lone_affine(mlp.down)
        self._activation = LONE_ACTIVATIONS[mlp.activation]
        self._norm_first, self._norm1, self._norm2 = block.norm_first, _lone_norm(block.norm1), _lone_norm(block.norm2)
        weight = attention.qkv.weight
        self.keys, self.values = weight.new_empty(2, self.heads, capacity, self.width).detach().numpy()
        slopes, frequencies = attention.slopes, attention.frequencies
        self._slopes = None if slopes is None else slopes.numpy().astype(self.keys.dtype)[:, None]
        self._frequencies = None if frequencies is None else frequencies.numpy()

    def step(self, x: Vector, n: int) -> Vector:
        """The stream after this block; the token stands at place n."""
        if self._norm_first:
            x = x + self._attend(self._norm1(x), n)
            return x + self._down(self._activation(self._up(self._norm2(x))))
        x = self._norm1(x + self._attend(x, n))
        return self._norm2(x + self._down(self._activation(self._up(x))))

    def _attend(self, x: Vector, n: int) -> Vector:
        qkv = self._qkv(x).reshape(3, self.heads, self.width)
        if self._frequencies is not None:
            qkv[:2] = _turned(qkv[:2], n * self._frequencies)
        self.keys[:, n], self.values[:, n] = qkv[1], qkv[2]
        scores = (self.keys[:, : n + 1] @ (qkv[0] * self.width**-0.5)[..., None])[..., 0]
        if self._slopes is not None:
            scores += self._slopes * np.arange(-n, 1, dtype=scores.dtype)
        scores -= scores.max(-1, keepdims=True)
        weights = np.exp(scores, out=scores)
        weights /= weights.sum(-1, keepdims=True)
        return self._out((weights[:, None] @ self.values[:, : n + 1]).reshape(-1))


def _array(held: Tensor) -> Vector:
    """A parameter of the only run as NumPy sees it, in the same memory."""
    return held[0].detach().numpy()


def _lone_affine(part: Linear) -> Callable[[Vector], Vector]:
    matrix = _array(part.weight)
    if part.bias is None:
        return lambda x: matrix @ x
    row = _array(part.bias)
    return lambda x: matrix @ x + row


def _lone_norm(part: LayerNorm) -> Callable[[Vector], Vector]:
    weight, bias = _array(part.weight), _array(part.bias)

    def normed(x: Vector) -> Vector:
        x = x - x.mean()
        return x * (x.dot(x) / len(x) + NORM_EPS) ** -0.5 * weight + bias

    return normed


def _turned(x: NDArray[Any], angle: Vector) -> NDArray[Any]:
    """As `positions.rotate`, for one place."""
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _gelu(x: Vector) -> Vector:
    return x * (0.5 + 0.5 * erf(x * 2**-0.5))


LONE_ACTIVATIONS: dict[Map, Callable[[Vector], Vector]] = {F.gelu: _gelu, F.relu: lambda x: np.maximum(x, 0)}
