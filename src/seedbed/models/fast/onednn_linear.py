"""F.linear through oneDNN for large inputs of one run on a CPU: 10 to 25 % faster on some processors.

    out = onednn_linear(x, weight, bias) if should_use_onednn(x, weight) else F.linear(x, weight, bias)

Same function and precision as F.linear, for which torch itself uses oneDNN only in compiled programs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MIN_ROWS = 512  # with fewer, oneDNN's setup costs more than it gains (docs/log.md)
MIN_MULTIPLICATIONS = 2**24  # with fewer, the overhead of a Python autograd function outweighs the gain


def should_use_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN supports this product and is worth its overhead."""
    large = x.device.type == "cpu" and x.dtype == torch.float32 and x.numel() >= MIN_ROWS * x.shape[-1]
    large = large and x.numel() * len(weight) >= MIN_MULTIPLICATIONS
    return large and HAS_ONEDNN and not torch.compiler.is_compiling()


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Same as F.linear(x, weight, bias)."""
    return _OneDNNLinear.apply(x, weight, bias)


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


HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
