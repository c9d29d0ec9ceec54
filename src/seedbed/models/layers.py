"""Layers whose parameters and activations have the run as their first axis.

Models are written as if for one run: layers declare parameters of one run's shape, and `FlatParameters` adds the run
axis R. Only this file, `parameters.py` and `fast/` handle that axis.
Axes: R run, B batch, T time, S source, D width, H heads, K head width (in `Positions`: number of selected positions).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seedbed.models.bitwise import ALIGNED_ELEMENTS, is_aligned, is_reproducible, matmul
from seedbed.models.fast.cached_masks import cached_causal_mask, cached_identity, should_cache
from seedbed.models.fast.linear import batched_linear, onednn_linear, should_use_onednn, use_bf16_copy
from seedbed.rng import device_keys, random_int16

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}
Positions: TypeAlias = slice | Int[Tensor, "R B K"] | None  # positions to compute; None: all
Role: TypeAlias = Literal["embedding", "matrix", "output", "bias", "norm"]  # of a parameter, for optimizers

# Up to this many source positions, elementwise multiply-and-sum beats a fused attention kernel (docs/log.md).
SHORT_ATTENTION_POSITIONS = 16
# Up to this many rows, a one-hot matmul beats gather on a GPU, whose backward pass needs atomics.
MAX_ONE_HOT_ROWS = 256
# From this many elements of one run on, a CPU normalises run by run: gain and shift are then part of torch's kernel.
MIN_ELEMENTS_TO_NORM_BY_RUN = 2**11
HAS_TRITON = find_spec("triton") is not None  # installed with CUDA builds of torch


def meta_parameter(*shape: int) -> nn.Parameter:
    """A parameter of one run on the meta device; `FlatParameters` gives it storage."""
    return nn.Parameter(torch.empty(1, *shape, device="meta"))


def register_table(module: nn.Module, n: int, dim: int, frozen: bool) -> None:
    """Adds the embedding table as a parameter, or as a buffer if frozen."""
    if frozen:
        module.register_buffer("weight", torch.empty(1, n, dim, device="meta"), persistent=False)
    else:
        module.register_parameter("weight", meta_parameter(n, dim))


def to_autocast_dtype(x: Tensor) -> Tensor:
    """x in the autocast dtype if autocast is on, so that the residual stream is kept in 16 bits."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


def linear(
    x: Float[Tensor, "R *n D"],
    weight: Float[Tensor, "R E D"],
    bias: Float[Tensor, "R E"] | None,
    bf16_weight: Float[Tensor, "R E D"] | None = None,
) -> Tensor:
    """F.linear with each run's own weight; `bf16_weight` is a 16-bit copy of the weight, used under autocast."""
    if bf16_weight is not None and use_bf16_copy(x, weight, bias):
        flat = x.reshape(len(weight), -1, x.shape[-1]).to(bf16_weight.dtype)
        out = batched_linear(flat, weight, bf16_weight).view(*x.shape[:-1], -1)
        return out if bias is None else out + bias.view(len(bias), *[1] * (x.ndim - 2), -1)
    if len(weight) < len(x) and (is_reproducible() or not x.is_cuda):
        weight = weight.expand(len(x), -1, -1)  # one frozen table: not all runs' rows in one product
    if x.is_cuda and len(weight) == 1:
        # squeeze, since the backward of indexing would copy the whole gradient
        return F.linear(x, weight.squeeze(0), None if bias is None else bias.squeeze(0))
    flat = x.reshape(len(weight), -1, x.shape[-1])
    if x.is_cuda:
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else weight.dtype
        out = batched_linear(flat.to(dtype), weight.to(dtype))
        out = out if bias is None else out + bias[:, None]  # baddbmm would first broadcast the bias into the output
    else:
        out = _linear_on_cpu(flat, weight, bias)
    return out.view(*x.shape[:-1], -1)


def _linear_on_cpu(
    x: Float[Tensor, "R N D"], weight: Float[Tensor, "R E D"], bias: Float[Tensor, "R E"] | None
) -> Float[Tensor, "R N E"]:
    """By a product that is chosen by the shape of one run, so that a run alone gets the same bits as in a pack."""
    n_rows, d_in, d_out = x.shape[1], x.shape[2], weight.shape[1]
    if not is_aligned(n_rows * d_in, n_rows * d_out, d_in * d_out):  # alone too: padding changes the rounding
        n_columns = -d_in % ALIGNED_ELEMENTS
        padded = F.pad(x, (0, n_columns, 0, -n_rows % ALIGNED_ELEMENTS))
        return _linear_on_cpu(padded, F.pad(weight, (0, n_columns)), bias)[:, :n_rows]
    if should_use_onednn(x, weight):
        return onednn_linear(x, weight, bias)
    if len(weight) == 1 and 1 in weight.shape[1:]:  # alone, a row or column would be multiplied as a vector
        bias_2 = None if bias is None else torch.cat([bias, bias])
        return _linear_on_cpu(torch.cat([x, x]), torch.cat([weight, weight]), bias_2)[:1]
    return x @ weight.mT if bias is None else torch.baddbmm(bias[:, None], x, weight.mT)


def embedding(index: Int[Tensor, "R B T"], table: Float[Tensor, "R n D"]) -> Float[Tensor, "R B T D"]:
    """F.embedding with each run's own table."""
    n_runs, n, _ = table.shape
    if index.is_cuda and n <= MAX_ONE_HOT_ROWS:
        return gather_rows(table, one_hot(index.flatten(1), n, table.dtype)).view(*index.shape, -1)
    first_row = torch.arange(n_runs, device=index.device)[:, None, None] * n
    return F.embedding(index + first_row, table.reshape(n_runs * n, -1))


class Linear(nn.Module):
    """A linear layer, or `n_parts` concatenated ones (queries, keys and values; LSTM gates), initialised separately."""

    weight_role: Role = "matrix"

    def __init__(self, d_in: int, d_out: int, bias: bool = True, n_parts: int = 1) -> None:
        super().__init__()
        self.d_in, self.n_parts = d_in, n_parts
        self.weight = meta_parameter(d_out, d_in)
        self.bias = meta_parameter(d_out) if bias else None
        self.bf16_weight: Tensor | None = None  # 16-bit copy of the weight (`FlatParameters.add_bf16_copy`)

    def forward(self, x: Tensor, rows: slice | None = None) -> Tensor:
        """The layer's output, or only the given output features."""
        if rows is None:
            return linear(x, self.weight, self.bias, self.bf16_weight)
        bias, bf16_weight = (None if tensor is None else tensor[:, rows] for tensor in (self.bias, self.bf16_weight))
        return linear(x, self.weight[:, rows], bias, bf16_weight)

    def forward_split(self, inputs: Sequence[Tensor], split_sizes: Sequence[int]) -> list[Tensor]:
        """Splits the output features by `split_sizes` and computes the i-th part from the i-th input."""
        tensors = (self.weight, self.bias, self.bf16_weight)
        parts = ([None] * len(split_sizes) if one is None else one.split(list(split_sizes), dim=1) for one in tensors)
        return [linear(x, *part) for x, *part in zip(inputs, *parts, strict=True)]

    def forward_without_bias(self, x: Tensor) -> Tensor:
        """The output without the bias, for kernels that add it themselves."""
        return linear(x, self.weight, None, self.bf16_weight)


class Embedding(nn.Module):
    """Token embeddings; the row `padding_idx`, if given, is initialised to zero.

    A frozen table is a buffer shared by all runs, filled when the model is built.
    """

    weight_role: Role = "embedding"
    weight: Tensor

    def __init__(self, n: int, dim: int, padding_idx: int | None = None, frozen: bool = False) -> None:
        super().__init__()
        register_table(self, n, dim, frozen)
        self.padding_idx = padding_idx

    def forward(self, tokens: Int[Tensor, "R B T"]) -> Float[Tensor, "R B T D"]:
        return embedding(tokens, self.weight)


class OutputLayer(nn.Module):
    """Linear layer to logits, with its own weight or tied to the token embedding."""

    weight_role: Role = "output"
    is_bypassed = False  # returns its input, so that logits are computed elsewhere, together with the loss

    def __init__(self, dim: int, vocabulary: int, bias: bool, tied_embedding: Embedding | None = None) -> None:
        super().__init__()
        self.d_in = dim
        self.weight = meta_parameter(vocabulary, dim) if tied_embedding is None else None
        self.bias = meta_parameter(vocabulary) if bias else None
        self._tied_embedding = (tied_embedding,)  # in a tuple, so that it is not registered as a submodule

    def forward(self, x: Tensor) -> Tensor:
        if self.is_bypassed:
            return x
        (tied_embedding,) = self._tied_embedding
        weight = self.weight if tied_embedding is None else tied_embedding.weight
        assert weight is not None
        if self.bias is None or len(weight) == len(self.bias):
            return linear(x, weight, self.bias)
        return linear(x, weight, None) + self.bias[:, None, None]  # frozen embedding shared by all runs, own bias


class LayerNorm(nn.Module):
    """torch.nn.LayerNorm per run; computed in at least float32, returned in the dtype of the input."""

    weight_role: Role = "norm"

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight, self.bias = meta_parameter(dim), meta_parameter(dim)

    def forward(self, x: Float[Tensor, "R B T D"]) -> Float[Tensor, "R B T D"]:
        dim = x.shape[-1]
        if x.is_cuda and len(self.weight) == 1:
            return F.layer_norm(x, (dim,), self.weight.squeeze(0), self.bias.squeeze(0)).to(x.dtype)
        if not x.is_cuda and x.numel() >= len(x) * MIN_ELEMENTS_TO_NORM_BY_RUN:  # whether alone or in a pack
            by_run = zip(x.unbind(), self.weight.unbind(), self.bias.unbind(), strict=True)
            return torch.stack([F.layer_norm(one, (dim,), weight, bias) for one, weight, bias in by_run]).to(x.dtype)
        normed = torch.addcmul(self.bias[:, None, None], F.layer_norm(x, (dim,)), self.weight[:, None, None])
        return normed.to(x.dtype)


class BatchNorm(nn.Module):
    """torch.nn.BatchNorm1d per run: batch statistics in training mode, running statistics in evaluation mode.

    As there, the batch variance is biased and the running variance unbiased.
    """

    EPS, MOMENTUM = 1e-5, 0.1
    weight_role: Role = "norm"
    mean: Float[Tensor, "R F"]
    variance: Float[Tensor, "R F"]

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight, self.bias = meta_parameter(dim), meta_parameter(dim)
        self.dim = dim

    def init_running_stats(self, n_runs: int, device: torch.device, dtype: torch.dtype) -> None:
        """Allocates the running mean and variance of every run."""
        self.register_buffer("mean", torch.zeros(n_runs, self.dim, device=device, dtype=dtype))
        self.register_buffer("variance", torch.ones(n_runs, self.dim, device=device, dtype=dtype))

    def forward(self, x: Float[Tensor, "R B 1 F"], sample_mask: Bool[Tensor, "R B"] | None = None) -> Tensor:
        """Normalises all samples; those outside `sample_mask` do not enter the statistics."""
        mean, variance = self._batch_moments(x, sample_mask) if self.training else (self.mean, self.variance)
        scale = self.weight * (variance + self.EPS).rsqrt()
        return torch.addcmul((self.bias - mean * scale)[:, None, None], x, scale[:, None, None])

    def _batch_moments(self, x: Tensor, sample_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        weight = torch.ones_like(x[..., :1]) if sample_mask is None else sample_mask[..., None, None].to(x.dtype)
        n = weight.sum((1, 2))
        mean = (weight * x).sum((1, 2)) / n.clamp(min=1)
        variance = (weight * (x - mean[:, None, None]).square()).sum((1, 2)) / n.clamp(min=1)
        with torch.no_grad():
            momentum = self.MOMENTUM * (n > 0).to(self.mean.dtype)  # an empty batch updates nothing
            self.mean.lerp_(mean.to(self.mean.dtype), momentum)
            self.variance.lerp_((variance * n / (n - 1).clamp(min=1)).to(self.variance.dtype), momentum)
        return mean, variance


def running_stats(model: nn.Module) -> dict[str, Float[Tensor, "R *n"]]:
    """BatchNorm's running means and variances by buffer name: state that is learned without gradients."""
    norms = [(name, module) for name, module in model.named_modules() if isinstance(module, BatchNorm)]
    return {f"{name}.{leaf}": buffer for name, module in norms for leaf, buffer in module.named_buffers()}


class Dropout(nn.Module):
    """Dropout in training mode, with each run's own rate (the named setting) and random stream.

    Rates are rounded to 1/65,536, since masks come from 16-bit random integers; the scale uses the rounded rate.
    """

    thresholds: Int[Tensor, "R 1"] | None = None  # int16, an entry is kept at or above it; None: no run has dropout

    def __init__(self, setting: str = "dropout") -> None:
        super().__init__()
        self.setting = setting

    @property
    def is_active(self) -> bool:
        return self.training and self.thresholds is not None

    def configure(self, rates: Sequence[float], seeds: Sequence[int], stream: str, step: Int[Tensor, "1"]) -> None:
        """Sets the rates and random streams of the pack; `step` is the trainer's step counter, read at every call."""
        if not any(rates):
            self.thresholds = None
            return
        dropped = torch.tensor([[min(round(rate * 2**16), 2**16 - 1)] for rate in rates])  # per 65,536
        self.thresholds = (dropped - 2**15).to(step.device, torch.int16)
        self.scales = (2**16 / (2**16 - dropped)).to(step.device)
        self.keys, self.step = device_keys(seeds, stream, step.device), step

    def forward(self, x: Float[Tensor, "R *n"], offset: int = 0) -> Float[Tensor, "R *n"]:
        """Masks and scales x; `offset`, rounded up to even, is where its mask starts in this step's random stream."""
        if self.thresholds is None or not self.training:
            return x
        keep = random_int16(self.keys, self.step, x[0].numel(), -(-offset // 2)) >= self.thresholds
        return x * keep.to(x.dtype).mul_(self.scales).view_as(x)


def one_hot(index: Int[Tensor, "R B"], n: int, dtype: torch.dtype) -> Float[Tensor, "R B n"]:
    """One-hot rows; on a GPU padded to a multiple of 8 columns, which tensor cores need."""
    columns = -(-n // 8) * 8 if index.is_cuda else n
    if should_cache(index.device) and columns <= MAX_ONE_HOT_ROWS:
        return F.embedding(index, cached_identity(columns, index.device)).to(dtype)
    return (index[..., None] == torch.arange(columns, device=index.device)).to(dtype)


def gather_rows(values: Float[Tensor, "R U *n"], one_hot_rows: Float[Tensor, "R B U"]) -> Float[Tensor, "R B *n"]:
    """values[r, index] as a one-hot matmul: exact, and its backward is a matmul too, without atomics."""
    table = values.flatten(2)
    if table.shape[1] < one_hot_rows.shape[2]:
        table = F.pad(table, (0, 0, 0, one_hot_rows.shape[2] - table.shape[1]))
    rows = one_hot_rows @ table
    return rows.view(*one_hot_rows.shape[:2], *values.shape[2:])


def select_positions(x: Float[Tensor, "R B T D"], positions: Positions) -> Float[Tensor, "R B K D"]:
    """The given positions of each sequence."""
    if positions is None:
        return x
    if isinstance(positions, slice):
        return x[:, :, positions]
    return x.gather(2, positions[..., None].expand(*positions.shape, x.shape[-1]))


def causal_mask(positions: Positions, n: int, device: torch.device, n_past: int = 0) -> Bool[Tensor, "... K S"]:
    """True where a position may attend: to itself, to earlier ones and to all n_past cached ones."""
    if n_past + n <= SHORT_ATTENTION_POSITIONS and not isinstance(positions, Tensor) and should_cache(device):
        return cached_causal_mask(range(n)[positions or slice(None)], n, n_past, device)
    source = torch.arange(-n_past, n, device=device)
    new = source[n_past:]
    target = new if positions is None else new[positions] if isinstance(positions, slice) else positions
    return target[..., None] >= source


def absolute_positions(positions: Positions, n: int, device: torch.device, n_past: int = 0) -> Int[Tensor, "... K"]:
    """Indices of the given positions among n new ones, counted from the first of the n_past cached ones."""
    new = torch.arange(n_past, n_past + n, device=device)
    return new if positions is None else new[positions] if isinstance(positions, slice) else positions + n_past


def append_past(past: Float[Tensor, "R B S *n"], new: Float[Tensor, "R B T *n"]) -> Tensor:
    """Concatenates cached and new keys (or values) along time."""
    return torch.cat([past.to(new.dtype), new], dim=2)


def attention(
    query: Float[Tensor, "R B T H K"],
    key: Float[Tensor, "R B S H K"],
    value: Float[Tensor, "R B S H K"],
    mask: Bool[Tensor, "... T S"],
    bias: Float[Tensor, "... T S H"] | None = None,
    causal: bool | None = None,
) -> Float[Tensor, "R B T H K"]:
    """Softmax attention per run, sample and head; `bias` is added to the scaled scores.

    `causal`: True or False says that `mask` is causal or all True, so that SDPA can use its built-in mask; None means
    use `mask`.
    """
    if key.shape[2] <= SHORT_ATTENTION_POSITIONS:
        if bias is None and _can_use_tiny_attention(query, key, value):
            from seedbed.models.fast.kernels.tiny_attention import tiny_attention

            return tiny_attention(query, key, value, mask)
        return apply_elementwise_weights(elementwise_attention_weights(query, key, mask, bias), value)
    if bias is not None and bias.ndim == 5 and bias.shape[1] < query.shape[1]:
        # a bias that is shared by the samples of a run, but not by all runs, has no place in SDPA's folded batch
        return apply_attention_weights(attention_weights(query, key, mask, bias), value)
    if not query.is_cuda and not is_aligned(*(x.numel() // len(x) for x in (query, key, value))):
        return apply_attention_weights(attention_weights(query, key, mask, bias), value)  # whose products know of that
    q, k, v = (x.flatten(0, 1).transpose(1, 2) for x in (query, key, value))
    if causal is not None and bias is None:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    else:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=_sdpa_mask(mask, bias))
    return out.transpose(1, 2).unflatten(0, query.shape[:2])


def _can_use_tiny_attention(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the Triton kernel for very short sequences supports these inputs."""
    if not (HAS_TRITON and query.is_cuda and query.dtype == key.dtype == value.dtype != torch.float64):
        return False
    from seedbed.models.fast.kernels.tiny_attention import is_supported_shape

    return is_supported_shape(key.shape[2], key.shape[4])


def _sdpa_mask(mask: Bool[Tensor, "... T S"], bias: Float[Tensor, "... T S H"] | None) -> Tensor:
    """Mask and bias combined into SDPA's `attn_mask`."""
    mask = mask if mask.ndim == 2 else mask.flatten(0, 1)[:, None]
    if bias is None:
        return mask
    bias_per_head = bias.movedim(-1, -3)[None] if bias.ndim == 3 else bias.movedim(-1, -3).flatten(0, 1)
    return bias_per_head.masked_fill(~mask, float("-inf"))


def elementwise_attention_weights(
    query: Tensor, key: Tensor, mask: Tensor, bias: Tensor | None = None
) -> Float[Tensor, "R B T S H"]:
    """Attention weights by elementwise multiply-and-sum, fast for short sequences; rows over S sum to 1."""
    scores = (query[:, :, :, None] * key[:, :, None]).sum(-1) * query.shape[-1] ** -0.5
    scores = scores if bias is None else scores + bias
    return scores.masked_fill(~mask[..., None], float("-inf")).softmax(3)


def apply_elementwise_weights(weights_RBTSH: Tensor, value: Float[Tensor, "R B S H K"]) -> Float[Tensor, "R B T H K"]:
    """Weighted sum of the values by elementwise multiply-and-sum."""
    return (weights_RBTSH[..., None] * value[:, :, None]).sum(3)


def attention_with_dropout(
    query: Float[Tensor, "R B T H K"],
    key: Float[Tensor, "R B S H K"],
    value: Float[Tensor, "R B S H K"],
    mask: Bool[Tensor, "... T S"],
    bias: Float[Tensor, "... T S H"] | None,
    causal: bool | None,
    dropout: Dropout,
) -> Float[Tensor, "R B T H K"]:
    """`attention` with dropout on the attention weights (R, B, H, T, S).

    If causal, the first half of the queries is computed separately, on the first half of the keys only.
    """
    half = query.shape[2] // 2 if causal and query.shape[2] > SHORT_ATTENTION_POSITIONS else 0
    if half == 0:
        return apply_attention_weights(dropout(attention_weights(query, key, mask, bias)), value)
    early, late = query.split([half, query.shape[2] - half], dim=2)
    biases = (None, None) if bias is None else (bias[..., :half, :half, :], bias[..., half:, :, :])
    early_weights = attention_weights(early, key[:, :, :half], mask[:half, :half], biases[0])
    late_weights = attention_weights(late, key, mask[half:], biases[1])
    early_out = apply_attention_weights(dropout(early_weights), value[:, :, :half])
    # the second half continues this step's random stream where the first half stopped
    late_out = apply_attention_weights(dropout(late_weights, early_weights[0].numel()), value)
    return torch.cat([early_out, late_out], dim=2)


def attention_weights(
    query: Float[Tensor, "R B T H K"],
    key: Float[Tensor, "R B S H K"],
    mask: Bool[Tensor, "... T S"],
    bias: Float[Tensor, "... T S H"] | None,
) -> Float[Tensor, "R B H T S"]:
    """Attention weights by matrix products; rows over S sum to 1."""
    scores = matmul((query * query.shape[-1] ** -0.5).transpose(2, 3), key.transpose(2, 3).mT)
    masked = ~mask if mask.ndim == 2 else ~mask[:, :, None]
    score_bias = torch.zeros(masked.shape, device=scores.device) if bias is None else bias.movedim(-1, -3)
    # mask and bias are small and added in place, in one pass over the scores
    scores += score_bias.to(scores.dtype).masked_fill(masked, float("-inf"))
    return scores.softmax(-1)


def apply_attention_weights(weights: Float[Tensor, "R B H T S"], value: Float[Tensor, "R B S H K"]) -> Tensor:
    """Weighted sum of the values, by matrix products."""
    return matmul(weights, value.transpose(2, 3)).transpose(2, 3)
