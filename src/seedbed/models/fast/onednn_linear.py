"""Linear layers through oneDNN, run by run, for large inputs on a CPU: 10 to 25 % faster on some processors.

    out = onednn_linear(x, weight, bias) if should_use_onednn(x, weight) else …      # (R, N, D), (R, E, D), (R, E)

Same function and precision as a batched product; torch itself uses oneDNN only in compiled programs. Whether it is
used depends on the shape of one run alone, so that a run gets the same bits alone and in a pack.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MIN_ROWS = 512  # with fewer, oneDNN's setup costs more than it gains (docs/log.md)
MIN_MULTIPLICATIONS = 2**24  # with fewer, the overhead of a Python autograd function outweighs the gain


def should_use_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN supports this product and is worth its overhead."""
    _, n_rows, d_in = x.shape
    large = n_rows >= MIN_ROWS and n_rows * d_in * weight.shape[1] >= MIN_MULTIPLICATIONS
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


HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
