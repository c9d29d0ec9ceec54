"""Products in 16 bits on a GPU, each run's by its own weights.

    mapped = map_low(x, weight, low) if lowers(x, weight, bias) else …

Weights are lowered all together beforehand (`Bank.lower`) instead of one by one where they are used, and their
gradients arrive in float32, as they are summed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

TILE, BUSY = 128, 64  # of a product's output, what a processor of a GPU works on; as many of them keep it busy
LONG = 1024  # rows that are worth a part of a sum


def lowered(x: Tensor) -> Tensor:
    """A model's stream in 16 bits where they are asked for; sums and norms on its way are worked out in float32."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


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
        return _by_run(x, low.mT)

    @staticmethod
    def backward(ctx: Any, *outward: Tensor) -> tuple[Tensor | None, ...]:
        x, low = ctx.saved_tensors
        towards_x, towards_weight, _ = ctx.needs_input_grad
        return (
            _by_run(outward[0], low) if towards_x else None,
            _weight_gradient(outward[0], x) if towards_weight else None,
            None,
        )


def _by_run(a: Tensor, b: Tensor) -> Tensor:
    """Each run's product; of one run, one that the library may split among more processors."""
    return torch.mm(a.squeeze(0), b.squeeze(0)).unsqueeze(0) if len(a) == 1 else torch.bmm(a, b)


def _weight_gradient(outward: Tensor, x: Tensor) -> Tensor:
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
