"""One sample of one GPT on the CPU, token by token, in NumPy: for products this small twice as fast as torch.

The same arithmetic as `decode.GPTDecoder` without its axes of runs and samples; weights are read where they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.special import erf
from torch import Tensor

from seedbed.generate.memory import blocks_of, places_of, remembered
from seedbed.models.gpt import GPT, Block
from seedbed.models.layers import LayerNorm, Linear

Vector: TypeAlias = NDArray[Any]
NORM_EPS = 1e-5  # torch's layer_norm


class LoneDecoder:
    """Keys and values of all positions so far."""

    def __init__(self, model: GPT, capacity: int) -> None:
        self.model, self.n = model, 0
        self._layers = [_LoneLayer(block, capacity) for block in blocks_of(model)]
        places = places_of(model, capacity)
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


LONE_ACTIVATIONS: dict[Callable[[Tensor], Tensor], Callable[[Vector], Vector]] = {
    F.gelu: _gelu,
    F.relu: lambda x: np.maximum(x, 0),
}
