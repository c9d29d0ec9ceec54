"""Attention over a few positions, as equations have: products too small for matrix units, done in registers.

A program takes some samples' keys and values of one head and goes through the queries one by one.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_SOURCE_POSITIONS = 16  # source positions
SUPPORTED_HEAD_DIMS = (8, 16, 32, 64, 128)  # of a head
TILE_ELEMENTS = 256  # entries of the keys that a program, one warp, holds


def is_supported_shape(n: int, width: int) -> bool:
    """Whether `tiny_attention` takes n source positions and heads of this width."""
    return n <= MAX_SOURCE_POSITIONS and width in SUPPORTED_HEAD_DIMS


@triton.jit
def _load_tile(x, sample, row, head, n_samples, n, of_sample, of_row, K: tl.constexpr):
    """Keys or values (samples, positions, width) of one head, 0 outside."""
    d = tl.arange(0, K)
    inside = (sample[:, None, None] < n_samples) & (row[None, :, None] < n)
    place = sample[:, None, None] * of_sample + row[None, :, None] * of_row + head * K + d[None, None, :]
    return tl.load(x + place, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _load_position(x, sample, t, head, n_samples, of_sample, of_row, K: tl.constexpr):
    """Queries, or gradients of what was mixed, of one position and head (samples, width)."""
    place = sample[:, None] * of_sample + t * of_row + head * K + tl.arange(0, K)[None, :]
    return tl.load(x + place, mask=sample[:, None] < n_samples, other=0.0).to(tl.float32)


@triton.jit
def _attention_weights(q, k, seen, sample, t, row, n_samples, S, of_seen, scale):
    """Attention weights (samples, positions) of one query."""
    scores = tl.sum(q[:, None, :] * k, 2) * scale
    inside = (sample[:, None] < n_samples) & (row[None, :] < S)
    open_ = tl.load(seen + sample[:, None] * of_seen + t * S + row[None, :], mask=inside, other=0) != 0
    scores = tl.where(open_, scores, -1e30)  # finite, so that rows past the end stay so
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


@triton.jit
def _attention_kernel(
    q, k, v, seen, out, n_samples, T, S, q_sample, q_row, k_sample, k_row, v_sample, v_row, of_seen, scale,
    H: tl.constexpr, K: tl.constexpr, SPAN: tl.constexpr, SAMPLES: tl.constexpr,
):  # fmt: skip
    head, row = tl.program_id(1), tl.arange(0, SPAN)
    sample = tl.program_id(0).to(tl.int64) * SAMPLES + tl.arange(0, SAMPLES)
    keys = _load_tile(k, sample, row, head, n_samples, S, k_sample, k_row, K)
    values = _load_tile(v, sample, row, head, n_samples, S, v_sample, v_row, K)
    for t in range(T):
        query = _load_position(q, sample, t, head, n_samples, q_sample, q_row, K)
        weights = _attention_weights(query, keys, seen, sample, t, row, n_samples, S, of_seen, scale)
        mixed = tl.sum(weights[:, :, None] * values, 1)
        place = (sample * T + t)[:, None] * (H * K) + head * K + tl.arange(0, K)[None, :]
        tl.store(out + place, mixed.to(out.dtype.element_ty), mask=sample[:, None] < n_samples)


@triton.jit
def _attention_backward_kernel(
    q, k, v, seen, grad, grad_q, grad_k, grad_v, n_samples, T, S,
    q_sample, q_row, k_sample, k_row, v_sample, v_row, of_seen, scale,
    H: tl.constexpr, K: tl.constexpr, SPAN: tl.constexpr, SAMPLES: tl.constexpr,
):  # fmt: skip
    head, row, d = tl.program_id(1), tl.arange(0, SPAN), tl.arange(0, K)
    sample = tl.program_id(0).to(tl.int64) * SAMPLES + tl.arange(0, SAMPLES)
    keys = _load_tile(k, sample, row, head, n_samples, S, k_sample, k_row, K)
    values = _load_tile(v, sample, row, head, n_samples, S, v_sample, v_row, K)
    of_keys = tl.zeros((SAMPLES, SPAN, K), tl.float32)
    of_values = tl.zeros((SAMPLES, SPAN, K), tl.float32)
    for t in range(T):
        query = _load_position(q, sample, t, head, n_samples, q_sample, q_row, K)
        g = _load_position(grad, sample, t, head, n_samples, T * H * K, H * K, K)
        weights = _attention_weights(query, keys, seen, sample, t, row, n_samples, S, of_seen, scale)
        of_weights = tl.sum(g[:, None, :] * values, 2)
        of_scores = weights * (of_weights - tl.sum(weights * of_weights, 1)[:, None]) * scale
        of_values += weights[:, :, None] * g[:, None, :]
        of_keys += of_scores[:, :, None] * query[:, None, :]
        of_query = tl.sum(of_scores[:, :, None] * keys, 1)
        place = (sample * T + t)[:, None] * (H * K) + head * K + d[None, :]
        tl.store(grad_q + place, of_query.to(grad_q.dtype.element_ty), mask=sample[:, None] < n_samples)
    inside = (sample[:, None, None] < n_samples) & (row[None, :, None] < S)
    place = (sample[:, None] * S + row[None, :])[:, :, None] * (H * K) + head * K + d[None, None, :]
    tl.store(grad_k + place, of_keys.to(grad_k.dtype.element_ty), mask=inside)
    tl.store(grad_v + place, of_values.to(grad_v.dtype.element_ty), mask=inside)


def _with_regular_strides(x: Tensor) -> Tensor:
    """A tensor (R, B, T, H, K) whose samples follow each other evenly and whose heads lie side by side."""
    even = x.stride(0) == x.shape[1] * x.stride(1) or x.shape[0] == 1
    return x if even and x.stride(3) == x.shape[4] and x.stride(4) == 1 else x.contiguous()


def _launch_arguments(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor
) -> tuple[tuple[int, int], tuple[Any, ...], dict[str, int]]:
    """The grid, the arguments that both kernels have at their end, and what they are specialised to."""
    n_samples, (_, _, n, heads, width), n_source = q.shape[0] * q.shape[1], q.shape, k.shape[2]
    span = triton.next_power_of_2(n_source)
    samples = max(1, TILE_ELEMENTS // (span * width))
    strides = [step for x in (q, k, v) for step in (x.stride(1), x.stride(2))]
    numbers = (n_samples, n, n_source, *strides, 0 if seen.ndim == 2 else n * n_source, width**-0.5)
    options = {"H": heads, "K": width, "SPAN": span, "SAMPLES": samples, "num_warps": 1}
    return (triton.cdiv(n_samples, samples), heads), numbers, options


@torch.library.custom_op("seedbed::tiny_attention", mutates_args=())
def tiny_attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """Attention of queries (R, B, T, H, K) over (R, B, S, H, K), as far as seen, (T, S) or (R, B, T, S)."""
    q, k, v, seen = _with_regular_strides(q), _with_regular_strides(k), _with_regular_strides(v), seen.contiguous()
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    grid, numbers, options = _launch_arguments(q, k, v, seen)
    _attention_kernel[grid](q, k, v, seen.view(torch.int8), out, *numbers, **options)
    return out


@torch.library.custom_op("seedbed::tiny_attention_backward", mutates_args=())
def _tiny_attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, seen: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, seen = _with_regular_strides(q), _with_regular_strides(k), _with_regular_strides(v), seen.contiguous()
    grads = _allocate_gradients(q, k, v)
    grid, numbers, options = _launch_arguments(q, k, v, seen)
    _attention_backward_kernel[grid](q, k, v, seen.view(torch.int8), grad.contiguous(), *grads, *numbers, **options)
    return grads


def _allocate_gradients(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Room for the gradients."""
    of_q, of_k, of_v = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    return of_q, of_k, of_v


@tiny_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    return torch.empty_like(q, memory_format=torch.contiguous_format)


@_tiny_attention_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _allocate_gradients(q, k, v)


def _setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *_tiny_attention_backward(grad, *ctx.saved_tensors), None


tiny_attention.register_autograd(_backward, setup_context=_setup_context)
