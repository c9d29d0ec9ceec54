"""Large products of one run on a CPU through oneDNN: on some processors 10 to 25 % faster than otherwise.

    mapped = map_rows(x, weight, bias) if suits(x, weight) else F.linear(x, weight, bias)

The function and its precision are those of F.linear; torch itself takes this way only in compiled programs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MIN_ROWS = 512  # rows; with fewer, preparing the product costs more than it gains (docs/log.md)
MIN_MULTIPLICATIONS = 2**24  # multiplications; with fewer, the step through Python does


def should_use_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether the product is one that oneDNN has and is worth its preparation."""
    large = x.device.type == "cpu" and x.dtype == torch.float32 and x.numel() >= MIN_ROWS * x.shape[-1]
    large = large and x.numel() * len(weight) >= MIN_MULTIPLICATIONS
    return large and HAS_ONEDNN and not torch.compiler.is_compiling()


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """F.linear."""
    return _OneDNNLinear.apply(x, weight, bias)


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn_matmul(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *outward: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        towards_x, towards_weight, towards_bias = ctx.needs_input_grad
        rows = outward[0].reshape(-1, len(weight))
        return (
            _onednn_matmul(rows, weight.T, None).view(x.shape) if towards_x else None,
            rows.T @ x.reshape(-1, x.shape[-1]) if towards_weight else None,  # the default is as fast for this one
            rows.sum(0) if towards_bias else None,
        )


def _onednn_matmul(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
