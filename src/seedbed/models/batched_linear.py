"""Maps on a GPU, each run's rows by its own weights, in 16 bits or as they are.

    mapped = map_runs(x, weight, low) if lowers(x, weight, bias) else …

Where products are done in 16 bits, weights are lowered all together beforehand (`Bank.lower`) instead of one by one
where they are used, and their gradients arrive in float32, as they are summed. All gradients of weights lie as the
weights do, so that putting them together is one pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

TILE_SIZE, MIN_BUSY_TILES = (
    128,
    64,
)  # of a product's output, what a processor of a GPU works on; as many of them keep it busy
MIN_ROWS_PER_SPLIT = 1024  # rows that are worth a part of a sum


def to_autocast_dtype(x: Tensor) -> Tensor:
    """A model's stream in 16 bits where they are asked for; sums and norms on its way are worked out in float32."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


def use_bf16_copy(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether 16-bit weights are taken where there are some: not for one run with a bias, which the library adds on
    the way."""
    return x.is_cuda and torch.is_autocast_enabled("cuda") and (bias is None or len(weight) > 1)


def batched_linear(x: Tensor, weight: Tensor, bf16_weight: Tensor | None = None) -> Tensor:
    """Each run's rows (R, N, D) by its weights (R, E, D), which `low` may hold in x's 16 bits."""
    return _BatchedLinear.apply(x, weight, bf16_weight)


class _BatchedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, low: Tensor | None) -> Tensor:
        taken = weight if low is None else low
        ctx.save_for_backward(x, taken)
        ctx.kind = weight.dtype
        return _batched_matmul(x, taken.mT)

    @staticmethod
    def backward(ctx: Any, *outward: Tensor) -> tuple[Tensor | None, ...]:
        x, taken = ctx.saved_tensors
        towards_x, towards_weight, _ = ctx.needs_input_grad
        return (
            _batched_matmul(outward[0], taken) if towards_x else None,
            _weight_gradient(outward[0], x, ctx.kind) if towards_weight else None,
            None,
        )


def _batched_matmul(a: Tensor, b: Tensor) -> Tensor:
    """Each run's product; of one run, one that the library may split among more processors."""
    return torch.mm(a.squeeze(0), b.squeeze(0)).unsqueeze(0) if len(a) == 1 else torch.bmm(a, b)


def _batched_matmul_to_dtype(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """The same in another precision than that of a and b: their sums as they are."""
    if len(a) == 1:
        return torch.mm(a.squeeze(0), b.squeeze(0), out_dtype=dtype).unsqueeze(0)
    return torch.bmm(a, b, out_dtype=dtype)


def _weight_gradient(outward: Tensor, x: Tensor, kind: torch.dtype) -> Tensor:
    """Σ over rows of outward (R, N, E) by x (R, N, D).

    Where the tiles of all runs' sums would leave most of a GPU idle, rows are summed in parts.
    """
    (n_runs, n, wide), deep = outward.shape, x.shape[2]
    parts, tiles = 1, n_runs * -(-wide // TILE_SIZE) * -(-deep // TILE_SIZE)
    while (
        n_runs > 1 and parts * tiles < MIN_BUSY_TILES and n % (2 * parts) == 0 and n >= 2 * parts * MIN_ROWS_PER_SPLIT
    ):
        parts *= 2
    outward, x = outward.reshape(n_runs * parts, -1, wide), x.reshape(n_runs * parts, -1, deep)
    sums = _batched_matmul(outward.mT, x) if x.dtype == kind else _batched_matmul_to_dtype(outward.mT, x, kind)
    return sums.view(n_runs, parts, wide, deep).sum(1) if parts > 1 else sums
