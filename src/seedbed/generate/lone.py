"""One sample of one GPT on the CPU, token by token, in NumPy: for products this small twice as fast as torch.

The same arithmetic as `decode.GPTDecoder` without its axes of runs and samples. Weights are read where they lie;
maps and norms write into vectors of their own, which the next token overwrites.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from seedbed.generate.memory import Angles, angles_at, blocks_of, distances_of, places_of, remembered
from seedbed.models.gpt import GPT, Block
from seedbed.models.layers import LayerNorm, Linear
from seedbed.models.positions import turn

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
        self._frequencies = next(blocks_of(model)).attention.frequencies

    def begin(self, tokens: Int[Tensor, "R b T"]) -> None:
        self.n = tokens.shape[-1]
        for layer, (key, value) in zip(self._layers, remembered(self.model, tokens), strict=False):
            layer.keys[:, : self.n] = key[0, 0].transpose(0, 1).numpy()
            layer.values[:, : self.n] = value[0, 0].transpose(0, 1).numpy()

    def step(self, tokens: Int[Tensor, "R B"]) -> Float[Tensor, "R B V"]:
        x = self._table[int(tokens)]
        x = x.copy() if self._places is None else x + self._places[self.n]
        angles = angles_at(self.n, self._frequencies, self.model.embed.weight.dtype)
        for layer in self._layers:
            x = layer.step(x, self.n, angles)
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
        self._up, self._activation, self._down = _lone_affine(mlp.up), mlp.activation, _lone_affine(mlp.down)
        self._norm_first, self._norm1, self._norm2 = block.norm_first, _lone_norm(block.norm1), _lone_norm(block.norm2)
        dtype = _array(attention.qkv.weight).dtype
        self.keys, self.values = np.empty((2, self.heads, capacity, self.width), dtype)
        distances = distances_of(attention.slopes, capacity)
        self._distances = None if distances is None else distances.numpy().astype(dtype)

    def step(self, x: Vector, n: int, angles: Angles | None) -> Vector:
        """The stream after this block, in the same memory; the token stands at place n."""
        if self._norm_first:
            x += self._attend(self._norm1(x), n, angles)
            x += self._mlp(self._norm2(x))
            return x
        x = self._norm1(np.add(x, self._attend(x, n, angles), x))
        return self._norm2(np.add(x, self._mlp(x), x))

    def _mlp(self, x: Vector) -> Vector:
        return self._down(self._activation(torch.from_numpy(self._up(x))).numpy())

    def _attend(self, x: Vector, n: int, angles: Angles | None) -> Vector:
        qkv = self._qkv(x).reshape(3, self.heads, self.width)
        if angles is not None:
            qkv[:2] = turn(torch.from_numpy(qkv[:2]), *angles).numpy()
        self.keys[:, n], self.values[:, n] = qkv[1], qkv[2]
        query = np.multiply(qkv[0], self.width**-0.5, qkv[0])
        scores = (self.keys[:, : n + 1] @ query[..., None])[..., 0]
        if self._distances is not None:
            scores += self._distances[:, -n - 1 :]
        weights = torch.softmax(torch.from_numpy(scores), -1).numpy()  # NumPy would need five passes
        return self._out((weights[:, None] @ self.values[:, : n + 1]).reshape(-1))


def _array(held: Tensor) -> Vector:
    """A parameter of the only run as NumPy sees it, in the same memory."""
    return held[0].detach().numpy()


def _lone_affine(part: Linear) -> Callable[[Vector], Vector]:
    matrix = _array(part.weight)
    out = np.empty(len(matrix), matrix.dtype)
    if part.bias is None:
        return lambda x: matrix.dot(x, out)
    row = _array(part.bias)
    return lambda x: np.add(matrix.dot(x, out), row, out)


def _lone_norm(part: LayerNorm) -> Callable[[Vector], Vector]:
    weight, bias = _array(part.weight), _array(part.bias)
    n, out = len(weight), np.empty_like(weight)
    mean_of = np.full_like(weight, 1 / n)

    def normed(x: Vector) -> Vector:
        centred = np.subtract(x, mean_of.dot(x), out)
        scale = (float(centred.dot(centred)) / n + NORM_EPS) ** -0.5
        np.multiply(centred, weight, out)
        np.multiply(out, scale, out)
        return np.add(out, bias, out)

    return normed
