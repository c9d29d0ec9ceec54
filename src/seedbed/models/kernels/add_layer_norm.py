"""The stream between two parts of a block: what the last map left is added to it, and the sum is normed, in one pass.

A tile holds whole rows, as wide as the next power of two. What is past the width is masked: it idles lanes (a quarter
of them at width 192) but moves no bytes, and up to width 256 the sums of a row stay within a warp. A program goes
through a stretch of rows with the norm's weights, and in the gradient's pass their sums, in registers.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_WIDTH = 1024  # whose row is one tile
TILE_ELEMENTS = (
    1024  # entries, of one warp: a row's sums, and parts of it in two precisions, then stay among its threads
)
FORWARD_ROWS_PER_PROGRAM = 4  # rows of a program that leaves no sums
MIN_PROGRAMS = 1024  # wanted at least, about 8 for each processor of a large GPU


def is_supported_width(width: int) -> bool:
    """Whether `add_norm` takes a stream of this width."""
    return width <= MAX_WIDTH


@triton.jit
def _add_norm_kernel(
    x, y, bias, weight, shift, total, normed, means, scales, n, bias_step, weight_step, shift_step,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, STRETCH: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    run, d = tl.program_id(1).to(tl.int64), tl.arange(0, BLOCK)
    w = tl.load(weight + run * weight_step + d, mask=d < D, other=0.0).to(tl.float32)
    s = tl.load(shift + run * shift_step + d, mask=d < D, other=0.0).to(tl.float32)
    if BIASED:
        b = tl.load(bias + run * bias_step + d, mask=d < D, other=0.0).to(tl.float32)
    for first in range(0, STRETCH, ROWS):
        row = tl.program_id(0) * STRETCH + first + tl.arange(0, ROWS)
        inside = (row[:, None] < n) & (d[None, :] < D)
        place = (run * n + row)[:, None] * D + d[None, :]
        h = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        h += tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
        if BIASED:
            h += b[None, :]
        kept = h.to(total.dtype.element_ty)
        tl.store(total + place, kept, mask=inside)
        h = kept.to(tl.float32)  # what is normed is what goes on
        mean = tl.sum(h, 1) / D  # h is 0 past the width
        away = tl.where(d[None, :] < D, h - mean[:, None], 0.0)
        scale = tl.rsqrt(tl.sum(away * away, 1) / D + 1e-5)
        out = away * scale[:, None] * w[None, :] + s[None, :]
        tl.store(normed + place, out.to(normed.dtype.element_ty), mask=inside)
        tl.store(means + run * n + row, mean, mask=row < n)
        tl.store(scales + run * n + row, scale, mask=row < n)


@triton.jit
def _load_rows(grad_total, grad_normed, total, means, scales, row, here, d, D: tl.constexpr, USED: tl.constexpr):
    """What the gradient's pass reads of these rows; zeros where there are none, so that they add to no sum."""
    inside, place = here[:, None] & (d[None, :] < D), row[:, None] * D + d[None, :]
    g = tl.load(grad_normed + place, mask=inside, other=0.0)
    h = tl.load(total + place, mask=inside, other=0.0)
    more = tl.load(grad_total + place, mask=inside, other=0.0) if USED else h
    return g, h, more, tl.load(means + row, mask=here, other=0.0), tl.load(scales + row, mask=here, other=0.0)


@triton.jit
def _add_norm_backward_kernel(
    grad_total, grad_normed, total, means, scales, weight, grad, grad_y, sums, n, weight_step,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, STRETCH: tl.constexpr,
    BIASED: tl.constexpr, USED: tl.constexpr, LOWER: tl.constexpr,
):  # fmt: skip
    run, d = tl.program_id(1).to(tl.int64), tl.arange(0, BLOCK)
    w = tl.load(weight + run * weight_step + d, mask=d < D, other=0.0).to(tl.float32)
    of_weight = tl.zeros((ROWS, BLOCK), tl.float32)
    of_shift = tl.zeros((ROWS, BLOCK), tl.float32)
    of_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    row = tl.program_id(0) * STRETCH + tl.arange(0, ROWS)
    g, h, more, mean, scale = _load_rows(
        grad_total, grad_normed, total, means, scales, run * n + row, row < n, d, D, USED
    )  # fmt: skip
    for first in range(0, STRETCH, ROWS):
        here, place = row < n, (run * n + row)[:, None] * D + d[None, :]
        inside = here[:, None] & (d[None, :] < D)
        row += ROWS  # the next rows are on their way while these are worked on
        next_g, next_h, next_more, next_mean, next_scale = _load_rows(
            grad_total, grad_normed, total, means, scales, run * n + row, (row < n) & (first + ROWS < STRETCH),
            d, D, USED,
        )  # fmt: skip
        z = (h.to(tl.float32) - mean[:, None]) * scale[:, None]
        g = g.to(tl.float32)
        of_weight += g * z
        of_shift += g
        g = g * w[None, :]
        g = (g - (tl.sum(g, 1) / D)[:, None] - z * (tl.sum(g * z, 1) / D)[:, None]) * scale[:, None]
        if USED:
            g += more.to(tl.float32)
        tl.store(grad + place, g.to(grad.dtype.element_ty), mask=inside)
        if LOWER:
            tl.store(grad_y + place, g.to(grad_y.dtype.element_ty), mask=inside)
        if BIASED:
            of_bias += g
        g, h, more, mean, scale = next_g, next_h, next_more, next_mean, next_scale
    into = sums + (run * tl.num_programs(0) + tl.program_id(0)) * (3 * D if BIASED else 2 * D) + d
    tl.store(into, tl.sum(of_weight, 0), mask=d < D)
    tl.store(into + D, tl.sum(of_shift, 0), mask=d < D)
    if BIASED:
        tl.store(into + 2 * D, tl.sum(of_bias, 0), mask=d < D)


def _launch_options(n_runs: int, n: int, width: int, stretch: int | None = None) -> dict[str, int]:
    """What a kernel is specialised to; in the gradient's pass longer stretches leave fewer sums."""
    block = max(16, triton.next_power_of_2(width))
    stretch = stretch or min(64, max(16, triton.next_power_of_2(n_runs * n // MIN_PROGRAMS)))
    rows, warps = max(1, min(stretch, TILE_ELEMENTS // block)), max(1, block // TILE_ELEMENTS)
    return {"D": width, "BLOCK": block, "ROWS": rows, "STRETCH": stretch, "num_warps": warps}


@torch.library.custom_op("seedbed::add_norm", mutates_args=())
def add_layer_norm(
    x: Tensor, y: Tensor, bias: Tensor | None, weight: Tensor, shift: Tensor, goes_on: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x + y + bias in x's precision, its LayerNorm in y's (or, where that goes on as the stream, in x's too), and each
    row's mean and 1/σ in float32, for the gradient.

    x and y are (R, N, D), bias and the norm's weight and shift (R, D), rows of whatever holds them.
    """
    n_runs, n, width = x.shape
    x, y, total, normed = x.contiguous(), y.contiguous(), _empty_like(x), _empty_like(x if goes_on else y)
    means, scales = _empty_row_stats(x), _empty_row_stats(x)
    options = _launch_options(n_runs, n, width, FORWARD_ROWS_PER_PROGRAM)
    _add_norm_kernel[(triton.cdiv(n, options["STRETCH"]), n_runs)](
        x, y, x if bias is None else bias, weight, shift, total, normed, means, scales,
        n, 0 if bias is None else bias.stride(0), weight.stride(0), shift.stride(0), BIASED=bias is not None, **options,
    )  # fmt: skip
    return total, normed, means, scales


@torch.library.custom_op("seedbed::add_norm_backward", mutates_args=())
def _add_layer_norm_backward(
    grad_total: Tensor | None, grad_normed: Tensor, total: Tensor, means: Tensor, scales: Tensor, weight: Tensor,
    biased: bool, kind: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradient of the sum, again in y's precision if that is another, and weight's, shift's, bias's by stretch."""
    n_runs, n, width = total.shape
    grad, grad_y, sums = _allocate_gradients(total, biased, kind)
    used, lower = grad_total is not None, grad_y.numel() > 0
    options = _launch_options(n_runs, n, width)
    _add_norm_backward_kernel[(sums.shape[1], n_runs)](
        total if grad_total is None else grad_total.contiguous(), grad_normed.contiguous(), total, means, scales,
        weight, grad, grad_y, sums, n, weight.stride(0), BIASED=biased, USED=used, LOWER=lower, **options,
    )  # fmt: skip
    return grad, grad_y, sums


def _empty_like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _empty_row_stats(x: Tensor) -> Tensor:
    """Room for one number a row."""
    return x.new_empty(x.shape[:2], dtype=torch.float32)


def _allocate_gradients(total: Tensor, biased: bool, kind: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Room for what the gradient's pass writes."""
    n_runs, n, width = total.shape
    n_stretches = -(-n // _launch_options(n_runs, n, width)["STRETCH"])
    grad_y = total.new_empty((0,) if kind == total.dtype else total.shape, dtype=kind)
    return (
        _empty_like(total),
        grad_y,
        total.new_empty(n_runs, n_stretches, 3 if biased else 2, width, dtype=torch.float32),
    )


@add_layer_norm.register_fake
def _(
    x: Tensor, y: Tensor, bias: Tensor | None, weight: Tensor, shift: Tensor, goes_on: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _empty_like(x), _empty_like(x if goes_on else y), _empty_row_stats(x), _empty_row_stats(x)


@_add_layer_norm_backward.register_fake
def _(
    grad_total: Tensor | None, grad_normed: Tensor, total: Tensor, means: Tensor, scales: Tensor, weight: Tensor,
    biased: bool, kind: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return _allocate_gradients(total, biased, kind)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, y, bias, weight, *_ = inputs
    total, _, means, scales = output
    ctx.biased, ctx.kind = bias is not None, y.dtype
    ctx.save_for_backward(total, means, scales, weight)
    ctx.set_materialize_grads(False)  # after the last norm nobody goes on with the sum


def _backward(ctx: Any, grad_total: Tensor | None, grad_normed: Tensor, *_: None) -> tuple[Tensor | None, ...]:
    *kept, weight = ctx.saved_tensors
    grad, grad_y, sums = _add_layer_norm_backward(grad_total, grad_normed, *kept, weight, ctx.biased, ctx.kind)
    of_weight, of_shift, *of_bias = sums.sum(1).to(weight.dtype).unbind(1)
    return grad, grad_y if grad_y.numel() else grad, of_bias[0] if of_bias else None, of_weight, of_shift, None


add_layer_norm.register_autograd(_backward, setup_context=_setup_context)
