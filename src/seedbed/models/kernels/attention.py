"""Attention over short sequences: all scores of a head in one tile, read where the product before left its parts."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST = 128  # positions whose scores fit one program's registers
WIDTHS = (16, 32, 64)  # of a head


def fits(n: int, width: int) -> bool:
    """Whether `short_attention` takes n positions and heads of this width."""
    return n <= LONGEST and width in WIDTHS


@triton.jit
def _load(start, bias, part, h, t, T, D: tl.constexpr, K: tl.constexpr, BIASED: tl.constexpr):
    """Queries, keys or values (part 0, 1, 2) of one head at positions t, with their bias."""
    k, inside = tl.arange(0, K), t[:, None] < T
    x = tl.load(start + part * D + h * K + t[:, None] * (3 * D) + k[None, :], mask=inside, other=0.0)
    if BIASED:
        b = tl.load(bias + part * D + h * K + k).to(tl.float32)
        x = (x.to(tl.float32) + tl.where(inside, b[None, :], 0.0)).to(x.dtype)
    return x


@triton.jit
def _weights(q, k, t, T, slope, scale, CAUSAL: tl.constexpr, ALIBI: tl.constexpr, PRECISION: tl.constexpr):
    """The attention weights of one head, of all positions on all."""
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    away = t[:, None] - t[None, :]
    if ALIBI:
        scores -= slope * tl.abs(away).to(tl.float32)
    seen = t[None, :] < T
    if CAUSAL:
        seen = seen & (away >= 0)
    scores = tl.where(seen, scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights * (1.0 / tl.sum(weights, 1))[:, None]


@triton.jit
def _attend(
    qkv, bias, slopes, out, n_samples, T, scale,
    H: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr, BIASED: tl.constexpr, ALIBI: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    D: tl.constexpr = H * K
    sample, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    start, bias = qkv + sample * T * 3 * D, bias + sample // n_samples * 3 * D
    t = tl.arange(0, BLOCK)
    q = _load(start, bias, 0, h, t, T, D, K, BIASED)
    k = _load(start, bias, 1, h, t, T, D, K, BIASED)
    v = _load(start, bias, 2, h, t, T, D, K, BIASED)
    slope = tl.load(slopes + h) if ALIBI else 0.0
    weights = _weights(q, k, t, T, slope, scale, CAUSAL, ALIBI, PRECISION)
    mixed = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
    place = out + sample * T * D + h * K + t[:, None] * D + tl.arange(0, K)[None, :]
    tl.store(place, mixed.to(out.dtype.element_ty), mask=t[:, None] < T)


@triton.jit
def _store(start, sums, part, h, t, T, x, D: tl.constexpr, K: tl.constexpr, BIASED: tl.constexpr):
    """A gradient, and its sum over the positions, which is the bias's."""
    k = tl.arange(0, K)
    place = start + part * D + h * K + t[:, None] * (3 * D) + k[None, :]
    tl.store(place, x.to(start.dtype.element_ty), mask=t[:, None] < T)
    if BIASED:
        tl.store(sums + part * D + h * K + k, tl.sum(x, 0))


@triton.jit
def _attend_backward(
    qkv, bias, slopes, grad, grad_qkv, sums, n_samples, T, scale,
    H: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr, BIASED: tl.constexpr, ALIBI: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    D: tl.constexpr = H * K
    sample, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    start, bias = qkv + sample * T * 3 * D, bias + sample // n_samples * 3 * D
    into, sums = grad_qkv + sample * T * 3 * D, sums + sample * 3 * D
    t = tl.arange(0, BLOCK)
    q = _load(start, bias, 0, h, t, T, D, K, BIASED)
    k = _load(start, bias, 1, h, t, T, D, K, BIASED)
    v = _load(start, bias, 2, h, t, T, D, K, BIASED)
    slope = tl.load(slopes + h) if ALIBI else 0.0
    place = grad + sample * T * D + h * K + t[:, None] * D + tl.arange(0, K)[None, :]
    g = tl.load(place, mask=t[:, None] < T, other=0.0)  # so rows past the end add nothing below
    weights = _weights(q, k, t, T, slope, scale, CAUSAL, ALIBI, PRECISION)
    grad_v = tl.dot(tl.trans(weights.to(g.dtype)), g, input_precision=PRECISION)
    grad_weights = tl.dot(g, tl.trans(v), input_precision=PRECISION)
    grad_scores = weights * (grad_weights - tl.sum(weights * grad_weights, 1)[:, None]) * scale
    grad_scores = grad_scores.to(q.dtype)
    grad_q = tl.dot(grad_scores, k, input_precision=PRECISION)
    grad_k = tl.dot(tl.trans(grad_scores), q, input_precision=PRECISION)
    _store(into, sums, 0, h, t, T, grad_q, D, K, BIASED)
    _store(into, sums, 1, h, t, T, grad_k, D, K, BIASED)
    _store(into, sums, 2, h, t, T, grad_v, D, K, BIASED)


def _tile(qkv: Tensor, heads: int, causal: bool, bias: Tensor | None, slopes: Tensor | None) -> dict[str, Any]:
    """What both kernels are specialised to."""
    exact = qkv.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    block = max(16, triton.next_power_of_2(qkv.shape[2]))
    return {
        "H": heads, "K": qkv.shape[3] // 3 // heads, "BLOCK": block, "CAUSAL": causal, "BIASED": bias is not None,
        "ALIBI": slopes is not None, "PRECISION": "ieee" if exact else "tf32", "num_warps": 4 if block > 32 else 2,
    }  # fmt: skip


@torch.library.custom_op("seedbed::short_attention", mutates_args=())
def short_attention(qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, heads: int, causal: bool) -> Tensor:
    """Attention of queries, keys and values side by side (R, B, T, 3·D), whose bias (R, 3·D) is still to be added."""
    n_runs, n_samples, n, width = qkv.shape
    qkv, scale = qkv.contiguous(), (width // 3 // heads) ** -0.5
    out = qkv.new_empty(n_runs, n_samples, n, width // 3)
    options = _tile(qkv, heads, causal, bias, slopes)
    bias = qkv if bias is None else bias.contiguous()
    slopes = qkv if slopes is None else slopes
    _attend[(n_runs * n_samples * heads,)](qkv, bias, slopes, out, n_samples, n, scale, **options)
    return out


@torch.library.custom_op("seedbed::short_attention_backward", mutates_args=())
def _short_attention_backward(
    grad: Tensor, qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, heads: int, causal: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of qkv, and of the bias sample by sample."""
    n_runs, n_samples, n, width = qkv.shape
    qkv, scale = qkv.contiguous(), (width // 3 // heads) ** -0.5
    grad_qkv = torch.empty_like(qkv)
    sums = qkv.new_empty((n_runs, n_samples, width) if bias is not None else (0,), dtype=torch.float32)
    options = _tile(qkv, heads, causal, bias, slopes)
    bias = qkv if bias is None else bias.contiguous()
    slopes = qkv if slopes is None else slopes
    _attend_backward[(n_runs * n_samples * heads,)](
        qkv, bias, slopes, grad.contiguous(), grad_qkv, sums, n_samples, n, scale, **options
    )
    return grad_qkv, sums


@short_attention.register_fake
def _(qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, heads: int, causal: bool) -> Tensor:
    return qkv.new_empty(*qkv.shape[:3], qkv.shape[3] // 3)


@_short_attention_backward.register_fake
def _(
    grad: Tensor, qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, heads: int, causal: bool
) -> tuple[Tensor, Tensor]:
    sums = (qkv.shape[0], qkv.shape[1], qkv.shape[3]) if bias is not None else (0,)
    return torch.empty_like(qkv, memory_format=torch.contiguous_format), qkv.new_empty(sums, dtype=torch.float32)


def _keep_attention(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    qkv, bias, slopes, ctx.heads, ctx.causal = inputs
    ctx.save_for_backward(qkv, bias, slopes)


def _attention_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    qkv, bias, slopes = ctx.saved_tensors
    grad_qkv, sums = _short_attention_backward(grad, qkv, bias, slopes, ctx.heads, ctx.causal)
    return grad_qkv, None if bias is None else sums.sum(1).to(bias.dtype), None, None, None


short_attention.register_autograd(_attention_gradients, setup_context=_keep_attention)
