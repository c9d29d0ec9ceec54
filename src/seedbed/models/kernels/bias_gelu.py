"""GELU of a map whose bias, if it has one, is still to be added, and its gradients, in one pass each."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE_ROWS, TILE_COLUMNS = 16, 128  # of a tile
BACKWARD_WARPS = 8  # of a program of the gradient, whose tiles have half the rows: more of its loads are then under way
BACKWARD_ROWS_PER_PROGRAM = (
    32,
    128,
)  # rows that it goes through: of a small batch, which could not fill the device, and of others
MIN_PROGRAMS = 512  # that fill it


@triton.jit
def _normal_cdf(x):
    """Φ(x) and exp(−x²/2): erfc by Abramowitz and Stegun 7.1.26, whose error is below 1.5e-7, one unit of float32.

    Factors of √½ and ½ are in the constants; 1/y is rsqrt(y)², a third of the instructions of a division.
    """
    root = tl.rsqrt(1.0 + 0.23164188826636045 * tl.abs(x))
    t = root * root
    bell = tl.exp2(x * x * -0.7213475204444817)
    poly = t * (0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145))))
    tail = poly * bell
    return tl.where(x < 0, tail, 1.0 - tail), bell


@triton.jit
def _gelu_kernel(x, bias, out, n, E, bias_step, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BIASED: tl.constexpr):
    run, e = tl.program_id(2).to(tl.int64), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inside = (row[:, None] < n) & (e[None, :] < E)
    place = (run * n + row)[:, None] * E + e[None, :]
    h = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if BIASED:
        h += tl.load(bias + run * bias_step + e, mask=e < E, other=0.0).to(tl.float32)[None, :]
    phi, _ = _normal_cdf(h)
    tl.store(out + place, (h * phi).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gelu_backward_kernel(
    grad, x, bias, grad_x, sums, n, E, bias_step,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STRIDE: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    run, e = tl.program_id(2).to(tl.int64), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    b = total
    if BIASED:
        b += tl.load(bias + run * bias_step + e, mask=e < E, other=0.0).to(tl.float32)[None, :]
    for first in range(0, STRIDE, ROWS):
        row = tl.program_id(1) * STRIDE + first + tl.arange(0, ROWS)
        inside = (row[:, None] < n) & (e[None, :] < E)
        place = (run * n + row)[:, None] * E + e[None, :]
        h = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) + b
        g = tl.load(grad + place, mask=inside, other=0.0).to(tl.float32)
        phi, bell = _normal_cdf(h)
        g = g * (phi + h * bell * 0.3989422804014327)
        tl.store(grad_x + place, g.to(grad_x.dtype.element_ty), mask=inside)
        total += g
    if BIASED:
        place = sums + (run * tl.num_programs(1) + tl.program_id(1)) * E + e
        tl.store(place, tl.sum(total, 0), mask=e < E)


@torch.library.custom_op("seedbed::biased_gelu", mutates_args=())
def bias_gelu(x: Tensor, bias: Tensor | None) -> Tensor:
    """GELU of x (R, N, E) with a bias (R, E), if any."""
    n_runs, n, width = x.shape
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    grid = (triton.cdiv(width, TILE_COLUMNS), triton.cdiv(n, TILE_ROWS), n_runs)
    given = x if bias is None else bias
    _gelu_kernel[grid](
        x, given, out, n, width, given.stride(0), ROWS=TILE_ROWS, COLUMNS=TILE_COLUMNS, BIASED=bias is not None
    )
    return out


@torch.library.custom_op("seedbed::biased_gelu_backward", mutates_args=())
def _bias_gelu_backward(grad: Tensor, x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gradients of x, and of the bias stretch by stretch."""
    n_runs, n, width = x.shape
    grad_x, sums = _allocate_gradients(x, bias)
    stride = _rows_per_program(x)
    grid = (triton.cdiv(width, TILE_COLUMNS), triton.cdiv(n, stride), n_runs)
    given = x if bias is None else bias
    _gelu_backward_kernel[grid](
        grad.contiguous(), x.contiguous(), given, grad_x, sums, n, width, given.stride(0),
        ROWS=TILE_ROWS // 2, COLUMNS=TILE_COLUMNS, STRIDE=stride, BIASED=bias is not None, num_warps=BACKWARD_WARPS,
    )  # fmt: skip
    return grad_x, sums


def _allocate_gradients(x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Room for the gradients."""
    n_runs, n, width = x.shape
    sums = x.new_empty(n_runs, -(-n // _rows_per_program(x)) if bias is not None else 0, width, dtype=torch.float32)
    return torch.empty_like(x, memory_format=torch.contiguous_format), sums


def _rows_per_program(x: Tensor) -> int:
    few, many = BACKWARD_ROWS_PER_PROGRAM
    return many if x.numel() >= MIN_PROGRAMS * TILE_COLUMNS * many else few


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
