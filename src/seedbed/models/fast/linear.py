"""Linear layers of several runs: one batched matmul on a GPU, and oneDNN for large inputs on a CPU.

    out = batched_linear(x, weight, bf16_weight) if use_bf16_copy(x, weight, bias) else …
    out = onednn_linear(x, weight, bias) if should_use_onednn(x, weight) else …      # (R, N, D), (R, E, D), (R, E)

Under autocast, all weights are cast at once (`FlatParameters.add_bf16_copy`) instead of one by one at each use, and
weight gradients are returned in float32, the precision they are accumulated in. They are contiguous like the weights,
so that flattening them is a single pass.

oneDNN is 10 to 25 % faster than a batched product on some processors, at the same precision; torch itself uses it only
in compiled programs. The shape of one run alone decides, so that a run gets the same bits alone and in a pack.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seedbed.models.bitwise import counted_runs, is_reproducible

TILE_SIZE = 128  # output rows and columns of a matmul that one SM computes at a time
MIN_BUSY_TILES = 64  # output tiles that keep a GPU busy
MIN_ROWS_PER_SPLIT = 1024  # rows from which on splitting the sum over rows pays off
MIN_ONEDNN_ROWS = 512  # with fewer, oneDNN's setup costs more than it gains (docs/log.md)
MIN_ONEDNN_MULTIPLICATIONS = 2**24  # with fewer, the overhead of a Python autograd function outweighs the gain
HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def use_bf16_copy(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Use the bf16 copy of the weight? Not for a single run with a bias, where F.linear fuses the bias."""
    return x.is_cuda and torch.is_autocast_enabled("cuda") and (bias is None or len(weight) > 1)


def batched_linear(x: Tensor, weight: Tensor, bf16_weight: Tensor | None = None) -> Tensor:
    """x (R, N, D) times each run's transposed weight (R, E, D); `bf16_weight` is that weight in x's dtype."""
    n_outputs = weight.shape[1]
    if is_reproducible() and n_outputs % 8:  # packs of different sizes multiply odd widths by different algorithms
        padding = (0, 0, 0, -n_outputs % 8)
        bf16_weight = None if bf16_weight is None else F.pad(bf16_weight, padding)
        padded: Tensor = _BatchedLinear.apply(x, F.pad(weight, padding), bf16_weight)
        return padded[..., :n_outputs]
    out: Tensor = _BatchedLinear.apply(x, weight, bf16_weight)
    return out


class _BatchedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bf16_weight: Tensor | None) -> Tensor:
        used_weight = weight if bf16_weight is None else bf16_weight
        ctx.save_for_backward(x, used_weight)
        ctx.weight_dtype = weight.dtype
        return _batched_matmul(x, used_weight.mT)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (x, used_weight) = grads, ctx.saved_tensors
        needs_x, needs_weight, _ = ctx.needs_input_grad
        return (
            _batched_matmul(grad, used_weight) if needs_x else None,
            _weight_gradient(grad, x, ctx.weight_dtype) if needs_weight else None,
            None,
        )


def _batched_matmul(a: Tensor, b: Tensor) -> Tensor:
    """torch.bmm; mm for a single run, which cuBLAS may split over more SMs."""
    return torch.mm(a.squeeze(0), b.squeeze(0)).unsqueeze(0) if len(a) == 1 else torch.bmm(a, b)


def _batched_matmul_to_dtype(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """The same with the accumulated sums returned in `dtype` instead of rounded to that of a and b."""
    if len(a) == 1:
        return torch.mm(a.squeeze(0), b.squeeze(0), out_dtype=dtype).unsqueeze(0)
    return torch.bmm(a, b, out_dtype=dtype)


def _weight_gradient(grad: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    """gradᵀ x, summed over rows, for grad (R, N, E) and x (R, N, D).

    Split-K: where the output tiles of all runs would leave most of the GPU idle, the rows are summed in several splits.
    """
    (n_runs, n, d_out), d_in = grad.shape, x.shape[2]
    n_splits, n_tiles = 1, counted_runs(n_runs) * -(-d_out // TILE_SIZE) * -(-d_in // TILE_SIZE)
    while (
        n_runs > 1
        and n_splits * n_tiles < MIN_BUSY_TILES
        and n % (2 * n_splits) == 0
        and n >= 2 * n_splits * MIN_ROWS_PER_SPLIT
    ):
        n_splits *= 2
    grad, x = grad.reshape(n_runs * n_splits, -1, d_out), x.reshape(n_runs * n_splits, -1, d_in)
    sums = _batched_matmul(grad.mT, x) if x.dtype == dtype else _batched_matmul_to_dtype(grad.mT, x, dtype)
    return sums.view(n_runs, n_splits, d_out, d_in).sum(1) if n_splits > 1 else sums


# ---- oneDNN ----


def should_use_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN supports this product and is worth its overhead."""
    _, n_rows, d_in = x.shape
    large = n_rows >= MIN_ONEDNN_ROWS and n_rows * d_in * weight.shape[1] >= MIN_ONEDNN_MULTIPLICATIONS
    large = large and x.device.type == "cpu" and x.dtype == torch.float32
    return large and HAS_ONEDNN and not torch.compiler.is_compiling()


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Each run's x (N, D) times its transposed weight (E, D), plus its bias."""
    if len(weight) == 1:  # squeeze, since the backward of indexing would copy the whole gradient
        bias_1d = None if bias is None else bias.squeeze(0)
        return _OneDNNLinear.apply(x.squeeze(0), weight.squeeze(0), bias_1d).unsqueeze(0)
    biases = [None] * len(weight) if bias is None else bias.unbind()
    return torch.stack([_OneDNNLinear.apply(*one) for one in zip(x.unbind(), weight.unbind(), biases, strict=True)])


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn_matmul(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        grad = grads[0].reshape(-1, len(weight))
        return (
            _onednn_matmul(grad, weight.T, None).view(x.shape) if needs_x else None,
            grad.T @ x.reshape(-1, x.shape[-1]) if needs_weight else None,  # oneDNN is no faster for this one
            grad.sum(0) if needs_bias else None,
        )


def _onednn_matmul(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
