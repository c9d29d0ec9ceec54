"""Fused bias and GELU, forward and backward in one pass each."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from seedbed.models.bitwise import counted_runs

TILE_ROWS, TILE_COLUMNS = 16, 128
BACKWARD_WARPS = 8  # per program; backward tiles have half the rows, so that more loads are in flight
BACKWARD_ROWS_PER_PROGRAM = (32, 128)  # for batches too small to fill the GPU otherwise, and for larger ones
MIN_PROGRAMS = 512  # enough to fill the GPU


@triton.jit
def _normal_cdf(x):
    """Φ(x) and exp(−x²/2); erfc by Abramowitz and Stegun 7.1.26, with an error below 1.5e-7, about a float32 epsilon.

    The constants include factors of √½ and ½; 1/y is rsqrt(y)², a third of the instructions of a division.
    """
    root = tl.rsqrt(1.0 + 0.23164188826636045 * tl.abs(x))
    t = root * root
    exp_term = tl.exp2(x * x * -0.7213475204444817)
    poly = t * (0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145))))
    tail = poly * exp_term
    return tl.where(x < 0, tail, 1.0 - tail), exp_term


@triton.jit
def _gelu_kernel(x, bias, out, n, E, bias_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr, HAS_BIAS: tl.constexpr):
    run, e = tl.program_id(2).to(tl.int64), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    in_bounds = (row[:, None] < n) & (e[None, :] < E)
    offsets = (run * n + row)[:, None] * E + e[None, :]
    h = tl.load(x + offsets, mask=in_bounds, other=0.0).to(tl.float32)
    if HAS_BIAS:
        h += tl.load(bias + run * bias_stride + e, mask=e < E, other=0.0).to(tl.float32)[None, :]
    cdf, _ = _normal_cdf(h)
    tl.store(out + offsets, (h * cdf).to(out.dtype.element_ty), mask=in_bounds)


@triton.jit
def _gelu_backward_kernel(
    grad, x, bias, grad_x, sums, n, E, bias_stride,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, ROWS_PER_PROGRAM: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    run, e = tl.program_id(2).to(tl.int64), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    b = total
    if HAS_BIAS:
        b += tl.load(bias + run * bias_stride + e, mask=e < E, other=0.0).to(tl.float32)[None, :]
    for first in range(0, ROWS_PER_PROGRAM, ROWS):
        row = tl.program_id(1) * ROWS_PER_PROGRAM + first + tl.arange(0, ROWS)
        in_bounds = (row[:, None] < n) & (e[None, :] < E)
        offsets = (run * n + row)[:, None] * E + e[None, :]
        h = tl.load(x + offsets, mask=in_bounds, other=0.0).to(tl.float32) + b
        g = tl.load(grad + offsets, mask=in_bounds, other=0.0).to(tl.float32)
        cdf, exp_term = _normal_cdf(h)
        g = g * (cdf + h * exp_term * 0.3989422804014327)
        tl.store(grad_x + offsets, g.to(grad_x.dtype.element_ty), mask=in_bounds)
        total += g
    if HAS_BIAS:
        out = sums + (run * tl.num_programs(1) + tl.program_id(1)) * E + e
        tl.store(out, tl.sum(total, 0), mask=e < E)


@torch.library.custom_op("seedbed::biased_gelu", mutates_args=())
def bias_gelu(x: Tensor, bias: Tensor | None) -> Tensor:
    """GELU(x + bias) for x (R, N, E) and bias (R, E) or None."""
    n_runs, n, width = x.shape
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    grid = (triton.cdiv(width, TILE_COLUMNS), triton.cdiv(n, TILE_ROWS), n_runs)
    bias_or_x = x if bias is None else bias
    # without a bias, x stands in as a pointer that is never read
    _gelu_kernel[grid](
        x, bias_or_x, out, n, width, bias_or_x.stride(0),
        ROWS=TILE_ROWS, COLUMNS=TILE_COLUMNS, HAS_BIAS=bias is not None,
    )  # fmt: skip
    return out


@torch.library.custom_op("seedbed::biased_gelu_backward", mutates_args=())
def _bias_gelu_backward(grad: Tensor, x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gradient of x, and each program's sum for the gradient of the bias."""
    n_runs, n, width = x.shape
    grad_x, sums = _allocate_gradients(x, bias)
    rows_per_program = _rows_per_program(x)
    grid = (triton.cdiv(width, TILE_COLUMNS), triton.cdiv(n, rows_per_program), n_runs)
    bias_or_x = x if bias is None else bias
    _gelu_backward_kernel[grid](
        grad.contiguous(), x.contiguous(), bias_or_x, grad_x, sums, n, width, bias_or_x.stride(0),
        ROWS=TILE_ROWS // 2, COLUMNS=TILE_COLUMNS, ROWS_PER_PROGRAM=rows_per_program,
        HAS_BIAS=bias is not None, num_warps=BACKWARD_WARPS,
    )  # fmt: skip
    return grad_x, sums


def _allocate_gradients(x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Uninitialised outputs of the backward pass."""
    n_runs, n, width = x.shape
    sums = x.new_empty(n_runs, -(-n // _rows_per_program(x)) if bias is not None else 0, width, dtype=torch.float32)
    return torch.empty_like(x, memory_format=torch.contiguous_format), sums


def _rows_per_program(x: Tensor) -> int:
    small_batch, large_batch = BACKWARD_ROWS_PER_PROGRAM
    n_elements = counted_runs(len(x)) * x[0].numel()
    return large_batch if n_elements >= MIN_PROGRAMS * TILE_COLUMNS * large_batch else small_batch


@bias_gelu.register_fake
def _(x: Tensor, bias: Tensor | None) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_bias_gelu_backward.register_fake
def _(grad: Tensor, x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    return _allocate_gradients(x, bias)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
    x, bias = ctx.saved_tensors
    grad_x, sums = _bias_gelu_backward(grad, x, bias)
    return grad_x, None if bias is None else sums.sum(1).to(bias.dtype)


bias_gelu.register_autograd(_backward, setup_context=_setup_context)
