"""Attention over very few positions, such as those of an equation: matmuls too small for tensor cores, in registers.

A program loads the keys and values of one head for some samples and loops over the queries.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_SOURCE_POSITIONS = 16
SUPPORTED_HEAD_DIMS = (8, 16, 32, 64, 128)
TILE_ELEMENTS = 256  # of the keys, per program of one warp


def is_supported_shape(n: int, head_dim: int) -> bool:
    """Whether `tiny_attention` supports n source positions and heads of this width."""
    return n <= MAX_SOURCE_POSITIONS and head_dim in SUPPORTED_HEAD_DIMS


@triton.jit
def _load_tile(x, sample, row, head, n_samples, n, sample_stride, row_stride, K: tl.constexpr):
    """Keys or values (samples, positions, head width) of one head, 0 out of bounds."""
    d = tl.arange(0, K)
    in_bounds = (sample[:, None, None] < n_samples) & (row[None, :, None] < n)
    offsets = sample[:, None, None] * sample_stride + row[None, :, None] * row_stride + head * K + d[None, None, :]
    return tl.load(x + offsets, mask=in_bounds, other=0.0).to(tl.float32)


@triton.jit
def _load_position(x, sample, t, head, n_samples, sample_stride, row_stride, K: tl.constexpr):
    """Queries, or gradients of the output, at one position of one head (samples, head width)."""
    offsets = sample[:, None] * sample_stride + t * row_stride + head * K + tl.arange(0, K)[None, :]
    return tl.load(x + offsets, mask=sample[:, None] < n_samples, other=0.0).to(tl.float32)


@triton.jit
def _attention_weights(q, k, mask, sample, t, row, n_samples, S, mask_stride, scale):
    """Attention weights (samples, positions) of one query."""
    scores = tl.sum(q[:, None, :] * k, 2) * scale
    in_bounds = (sample[:, None] < n_samples) & (row[None, :] < S)
    unmasked = tl.load(mask + sample[:, None] * mask_stride + t * S + row[None, :], mask=in_bounds, other=0) != 0
    scores = tl.where(unmasked, scores, -1e30)  # finite, so that rows past the end do not become NaN
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


@triton.jit
def _attention_kernel(
    q, k, v, mask, out, n_samples, T, S,
    q_sample_stride, q_row_stride, k_sample_stride, k_row_stride, v_sample_stride, v_row_stride, mask_stride, scale,
    H: tl.constexpr, K: tl.constexpr, SOURCE: tl.constexpr, SAMPLES: tl.constexpr,
):  # fmt: skip
    head, row = tl.program_id(1), tl.arange(0, SOURCE)
    sample = tl.program_id(0).to(tl.int64) * SAMPLES + tl.arange(0, SAMPLES)
    keys = _load_tile(k, sample, row, head, n_samples, S, k_sample_stride, k_row_stride, K)
    values = _load_tile(v, sample, row, head, n_samples, S, v_sample_stride, v_row_stride, K)
    for t in range(T):
        query = _load_position(q, sample, t, head, n_samples, q_sample_stride, q_row_stride, K)
        weights = _attention_weights(query, keys, mask, sample, t, row, n_samples, S, mask_stride, scale)
        out_t = tl.sum(weights[:, :, None] * values, 1)
        offsets = (sample * T + t)[:, None] * (H * K) + head * K + tl.arange(0, K)[None, :]
        tl.store(out + offsets, out_t.to(out.dtype.element_ty), mask=sample[:, None] < n_samples)


@triton.jit
def _attention_backward_kernel(
    q, k, v, mask, grad, grad_q, grad_k, grad_v, n_samples, T, S,
    q_sample_stride, q_row_stride, k_sample_stride, k_row_stride, v_sample_stride, v_row_stride, mask_stride, scale,
    H: tl.constexpr, K: tl.constexpr, SOURCE: tl.constexpr, SAMPLES: tl.constexpr,
):  # fmt: skip
    head, row, d = tl.program_id(1), tl.arange(0, SOURCE), tl.arange(0, K)
    sample = tl.program_id(0).to(tl.int64) * SAMPLES + tl.arange(0, SAMPLES)
    keys = _load_tile(k, sample, row, head, n_samples, S, k_sample_stride, k_row_stride, K)
    values = _load_tile(v, sample, row, head, n_samples, S, v_sample_stride, v_row_stride, K)
    acc_k = tl.zeros((SAMPLES, SOURCE, K), tl.float32)
    acc_v = tl.zeros((SAMPLES, SOURCE, K), tl.float32)
    for t in range(T):
        query = _load_position(q, sample, t, head, n_samples, q_sample_stride, q_row_stride, K)
        g = _load_position(grad, sample, t, head, n_samples, T * H * K, H * K, K)
        weights = _attention_weights(query, keys, mask, sample, t, row, n_samples, S, mask_stride, scale)
        grad_weights = tl.sum(g[:, None, :] * values, 2)
        grad_scores = weights * (grad_weights - tl.sum(weights * grad_weights, 1)[:, None]) * scale
        acc_v += weights[:, :, None] * g[:, None, :]
        acc_k += grad_scores[:, :, None] * query[:, None, :]
        grad_query = tl.sum(grad_scores[:, :, None] * keys, 1)
        offsets = (sample * T + t)[:, None] * (H * K) + head * K + d[None, :]
        tl.store(grad_q + offsets, grad_query.to(grad_q.dtype.element_ty), mask=sample[:, None] < n_samples)
    in_bounds = (sample[:, None, None] < n_samples) & (row[None, :, None] < S)
    offsets = (sample[:, None] * S + row[None, :])[:, :, None] * (H * K) + head * K + d[None, None, :]
    tl.store(grad_k + offsets, acc_k.to(grad_k.dtype.element_ty), mask=in_bounds)
    tl.store(grad_v + offsets, acc_v.to(grad_v.dtype.element_ty), mask=in_bounds)


def _with_regular_strides(x: Tensor) -> Tensor:
    """x (R, B, T, H, K), copied if samples are not evenly spaced or heads not contiguous."""
    evenly_spaced = x.stride(0) == x.shape[1] * x.stride(1) or x.shape[0] == 1
    return x if evenly_spaced and x.stride(3) == x.shape[4] and x.stride(4) == 1 else x.contiguous()


def _launch_arguments(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor
) -> tuple[tuple[int, int], tuple[Any, ...], dict[str, int]]:
    """Grid, trailing arguments and compile-time constants of both kernels."""
    n_samples, (_, _, n, heads, width), n_source = q.shape[0] * q.shape[1], q.shape, k.shape[2]
    source_block = triton.next_power_of_2(n_source)
    samples = max(1, TILE_ELEMENTS // (source_block * width))
    strides = [stride for x in (q, k, v) for stride in (x.stride(1), x.stride(2))]
    arguments = (n_samples, n, n_source, *strides, 0 if mask.ndim == 2 else n * n_source, width**-0.5)
    options = {"H": heads, "K": width, "SOURCE": source_block, "SAMPLES": samples, "num_warps": 1}
    return (triton.cdiv(n_samples, samples), heads), arguments, options


@torch.library.custom_op("seedbed::tiny_attention", mutates_args=())
def tiny_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention of queries (R, B, T, H, K) over keys and values (R, B, S, H, K), with mask (T, S) or (R, B, T, S)."""
    q, k, v, mask = _with_regular_strides(q), _with_regular_strides(k), _with_regular_strides(v), mask.contiguous()
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    grid, arguments, options = _launch_arguments(q, k, v, mask)
    _attention_kernel[grid](q, k, v, mask.view(torch.int8), out, *arguments, **options)
    return out


@torch.library.custom_op("seedbed::tiny_attention_backward", mutates_args=())
def _tiny_attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, mask = _with_regular_strides(q), _with_regular_strides(k), _with_regular_strides(v), mask.contiguous()
    grads = _allocate_gradients(q, k, v)
    grid, arguments, options = _launch_arguments(q, k, v, mask)
    _attention_backward_kernel[grid](q, k, v, mask.view(torch.int8), grad.contiguous(), *grads, *arguments, **options)
    return grads


def _allocate_gradients(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Uninitialised outputs of the backward pass."""
    grad_q, grad_k, grad_v = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    return grad_q, grad_k, grad_v


@tiny_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return torch.empty_like(q, memory_format=torch.contiguous_format)


@_tiny_attention_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _allocate_gradients(q, k, v)


def _setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *_tiny_attention_backward(grad, *ctx.saved_tensors), None


tiny_attention.register_autograd(_backward, setup_context=_setup_context)
