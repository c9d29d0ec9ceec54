"""Independent models for one run, written with torch's own layers, to compare with."""

from __future__ import annotations

import cmath
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seedbed.settings import GPTSettings

SLOPES = {  # written out from the paper's rule
    1: [2**-8],
    2: [2**-4, 2**-8],
    3: [2**-4, 2**-8, 2**-2],
    4: [2**-2, 2**-4, 2**-6, 2**-8],
    6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3],
}


def turned(x: Tensor) -> Tensor:
    """Rotary positions as products of complex numbers: dimensions k and k + K/2 are one of them."""
    half = x.shape[-1] // 2
    numbers = torch.complex(x[..., :half], x[..., half:])
    for t in range(x.shape[-2]):
        turn = [cmath.exp(1j * t / 10_000 ** (2 * k / x.shape[-1])) for k in range(half)]
        numbers[..., t, :] *= torch.tensor(turn, dtype=numbers.dtype)
    return torch.cat([numbers.real, numbers.imag], -1)


class PlainGPT(nn.Module):
    """The same function as ours, the way a student writes it: nn.Linear, nn.LayerNorm, a loop over heads."""

    def __init__(self, overrides: GPTSettings, vocabulary: int, context: int) -> None:
        super().__init__()
        d, hidden = overrides.dim, overrides.hidden or overrides.dim * overrides.mlp_multiplier
        qkv_bias = overrides.attention_bias if overrides.qkv_bias is None else overrides.qkv_bias
        self.overrides, self.context = overrides, context
        self.tokens = nn.Embedding(vocabulary, d)
        self.learned = nn.Embedding(context, d) if overrides.positions == "learned" else None
        self.layers = nn.ModuleList()
        for _ in range(overrides.layers):
            maps = {name: nn.Linear(d, d, bias=qkv_bias) for name in ("q", "k", "v")}
            maps["o"] = nn.Linear(d, d, bias=overrides.attention_bias)
            mlp = {"up": nn.Linear(d, hidden, overrides.mlp_bias), "down": nn.Linear(hidden, d, overrides.mlp_bias)}
            self.layers.append(nn.ModuleDict(maps | mlp | {"ln1": nn.LayerNorm(d), "ln2": nn.LayerNorm(d)}))
        self.final = nn.LayerNorm(d) if overrides.final_norm else None
        self.head = nn.Linear(d, vocabulary, bias=overrides.output_bias)
        if overrides.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(tokens.shape[1])
        for layer in self.layers:
            if self.overrides.norm == "pre":
                x = x + self.attention(layer, layer["ln1"](x))
                x = x + self.mlp(layer, layer["ln2"](x))
            else:
                x = layer["ln1"](x + self.attention(layer, x))
                x = layer["ln2"](x + self.mlp(layer, x))
        return self.head(x if self.final is None else self.final(x))

    def positions(self, n: int) -> Tensor:
        d = self.overrides.dim
        table = torch.zeros(n, d, dtype=self.head.weight.dtype)
        if self.learned is not None:
            return self.learned.weight[:n]
        if self.overrides.positions == "sinusoidal":
            for t in range(n):
                for i in range(d):
                    k = i // 2
                    exponent = 2 * k / d if self.overrides.position_exponent == "2k/d" else k / d
                    table[t, i] = (math.cos if i % 2 else math.sin)(t / 10_000**exponent)
        return table

    def attention(self, layer: nn.ModuleDict, x: Tensor) -> Tensor:
        q, k, v = (layer[name](x) for name in "qkv")
        n, width = x.shape[1], self.overrides.dim // self.overrides.heads
        future = torch.ones(n, n).triu(1).bool()
        mixed = []
        for head in range(self.overrides.heads):
            part = slice(head * width, (head + 1) * width)
            if self.overrides.positions == "rotary":
                scores = turned(q[..., part]) @ turned(k[..., part]).transpose(1, 2) / math.sqrt(width)
            else:
                scores = q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(width)
            if self.overrides.positions == "alibi":
                steps = torch.arange(n)[:, None] - torch.arange(n)
                scores = scores - SLOPES[self.overrides.heads][head] * steps.abs()
            mixed.append(scores.masked_fill(future, -math.inf).softmax(-1) @ v[..., part])
        return layer["o"](torch.cat(mixed, -1))

    def mlp(self, layer: nn.ModuleDict, x: Tensor) -> Tensor:
        activation = F.relu if self.overrides.activation == "relu" else F.gelu
        return layer["down"](activation(layer["up"](x)))

    def load(self, ours: dict[str, Tensor]) -> None:
        """Takes the weights of one of our runs."""
        self.tokens.weight.data = ours["embed.weight"]
        if self.learned is not None:
            self.learned.weight.data = ours["position_table.weight"]
        for i, layer in enumerate(self.layers):
            name = f"blocks.{i}."
            for kind, _ in layer["q"].named_parameters():
                for part, values in zip("qkv", ours[f"{name}attention.qkv.{kind}"].chunk(3), strict=True):
                    getattr(layer[part], kind).data = values
            for kind, _ in layer["o"].named_parameters():
                getattr(layer["o"], kind).data = ours[f"{name}attention.out.{kind}"]
            for part, theirs in (("up", "mlp.up"), ("down", "mlp.down"), ("ln1", "norm1"), ("ln2", "norm2")):
                for kind, _ in layer[part].named_parameters():
                    getattr(layer[part], kind).data = ours[f"{name}{theirs}.{kind}"]
        if self.final is not None:
            self.final.weight.data, self.final.bias.data = ours["final_norm.weight"], ours["final_norm.bias"]
        if not self.overrides.tied:
            self.head.weight.data = ours["output.weight"]
        if self.overrides.output_bias:
            self.head.bias.data = ours["output.bias"]
