"""Fused residual add and LayerNorm: adds a linear layer's output and its bias to the residual stream and normalises it.

A tile holds whole rows, padded to the next power of two. Masked columns idle threads (a quarter of them at width 192)
but move no memory, and up to width 256 a row is reduced within one warp. Each program loops over several rows with the
norm's weights, and in the backward pass the sums of their gradients, in registers.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from seedbed.models.bitwise import counted_runs

MAX_WIDTH = 1024  # widest row that fits one tile
TILE_ELEMENTS = 1024  # per warp, so that row reductions and dtype conversions stay within a warp's threads
FORWARD_ROWS_PER_PROGRAM = 4  # few, since the forward pass leaves no partial sums
MIN_PROGRAMS = 1024  # aimed at in the backward pass, about 8 per SM of a large GPU


def is_supported_width(width: int) -> bool:
    """Whether `add_layer_norm` supports rows of this width."""
    return width <= MAX_WIDTH


@triton.jit
def _add_norm_kernel(
    x, y, bias, weight, shift, total, normed, means, scales, n, bias_stride, weight_stride, shift_stride,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, ROWS_PER_PROGRAM: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    run, d = tl.program_id(1).to(tl.int64), tl.arange(0, BLOCK)
    w = tl.load(weight + run * weight_stride + d, mask=d < D, other=0.0).to(tl.float32)
    s = tl.load(shift + run * shift_stride + d, mask=d < D, other=0.0).to(tl.float32)
    if HAS_BIAS:
        b = tl.load(bias + run * bias_stride + d, mask=d < D, other=0.0).to(tl.float32)
    for first in range(0, ROWS_PER_PROGRAM, ROWS):
        row = tl.program_id(0) * ROWS_PER_PROGRAM + first + tl.arange(0, ROWS)
        in_bounds = (row[:, None] < n) & (d[None, :] < D)
        offsets = (run * n + row)[:, None] * D + d[None, :]
        h = tl.load(x + offsets, mask=in_bounds, other=0.0).to(tl.float32)
        h += tl.load(y + offsets, mask=in_bounds, other=0.0).to(tl.float32)
        if HAS_BIAS:
            h += b[None, :]
        rounded = h.to(total.dtype.element_ty)
        tl.store(total + offsets, rounded, mask=in_bounds)
        h = rounded.to(tl.float32)  # normalise the rounded sum, which is what the next layer gets
        mean = tl.sum(h, 1) / D  # h is 0 in padded columns
        centered = tl.where(d[None, :] < D, h - mean[:, None], 0.0)
        scale = tl.rsqrt(tl.sum(centered * centered, 1) / D + 1e-5)
        out = centered * scale[:, None] * w[None, :] + s[None, :]
        tl.store(normed + offsets, out.to(normed.dtype.element_ty), mask=in_bounds)
        tl.store(means + run * n + row, mean, mask=row < n)
        tl.store(scales + run * n + row, scale, mask=row < n)


@triton.jit
def _load_rows(
    grad_total, grad_normed, total, means, scales, row, row_in_bounds, d, D: tl.constexpr, HAS_GRAD_TOTAL: tl.constexpr
):
    """Inputs of the backward pass for these rows; 0 out of bounds, so that sums are unaffected."""
    in_bounds, offsets = row_in_bounds[:, None] & (d[None, :] < D), row[:, None] * D + d[None, :]
    g = tl.load(grad_normed + offsets, mask=in_bounds, other=0.0)
    h = tl.load(total + offsets, mask=in_bounds, other=0.0)
    g_total = tl.load(grad_total + offsets, mask=in_bounds, other=0.0) if HAS_GRAD_TOTAL else h
    mean = tl.load(means + row, mask=row_in_bounds, other=0.0)
    scale = tl.load(scales + row, mask=row_in_bounds, other=0.0)
    return g, h, g_total, mean, scale


@triton.jit
def _add_norm_backward_kernel(
    grad_total, grad_normed, total, means, scales, weight, grad, grad_y, sums, n, weight_stride,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, ROWS_PER_PROGRAM: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_GRAD_TOTAL: tl.constexpr, WRITE_GRAD_Y: tl.constexpr,
):  # fmt: skip
    run, d = tl.program_id(1).to(tl.int64), tl.arange(0, BLOCK)
    w = tl.load(weight + run * weight_stride + d, mask=d < D, other=0.0).to(tl.float32)
    grad_weight = tl.zeros((ROWS, BLOCK), tl.float32)
    grad_shift = tl.zeros((ROWS, BLOCK), tl.float32)
    grad_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    row = tl.program_id(0) * ROWS_PER_PROGRAM + tl.arange(0, ROWS)
    g, h, g_total, mean, scale = _load_rows(
        grad_total, grad_normed, total, means, scales, run * n + row, row < n, d, D, HAS_GRAD_TOTAL
    )  # fmt: skip
    for first in range(0, ROWS_PER_PROGRAM, ROWS):
        row_in_bounds, offsets = row < n, (run * n + row)[:, None] * D + d[None, :]
        in_bounds = row_in_bounds[:, None] & (d[None, :] < D)
        row += ROWS  # prefetch the next rows while these are computed
        next_g, next_h, next_g_total, next_mean, next_scale = _load_rows(
            grad_total, grad_normed, total, means, scales, run * n + row, (row < n) & (first + ROWS < ROWS_PER_PROGRAM),
            d, D, HAS_GRAD_TOTAL,
        )  # fmt: skip
        z = (h.to(tl.float32) - mean[:, None]) * scale[:, None]
        g = g.to(tl.float32)
        grad_weight += g * z
        grad_shift += g
        g = g * w[None, :]
        g = (g - (tl.sum(g, 1) / D)[:, None] - z * (tl.sum(g * z, 1) / D)[:, None]) * scale[:, None]
        if HAS_GRAD_TOTAL:
            g += g_total.to(tl.float32)
        tl.store(grad + offsets, g.to(grad.dtype.element_ty), mask=in_bounds)
        if WRITE_GRAD_Y:
            tl.store(grad_y + offsets, g.to(grad_y.dtype.element_ty), mask=in_bounds)
        if HAS_BIAS:
            grad_bias += g
        g, h, g_total, mean, scale = next_g, next_h, next_g_total, next_mean, next_scale
    out = sums + (run * tl.num_programs(0) + tl.program_id(0)) * (3 * D if HAS_BIAS else 2 * D) + d
    tl.store(out, tl.sum(grad_weight, 0), mask=d < D)
    tl.store(out + D, tl.sum(grad_shift, 0), mask=d < D)
    if HAS_BIAS:
        tl.store(out + 2 * D, tl.sum(grad_bias, 0), mask=d < D)


def _launch_options(n_runs: int, n: int, width: int, rows_per_program: int | None = None) -> dict[str, int]:
    """Compile-time constants of a kernel; in the backward pass, more rows per program leave fewer partial sums."""
    block = max(16, triton.next_power_of_2(width))
    n_rows = counted_runs(n_runs) * n
    rows_per_program = rows_per_program or min(64, max(16, triton.next_power_of_2(n_rows // MIN_PROGRAMS)))
    rows, warps = max(1, min(rows_per_program, TILE_ELEMENTS // block)), max(1, block // TILE_ELEMENTS)
    return {"D": width, "BLOCK": block, "ROWS": rows, "ROWS_PER_PROGRAM": rows_per_program, "num_warps": warps}


@torch.library.custom_op("seedbed::add_norm", mutates_args=())
def add_layer_norm(
    x: Tensor, y: Tensor, bias: Tensor | None, weight: Tensor, shift: Tensor, keep_x_dtype: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x + y + bias in x's dtype, its LayerNorm in y's (with `keep_x_dtype`, in x's), and each row's mean and 1/σ in
    float32 for the backward pass.

    x and y are (R, N, D); bias and the norm's weight and shift are (R, D), with any stride between rows.
    """
    n_runs, n, width = x.shape
    x, y, total, normed = x.contiguous(), y.contiguous(), _empty_like(x), _empty_like(x if keep_x_dtype else y)
    means, scales = _empty_row_stats(x), _empty_row_stats(x)
    options = _launch_options(n_runs, n, width, FORWARD_ROWS_PER_PROGRAM)
    _add_norm_kernel[(triton.cdiv(n, options["ROWS_PER_PROGRAM"]), n_runs)](
        x, y, x if bias is None else bias, weight, shift, total, normed, means, scales,
        n, 0 if bias is None else bias.stride(0), weight.stride(0), shift.stride(0),
        HAS_BIAS=bias is not None, **options,
    )  # fmt: skip
    return total, normed, means, scales


@torch.library.custom_op("seedbed::add_norm_backward", mutates_args=())
def _add_layer_norm_backward(
    grad_total: Tensor | None, grad_normed: Tensor, total: Tensor, means: Tensor, scales: Tensor, weight: Tensor,
    has_bias: bool, y_dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradient of the sum, the same in y's dtype if that differs, and partial sums for weight, shift and bias."""
    n_runs, n, width = total.shape
    grad, grad_y, sums = _allocate_gradients(total, has_bias, y_dtype)
    options = _launch_options(n_runs, n, width)
    _add_norm_backward_kernel[(sums.shape[1], n_runs)](
        total if grad_total is None else grad_total.contiguous(), grad_normed.contiguous(), total, means, scales,
        weight, grad, grad_y, sums, n, weight.stride(0), HAS_BIAS=has_bias, HAS_GRAD_TOTAL=grad_total is not None,
        WRITE_GRAD_Y=grad_y.numel() > 0, **options,
    )  # fmt: skip
    return grad, grad_y, sums


def _empty_like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _empty_row_stats(x: Tensor) -> Tensor:
    """Uninitialised float32, one per row."""
    return x.new_empty(x.shape[:2], dtype=torch.float32)


def _allocate_gradients(total: Tensor, has_bias: bool, y_dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Uninitialised outputs of the backward pass."""
    n_runs, n, width = total.shape
    n_programs = -(-n // _launch_options(n_runs, n, width)["ROWS_PER_PROGRAM"])
    grad_y = total.new_empty((0,) if y_dtype == total.dtype else total.shape, dtype=y_dtype)
    sums = total.new_empty(n_runs, n_programs, 3 if has_bias else 2, width, dtype=torch.float32)
    return _empty_like(total), grad_y, sums


@add_layer_norm.register_fake
def _(
    x: Tensor, y: Tensor, bias: Tensor | None, weight: Tensor, shift: Tensor, keep_x_dtype: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _empty_like(x), _empty_like(x if keep_x_dtype else y), _empty_row_stats(x), _empty_row_stats(x)


@_add_layer_norm_backward.register_fake
def _(
    grad_total: Tensor | None, grad_normed: Tensor, total: Tensor, means: Tensor, scales: Tensor, weight: Tensor,
    has_bias: bool, y_dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return _allocate_gradients(total, has_bias, y_dtype)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, y, bias, weight, *_ = inputs
    total, _, means, scales = output
    ctx.has_bias, ctx.y_dtype = bias is not None, y.dtype
    ctx.save_for_backward(total, means, scales, weight)
    ctx.set_materialize_grads(False)  # after the last norm, the sum itself has no gradient


def _backward(ctx: Any, grad_total: Tensor | None, grad_normed: Tensor, *_: None) -> tuple[Tensor | None, ...]:
    *saved, weight = ctx.saved_tensors
    grad, grad_y, sums = _add_layer_norm_backward(grad_total, grad_normed, *saved, weight, ctx.has_bias, ctx.y_dtype)
    grad_weight, grad_shift, *grad_bias = sums.sum(1).to(weight.dtype).unbind(1)
    return grad, grad_y if grad_y.numel() else grad, grad_bias[0] if grad_bias else None, grad_weight, grad_shift, None


add_layer_norm.register_autograd(_backward, setup_context=_setup_context)
