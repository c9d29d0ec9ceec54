"""Large products by other ways than the library's first choice.

    mapped = map_rows(x, weight, bias) if suits(x, weight) else F.linear(x, weight, bias)

One run's on a CPU through oneDNN, on some processors 10 to 25 % faster than otherwise; the function and its precision
are those of F.linear, and torch itself takes this way only in compiled programs. On a GPU in 16 bits: weights are
lowered all together beforehand instead of one by one, and their gradients arrive in float32, as they are summed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MANY = 512  # rows; with fewer, preparing the product costs more than it gains (docs/log.md)
TILE, BUSY = 128, 64  # of a product's output, what a processor of a GPU works on; as many of them keep it busy
LONG = 1024  # rows that are worth a part of a sum
MUCH = 2**24  # multiplications; with fewer, the step through Python does


def suits(x: Tensor, weight: Tensor) -> bool:
    """Whether the product is one that oneDNN has and is worth its preparation."""
    large = x.device.type == "cpu" and x.dtype == torch.float32 and x.numel() >= MANY * x.shape[-1]
    large = large and x.numel() * len(weight) >= MUCH
    return large and HAS_ONEDNN and not torch.compiler.is_compiling()


def map_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """F.linear."""
    return _Map.apply(x, weight, bias)


class _Map(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *outward: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        towards_x, towards_weight, towards_bias = ctx.needs_input_grad
        rows = outward[0].reshape(-1, len(weight))
        return (
            _product(rows, weight.T, None).view(x.shape) if towards_x else None,
            rows.T @ x.reshape(-1, x.shape[-1]) if towards_weight else None,  # the default is as fast for this one
            rows.sum(0) if towards_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def lowers(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether `map_low` is taken: in 16 bits, but not for one run with a bias, which the library adds on the way."""
    return x.is_cuda and torch.is_autocast_enabled("cuda") and (bias is None or len(weight) > 1)


def map_low(x: Tensor, weight: Tensor, low: Tensor) -> Tensor:
    """Each run's rows (R, N, D) by its weights (R, E, D), which `low` holds in x's 16 bits."""
    return _MapLow.apply(x, weight, low)


class _MapLow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, low: Tensor) -> Tensor:
        ctx.save_for_backward(x, low)
        return by_run(x, low.mT)

    @staticmethod
    def backward(ctx: Any, *outward: Tensor) -> tuple[Tensor | None, ...]:
        x, low = ctx.saved_tensors
        towards_x, towards_weight, _ = ctx.needs_input_grad
        return (
            by_run(outward[0], low) if towards_x else None,
            weight_gradient(outward[0], x) if towards_weight else None,
            None,
        )


def by_run(a: Tensor, b: Tensor) -> Tensor:
    """Each run's product; of one run, one that the library may split among more processors."""
    return torch.mm(a.squeeze(0), b.squeeze(0)).unsqueeze(0) if len(a) == 1 else torch.bmm(a, b)


def weight_gradient(outward: Tensor, x: Tensor) -> Tensor:
    """Σ over rows of outward (R, N, E) by x (R, N, D), in float32.

    Where the tiles of all runs' sums would leave most of a GPU idle, rows are summed in parts.
    """
    (n_runs, n, wide), deep = outward.shape, x.shape[2]
    if n_runs == 1:
        return torch.mm(outward.squeeze(0).mT, x.squeeze(0), out_dtype=torch.float32).unsqueeze(0)
    tiles, parts = n_runs * -(-wide // TILE) * -(-deep // TILE), 1
    while parts * tiles < BUSY and n % (2 * parts) == 0 and n >= 2 * parts * LONG:
        parts *= 2
    outward, x = outward.reshape(n_runs * parts, -1, wide), x.reshape(n_runs * parts, -1, deep)
    sums = torch.bmm(outward.mT, x, out_dtype=torch.float32)
    return sums.view(n_runs, parts, wide, deep).sum(1) if parts > 1 else sums


HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
