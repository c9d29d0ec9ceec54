"""Layers with the run as their first axis; in `models/` only this file, `bank.py`, `fused.py` and `maps.py` know it.

A model is written as if for one run: its parts declare parameters of one run's shape, and `Bank` gives every one of
them a leading run axis R. Axes: R run, B batch, T time, S source, D width, H heads,
K head width (after `take`, also: positions taken).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seedbed.models.batched_linear import batched_linear, use_bf16_copy
from seedbed.models.cached_masks import cached_causal_mask, cached_identity, should_cache
from seedbed.models.onednn_linear import onednn_linear, should_use_onednn
from seedbed.rng import device_keys, random_int16

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}
Positions: TypeAlias = slice | Int[Tensor, "R B K"] | None  # which positions are wanted; None: all

SHORT_ATTENTION_POSITIONS = (
    16  # up to this many source positions, multiply-and-sum beats a fused attention kernel (docs/log.md)
)
MAX_ONE_HOT_ROWS = (
    256  # up to this many rows, picking by a matrix product beats gathering on a GPU, whose gradient needs atomics
)
HAS_TRITON = find_spec("triton") is not None  # it comes with torch where torch is made for GPUs


def meta_parameter(*shape: int) -> nn.Parameter:
    """A parameter of one run; it has no storage until a Bank gives it some."""
    return nn.Parameter(torch.empty(1, *shape, device="meta"))


def _register_table(module: nn.Module, n: int, dim: int, frozen: bool) -> None:
    if frozen:
        module.register_buffer("weight", torch.empty(1, n, dim, device="meta"), persistent=False)
    else:
        module.register_parameter("weight", meta_parameter(n, dim))


def linear(
    x: Float[Tensor, "R *n D"],
    weight: Float[Tensor, "R E D"],
    bias: Float[Tensor, "R E"] | None,
    bf16_weight: Float[Tensor, "R E D"] | None = None,
) -> Tensor:
    """Each run's own affine map of the last axis; `low` are the same weights in 16 bits, for where those are used."""
    if bf16_weight is not None and use_bf16_copy(x, weight, bias):
        mapped = batched_linear(
            x.reshape(len(weight), -1, x.shape[-1]).to(bf16_weight.dtype), weight, bf16_weight
        ).view(*x.shape[:-1], -1)
        return mapped if bias is None else mapped + bias.view(len(bias), *[1] * (x.ndim - 2), -1)
    if len(weight) == 1:
        own = weight.squeeze(0), None if bias is None else bias.squeeze(0)  # indexing would copy the whole gradient
        return onednn_linear(x, *own) if should_use_onednn(x, own[0]) else F.linear(x, *own)
    flat = x.reshape(len(weight), -1, x.shape[-1])
    if x.is_cuda:
        kind = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else weight.dtype
        mapped = batched_linear(flat.to(kind), weight.to(kind))
        mapped = mapped if bias is None else mapped + bias[:, None]  # it would first be copied over the whole output
    elif bias is None:
        mapped = flat @ weight.mT
    else:
        mapped = torch.baddbmm(bias[:, None], flat, weight.mT)
    return mapped.view(*x.shape[:-1], -1)


class Linear(nn.Module):
    """An affine map, or several of one input side by side (`parts`: queries, keys and values; the gates of a cell)."""

    def __init__(self, d_in: int, d_out: int, bias: bool = True, n_parts: int = 1) -> None:
        super().__init__()
        self.d_in, self.n_parts = d_in, n_parts
        self.weight = meta_parameter(d_out, d_in)
        self.bias = meta_parameter(d_out) if bias else None
        self.bf16_weight: Tensor | None = None  # the weight in 16 bits, where a bank keeps it (`Bank.lower`)

    def forward(self, x: Tensor, rows: slice | None = None) -> Tensor:
        """The map, or only the given rows of its output."""
        if rows is None:
            return linear(x, self.weight, self.bias, self.bf16_weight)
        own = (None if held is None else held[:, rows] for held in (self.bias, self.bf16_weight))
        return linear(x, self.weight[:, rows], *own)

    def forward_split(self, inputs: Sequence[Tensor], split_sizes: Sequence[int]) -> list[Tensor]:
        """Of every input its own rows of the output, as many as are given for it: in order, and all there are."""
        held = (self.weight, self.bias, self.bf16_weight)
        parts = ([None] * len(split_sizes) if one is None else one.split(list(split_sizes), dim=1) for one in held)
        return [linear(x, *own) for x, *own in zip(inputs, *parts, strict=True)]

    def forward_without_bias(self, x: Tensor) -> Tensor:
        """The map without its bias."""
        return linear(x, self.weight, None, self.bf16_weight)


class Embedding(nn.Module):
    """A table of vectors; the row of `padding`, where given, starts at zero.

    A frozen table is no parameter: all runs read the same numbers, which are set when the model is built.
    """

    weight: Tensor

    def __init__(self, n: int, dim: int, padding_idx: int | None = None, frozen: bool = False) -> None:
        super().__init__()
        _register_table(self, n, dim, frozen)
        self.padding_idx = padding_idx

    def forward(self, tokens: Int[Tensor, "R B T"]) -> Float[Tensor, "R B T D"]:
        n_runs, n, _ = self.weight.shape
        if tokens.is_cuda and n <= MAX_ONE_HOT_ROWS:
            return gather_rows(self.weight, one_hot(tokens.flatten(1), n, self.weight.dtype)).view(*tokens.shape, -1)
        first_row = torch.arange(n_runs, device=tokens.device)[:, None, None] * n
        return F.embedding(tokens + first_row, self.weight.reshape(n_runs * n, -1))


class OutputLayer(nn.Module):
    """The map to logits, with its own matrix or with the token table's (tied)."""

    def __init__(self, dim: int, vocabulary: int, bias: bool, tied_embedding: Embedding | None = None) -> None:
        super().__init__()
        self.d_in = dim
        self.weight = meta_parameter(vocabulary, dim) if tied_embedding is None else None
        self.bias = meta_parameter(vocabulary) if bias else None
        self._tied_embedding = (tied_embedding,)  # in a tuple, so that the table is not a part of this module too

    def forward(self, x: Tensor) -> Tensor:
        (table,) = self._tied_embedding
        weight = self.weight if table is None else table.weight
        assert weight is not None
        if self.bias is None or len(weight) == len(self.bias):
            return linear(x, weight, self.bias)
        return linear(x, weight, None) + self.bias[:, None, None]  # a frozen table is one for all runs, a bias is not


class PositionEmbedding(nn.Module):
    """A vector for each position, learned or frozen."""

    weight: Tensor

    def __init__(self, n: int, dim: int, frozen: bool = False) -> None:
        super().__init__()
        _register_table(self, n, dim, frozen)

    def forward(self, x: Float[Tensor, "R B T D"], start: int = 0) -> Float[Tensor, "R B T D"]:
        return x + self.weight[:, None, start : start + x.shape[2]]


class LayerNorm(nn.Module):
    """A norm is worked out in float32 at least and goes on in the precision it came in."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight, self.bias = meta_parameter(dim), meta_parameter(dim)

    def forward(self, x: Float[Tensor, "R B T D"]) -> Float[Tensor, "R B T D"]:
        dim = x.shape[-1]
        if len(self.weight) == 1:
            return F.layer_norm(x, (dim,), self.weight.squeeze(0), self.bias.squeeze(0)).to(x.dtype)
        normed = torch.addcmul(self.bias[:, None, None], F.layer_norm(x, (dim,)), self.weight[:, None, None])
        return normed.to(x.dtype)


class BatchNorm(nn.Module):
    """Each feature over the samples of a batch, every run by itself; while evaluating, by running mean and variance.

    As torch.nn.BatchNorm1d: biased variance in the batch, unbiased in the running one.
    """

    EPS, MOMENTUM = 1e-5, 0.1
    mean: Float[Tensor, "R F"]
    variance: Float[Tensor, "R F"]

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight, self.bias = meta_parameter(dim), meta_parameter(dim)
        self.dim = dim

    def init_running_stats(self, n_runs: int, device: torch.device, dtype: torch.dtype) -> None:
        """Gives every run its own statistics."""
        self.register_buffer("mean", torch.zeros(n_runs, self.dim, device=device, dtype=dtype))
        self.register_buffer("variance", torch.ones(n_runs, self.dim, device=device, dtype=dtype))

    def forward(self, x: Float[Tensor, "R B 1 F"], counted: Bool[Tensor, "R B"] | None = None) -> Tensor:
        """Samples that do not count are normalised too, but enter no statistic."""
        mean, variance = self._batch_moments(x, counted) if self.training else (self.mean, self.variance)
        scale = self.weight * (variance + self.EPS).rsqrt()
        return torch.addcmul((self.bias - mean * scale)[:, None, None], x, scale[:, None, None])

    def _batch_moments(self, x: Tensor, counted: Tensor | None) -> tuple[Tensor, Tensor]:
        share = torch.ones_like(x[..., :1]) if counted is None else counted[..., None, None].to(x.dtype)
        n = share.sum((1, 2))
        mean = (share * x).sum((1, 2)) / n.clamp(min=1)
        variance = (share * (x - mean[:, None, None]).square()).sum((1, 2)) / n.clamp(min=1)
        with torch.no_grad():
            moved = self.MOMENTUM * (n > 0).to(self.mean.dtype)  # where nothing counts there is nothing to follow
            self.mean.lerp_(mean.to(self.mean.dtype), moved)
            self.variance.lerp_((variance * n / (n - 1).clamp(min=1)).to(self.variance.dtype), moved)
        return mean, variance


def running_stats(model: nn.Module) -> dict[str, Float[Tensor, "R *n"]]:
    """What a pack's layers learn without gradients, by name: BatchNorm's running means and variances."""
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, BatchNorm)]
    return {f"{name}.{leaf}": held for name, module in found for leaf, held in module.named_buffers()}


class Dropout(nn.Module):
    """Zeroes a share of the entries while training, each run with its own rate (a dial) and its own stream.

    A rate is met to the nearest 1/65,536, since an entry is judged by a 16-bit number; the rest is scaled up by exactly
    what that rate takes away.
    """

    thresholds: Int[Tensor, "R 1"] | None = None  # of the 16-bit numbers; None: no run drops anything

    def __init__(self, setting: str = "dropout") -> None:
        super().__init__()
        self.setting = setting

    @property
    def is_active(self) -> bool:
        return self.training and self.thresholds is not None

    def configure(self, rates: Sequence[float], seeds: Sequence[int], stream: str, step: Int[Tensor, "1"]) -> None:
        """Binds the pack's rates and streams; `step` is the trainer's counter, read anew at each draw."""
        if not any(rates):
            self.thresholds = None
            return
        dropped = torch.tensor([[min(round(rate * 2**16), 2**16 - 1)] for rate in rates])  # of 65,536 entries
        self.thresholds = (dropped - 2**15).to(step.device, torch.int16)
        self.scales = (2**16 / (2**16 - dropped)).to(step.device)
        self.keys, self.step = device_keys(seeds, stream, step.device), step

    def forward(self, x: Float[Tensor, "R *n"], n_before: int = 0) -> Float[Tensor, "R *n"]:
        """The entries that stay, scaled; in an update they are numbered from `n_before` on (from the next even one)."""
        if self.thresholds is None or not self.training:
            return x
        kept = random_int16(self.keys, self.step, x[0].numel(), -(-n_before // 2)) >= self.thresholds
        return x * kept.to(x.dtype).mul_(self.scales).view_as(x)


def one_hot(index: Int[Tensor, "R B"], n: int, dtype: torch.dtype) -> Float[Tensor, "R B n"]:
    """Which of n rows each sample picks; on a GPU with empty columns up to a multiple of 8, as fast products need."""
    columns = -(-n // 8) * 8 if index.is_cuda else n
    if should_cache(index.device) and columns <= MAX_ONE_HOT_ROWS:
        return F.embedding(index, cached_identity(columns, index.device)).to(dtype)
    return (index[..., None] == torch.arange(columns, device=index.device)).to(dtype)


def gather_rows(values: Float[Tensor, "R U *n"], one_hot_rows: Float[Tensor, "R B U"]) -> Float[Tensor, "R B *n"]:
    """The row that each sample picks, as a matrix product: exact, and its gradient is one too, without atomics."""
    table = values.flatten(2)
    if table.shape[1] < one_hot_rows.shape[2]:
        table = F.pad(table, (0, 0, 0, one_hot_rows.shape[2] - table.shape[1]))
    picked = one_hot_rows @ table
    return picked.view(*one_hot_rows.shape[:2], *values.shape[2:])


def select_positions(x: Float[Tensor, "R B T D"], positions: Positions) -> Float[Tensor, "R B K D"]:
    """The wanted positions of a sequence."""
    if positions is None:
        return x
    if isinstance(positions, slice):
        return x[:, :, positions]
    return x.gather(2, positions[..., None].expand(*positions.shape, x.shape[-1]))


def causal_mask(positions: Positions, n: int, device: torch.device, n_past: int = 0) -> Bool[Tensor, "... K S"]:
    """Which source positions each wanted one of n may look at: itself, those before, and all n_past remembered ones."""
    if n_past + n <= SHORT_ATTENTION_POSITIONS and not isinstance(positions, Tensor) and should_cache(device):
        return cached_causal_mask(range(n)[positions or slice(None)], n, n_past, device)
    source = torch.arange(-n_past, n, device=device)
    new = source[n_past:]
    where = new if positions is None else new[positions] if isinstance(positions, slice) else positions
    return where[..., None] >= source


def absolute_positions(positions: Positions, n: int, device: torch.device, n_past: int = 0) -> Int[Tensor, "... K"]:
    """Where each wanted one of n positions stands, counted from the first remembered one."""
    new = torch.arange(n_past, n_past + n, device=device)
    return new if positions is None else new[positions] if isinstance(positions, slice) else positions + n_past


def append_past(past: Float[Tensor, "R B S *n"] | None, new: Float[Tensor, "R B T *n"]) -> Tensor:
    """What is remembered, then what is new, along time."""
    return new if past is None else torch.cat([past.to(new.dtype), new], dim=2)


def attention(
    query: Float[Tensor, "R B T H K"],
    key: Float[Tensor, "R B S H K"],
    value: Float[Tensor, "R B S H K"],
    mask: Bool[Tensor, "... T S"],
    bias: Float[Tensor, "... T S H"] | None = None,
    causal: bool | None = None,
) -> Float[Tensor, "R B T H K"]:
    """Softmax attention of every run, sample and head by itself; a bias is added to the scaled scores.

    `causal` tells what is seen in a word, so that a kernel that has it built in need not read it: all positions up to
    one's own (True) or all there are (False); None: as `seen` says.
    """
    if key.shape[2] <= SHORT_ATTENTION_POSITIONS:
        if bias is None and _can_use_tiny_attention(query, key, value):
            from seedbed.models.kernels.tiny_attention import tiny_attention

            return tiny_attention(query, key, value, mask)
        return apply_elementwise_weights(elementwise_attention_weights(query, key, mask, bias), value)
    q, k, v = (x.flatten(0, 1).transpose(1, 2) for x in (query, key, value))
    if causal is not None and bias is None:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    else:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=_sdpa_mask(mask, bias))
    return out.transpose(1, 2).unflatten(0, query.shape[:2])


def _can_use_tiny_attention(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether a kernel of our own takes these few positions: on a GPU."""
    if not (HAS_TRITON and query.is_cuda and query.dtype == key.dtype == value.dtype != torch.float64):
        return False
    from seedbed.models.kernels.tiny_attention import is_supported_shape

    return is_supported_shape(key.shape[2], key.shape[4])


def _sdpa_mask(mask: Bool[Tensor, "... T S"], bias: Float[Tensor, "... T S H"] | None) -> Tensor:
    """What is seen, and the bias of what is, as a fused kernel takes them."""
    mask = mask if mask.ndim == 2 else mask.flatten(0, 1)[:, None]
    if bias is None:
        return mask
    by_head = bias.movedim(-1, -3)[None] if bias.ndim == 3 else bias.movedim(-1, -3).flatten(0, 1)
    return by_head.masked_fill(~mask, float("-inf"))


def elementwise_attention_weights(
    query: Tensor, key: Tensor, mask: Tensor, bias: Tensor | None = None
) -> Float[Tensor, "R B T S H"]:
    """The attention weights; each row over S sums to 1."""
    scores = (query[:, :, :, None] * key[:, :, None]).sum(-1) * query.shape[-1] ** -0.5
    scores = scores if bias is None else scores + bias
    return scores.masked_fill(~mask[..., None], float("-inf")).softmax(3)


def apply_elementwise_weights(pattern_RBTSH: Tensor, value: Float[Tensor, "R B S H K"]) -> Float[Tensor, "R B T H K"]:
    """Values averaged by the attention weights."""
    return (pattern_RBTSH[..., None] * value[:, :, None]).sum(3)


def attention_with_dropout(
    query: Float[Tensor, "R B T H K"],
    key: Float[Tensor, "R B S H K"],
    value: Float[Tensor, "R B S H K"],
    mask: Bool[Tensor, "... T S"],
    bias: Float[Tensor, "... T S H"] | None,
    causal: bool | None,
    dropout: Dropout,
) -> Float[Tensor, "R B T H K"]:
    """As `attend`, with some of the attention weights (R, B, H, T, S) dropped.

    Where each position sees those up to its own, the first half of them is done by itself, without the other half.
    """
    half = query.shape[2] // 2 if causal and query.shape[2] > SHORT_ATTENTION_POSITIONS else 0
    if half == 0:
        return apply_attention_weights(dropout(attention_weights(query, key, mask, bias)), value)
    early, late = query.split([half, query.shape[2] - half], dim=2)
    biases = (None, None) if bias is None else (bias[:half, :half], bias[half:])
    above = attention_weights(early, key[:, :, :half], mask[:half, :half], biases[0])
    below = attention_weights(late, key, mask[half:], biases[1])
    mixed = apply_attention_weights(dropout(above), value[:, :, :half])
    return torch.cat([mixed, apply_attention_weights(dropout(below, above[0].numel()), value)], dim=2)


def attention_weights(
    query: Float[Tensor, "R B T H K"],
    key: Float[Tensor, "R B S H K"],
    mask: Bool[Tensor, "... T S"],
    bias: Float[Tensor, "... T S H"] | None,
) -> Float[Tensor, "R B H T S"]:
    """The weights of `attention_pattern` by matrix products, head by head, as a reader wants them."""
    scores = (query * query.shape[-1] ** -0.5).transpose(2, 3) @ key.transpose(2, 3).mT
    hidden = ~mask if mask.ndim == 2 else ~mask[:, :, None]
    added = torch.zeros(hidden.shape, device=scores.device) if bias is None else bias.movedim(-1, -3)
    scores += added.to(scores.dtype).masked_fill(hidden, float("-inf"))  # a small table, added once and in place
    return scores.softmax(-1)


def apply_attention_weights(weights: Float[Tensor, "R B H T S"], value: Float[Tensor, "R B S H K"]) -> Tensor:
    """Values averaged by the attention weights of each head."""
    return (weights @ value.transpose(2, 3)).transpose(2, 3)
