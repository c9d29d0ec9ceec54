"""An independent GPT for one run, written with torch's own layers, as a reference."""

from __future__ import annotations

import cmath
import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seedbed.models.families import GPTSettings

SLOPES = {  # ALiBi, written out from the paper's rule
    1: [2**-8],
    2: [2**-4, 2**-8],
    3: [2**-4, 2**-8, 2**-2],
    4: [2**-2, 2**-4, 2**-6, 2**-8],
    6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3],
}


def apply_rotary(x: Tensor) -> Tensor:
    """Rotary position embedding by complex multiplication: dimensions k and k + K/2 form one complex number."""
    half = x.shape[-1] // 2
    complex_x = torch.complex(x[..., :half], x[..., half:])
    for t in range(x.shape[-2]):
        rotation = [cmath.exp(1j * t / 10_000 ** (2 * k / x.shape[-1])) for k in range(half)]
        complex_x[..., t, :] *= torch.tensor(rotation, dtype=complex_x.dtype)
    return torch.cat([complex_x.real, complex_x.imag], -1)


def t5_bucket(distance: int) -> int:
    """Raffel et al. 2020: 16 buckets of one distance each, then 16 that grow logarithmically up to 128."""
    return distance if distance < 16 else min(31, 16 + int(16 * math.log(distance / 16) / math.log(128 / 16)))


class PlainGPT(nn.Module):
    """The same function as ours in textbook form: nn.Linear, nn.LayerNorm, a loop over heads."""

    def __init__(self, settings: GPTSettings, vocabulary: int, context: int) -> None:
        super().__init__()
        d, hidden = settings.dim, settings.hidden or settings.dim * settings.mlp_multiplier
        qkv_bias = settings.attention_bias if settings.qkv_bias is None else settings.qkv_bias
        self.settings, self.context = settings, context
        self.tokens = nn.Embedding(vocabulary, d)
        self.learned = nn.Embedding(context, d) if settings.positions == "learned" else None
        self.layers = nn.ModuleList()
        for _ in range(settings.layers):
            projections = {name: nn.Linear(d, d, bias=qkv_bias) for name in ("q", "k", "v")}
            projections["o"] = nn.Linear(d, d, bias=settings.attention_bias)
            mlp = {"up": nn.Linear(d, hidden, settings.mlp_bias), "down": nn.Linear(hidden, d, settings.mlp_bias)}
            self.layers.append(nn.ModuleDict(projections | mlp | {"ln1": nn.LayerNorm(d), "ln2": nn.LayerNorm(d)}))
        self.final = nn.LayerNorm(d) if settings.final_norm else None
        self.head = nn.Linear(d, vocabulary, bias=settings.output_bias)
        if settings.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(tokens.shape[1])
        for layer in self.layers:
            if self.settings.norm == "pre":
                x = x + self.attention(layer, layer["ln1"](x))
                x = x + self.mlp(layer, layer["ln2"](x))
            else:
                x = layer["ln1"](x + self.attention(layer, x))
                x = layer["ln2"](x + self.mlp(layer, x))
        return self.head(x if self.final is None else self.final(x))

    def positions(self, n: int) -> Tensor:
        d = self.settings.dim
        table = torch.zeros(n, d, dtype=self.head.weight.dtype)
        if self.learned is not None:
            return self.learned.weight[:n]
        if self.settings.positions == "sinusoidal":
            for t in range(n):
                for i in range(d):
                    k = i // 2
                    exponent = 2 * k / d if self.settings.position_exponent == "2k/d" else k / d
                    table[t, i] = (math.cos if i % 2 else math.sin)(t / 10_000**exponent)
        return table

    def attention(self, layer: nn.ModuleDict, x: Tensor) -> Tensor:
        q, k, v = (layer[name](x) for name in "qkv")
        n, width = x.shape[1], self.settings.dim // self.settings.heads
        future = torch.ones(n, n).triu(1).bool()
        head_outputs = []
        for head in range(self.settings.heads):
            part = slice(head * width, (head + 1) * width)
            if self.settings.positions == "rotary":
                scores = apply_rotary(q[..., part]) @ apply_rotary(k[..., part]).transpose(1, 2) / math.sqrt(width)
            else:
                scores = q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(width)
            if self.settings.positions == "alibi":
                distance = torch.arange(n)[:, None] - torch.arange(n)
                scores = scores - SLOPES[self.settings.heads][head] * distance.abs()
            if self.settings.positions == "t5":
                for t, s in itertools.product(range(n), range(n)):
                    scores[:, t, s] += self.t5_bias[t5_bucket(max(t - s, 0)), head]
            head_outputs.append(scores.masked_fill(future, -math.inf).softmax(-1) @ v[..., part])
        return layer["o"](torch.cat(head_outputs, -1))

    def mlp(self, layer: nn.ModuleDict, x: Tensor) -> Tensor:
        activation = F.relu if self.settings.activation == "relu" else F.gelu
        return layer["down"](activation(layer["up"](x)))

    def load(self, ours: dict[str, Tensor]) -> None:
        """Loads the weights of one of our runs."""
        self.tokens.weight.data = ours["embed.weight"]
        if self.learned is not None:
            self.learned.weight.data = ours["position_table.weight"]
        self.t5_bias = ours.get("position_table.weight", torch.empty(0))
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
        if not self.settings.tied:
            self.head.weight.data = ours["output.weight"]
        if self.settings.output_bias:
            self.head.bias.data = ours["output.bias"]
