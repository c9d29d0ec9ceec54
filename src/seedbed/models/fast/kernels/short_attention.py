"""Attention over short sequences: one program per sample and head, reading Q, K and V in place from the QKV projection.

Up to 64 positions are one tile. Longer sequences are split into an early and a late tile, since 128 × 128 scores would
spill registers; fully masked tiles are skipped. The backward pass recomputes the weights tile by tile from the saved
log₂ Σ 2^score of each row (scores are scaled by log₂ e, since exp2 is an instruction and exp is not), and gets the row
sums of the softmax gradient from the outputs (Dao et al. 2022, appendix B.2).

Biases cost little: a bias of the keys shifts all scores of a row equally, so it cancels in the softmax and has gradient
0; a bias of the values is added to each output, so its gradient is the sum of the outputs' gradients.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE_POSITIONS = 64  # 64 × 64 scores take 32 registers per thread
MAX_POSITIONS = 2 * TILE_POSITIONS
SUPPORTED_HEAD_DIMS = (16, 32, 64)
MAX_REGISTERS_PER_THREAD = 168  # so that three programs of four warps fit on an SM
LOG2_E = tl.constexpr(1.4426950408889634)


def is_supported_shape(n: int, head_dim: int) -> bool:
    """Whether `short_attention` supports n positions and heads of this width."""
    return n <= MAX_POSITIONS and head_dim in SUPPORTED_HEAD_DIMS


@triton.jit
def _load_rows(x, t, T, stride, FULL: tl.constexpr):
    """Rows t of x, 0 past the end; FULL: tiles have no rows past the end."""
    if FULL:
        return tl.load(x + t[:, None] * stride)
    return tl.load(x + t[:, None] * stride, mask=t[:, None] < T, other=0.0)


@triton.jit
def _store_rows(x, t, T, stride, value, FULL: tl.constexpr):
    if FULL:
        tl.store(x + t[:, None] * stride, value.to(x.dtype.element_ty))
    else:
        tl.store(x + t[:, None] * stride, value.to(x.dtype.element_ty), mask=t[:, None] < T)


@triton.jit
def _load_query(x, t, T, stride, bias, HAS_BIAS: tl.constexpr, FULL: tl.constexpr):
    """Queries plus their bias, in the queries' dtype."""
    q = _load_rows(x, t, T, stride, FULL)
    return q + bias.to(q.dtype) if HAS_BIAS else q


@triton.jit
def _attention_scores(
    q, k, t, s, T, slope, scale,
    DIAGONAL: tl.constexpr, CAUSAL: tl.constexpr, ALIBI: tl.constexpr, FULL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Scores of queries t and keys s, −∞ where masked; DIAGONAL: t and s are the same positions."""
    scores, distance = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale, t[:, None] - s[None, :]
    if ALIBI:
        scores -= slope * tl.abs(distance).to(tl.float32)
    if CAUSAL and DIAGONAL:
        scores = tl.where(distance >= 0, scores, float("-inf"))
    return scores if FULL else tl.where(s[None, :] < T, scores, float("-inf"))


@triton.jit
def _attend_tile(
    q, k0, k1, v0, v1, t, T, slope, scale, FIRST_DIAGONAL: tl.constexpr, BOTH_TILES: tl.constexpr,
    SIZE: tl.constexpr, CAUSAL: tl.constexpr, ALIBI: tl.constexpr, FULL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Output of queries t over the early tile of keys, or both tiles, and the log₂ Σ 2^score of each row."""
    s = tl.arange(0, SIZE)
    early = _attention_scores(q, k0, t, s, T, slope, scale, FIRST_DIAGONAL, CAUSAL, ALIBI, FULL, PRECISION)
    row_max, late = tl.max(early, 1), early
    if BOTH_TILES:
        late = _attention_scores(q, k1, t, s + SIZE, T, slope, scale, True, CAUSAL, ALIBI, FULL, PRECISION)
        row_max = tl.maximum(row_max, tl.max(late, 1))
    early = tl.exp2(early - row_max[:, None])
    total, out_tile = tl.sum(early, 1), tl.dot(early.to(v0.dtype), v0, input_precision=PRECISION)
    if BOTH_TILES:
        late = tl.exp2(late - row_max[:, None])
        total += tl.sum(late, 1)
        out_tile = tl.dot(late.to(v1.dtype), v1, out_tile, input_precision=PRECISION)
    return out_tile * (1.0 / total)[:, None], row_max + tl.log2(total)


@triton.jit
def _attention_kernel(
    qkv, bias, slopes, out, lses, n_samples, T, scale, bias_stride,
    H: tl.constexpr, K: tl.constexpr, SIZE: tl.constexpr, TWO_TILES: tl.constexpr, ATTEND_AHEAD: tl.constexpr,
    CAUSAL: tl.constexpr, HAS_BIAS: tl.constexpr, ALIBI: tl.constexpr, FULL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    D: tl.constexpr = H * K
    QKV_STRIDE: tl.constexpr = 3 * D
    sample, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    column = h * K + tl.arange(0, K)[None, :]
    q, out, lses = qkv + sample * T * QKV_STRIDE + column, out + sample * T * D + column, lses + (sample * H + h) * T
    k, v, t = q + D, q + 2 * D, tl.arange(0, SIZE)
    slope = tl.load(slopes + h) * LOG2_E if ALIBI else 0.0
    scale *= LOG2_E
    bias_q, bias_v = 0.0, 0.0
    if HAS_BIAS:
        bias += sample // n_samples * bias_stride + column
        bias_q, bias_v = tl.load(bias).to(tl.float32), tl.load(bias + 2 * D).to(tl.float32)
    q0 = _load_query(q, t, T, QKV_STRIDE, bias_q, HAS_BIAS, FULL)
    k0, v0 = _load_rows(k, t, T, QKV_STRIDE, FULL), _load_rows(v, t, T, QKV_STRIDE, FULL)
    q1, k1, v1, u = q0, k0, v0, t + SIZE
    if TWO_TILES:
        q1 = _load_query(q, u, T, QKV_STRIDE, bias_q, HAS_BIAS, FULL)
        k1, v1 = _load_rows(k, u, T, QKV_STRIDE, FULL), _load_rows(v, u, T, QKV_STRIDE, FULL)
    out_tile, lse = _attend_tile(
        q0, k0, k1, v0, v1, t, T, slope, scale, True, ATTEND_AHEAD, SIZE, CAUSAL, ALIBI, FULL, PRECISION
    )
    _store_rows(out, t, T, D, out_tile + bias_v, FULL)
    tl.store(lses + t, lse, mask=t < T)
    if TWO_TILES:
        out_tile, lse = _attend_tile(
            q1, k0, k1, v0, v1, u, T, slope, scale, False, True, SIZE, CAUSAL, ALIBI, FULL, PRECISION
        )
        _store_rows(out, u, T, D, out_tile + bias_v, FULL)
        tl.store(lses + u, lse, mask=u < T)


@triton.jit
def _load_output_grad(grad, out, lses, t, T, bias_v, D: tl.constexpr, FULL: tl.constexpr):
    """Output gradient at positions t, the row sums of the softmax gradient, and log₂ Σ 2^score of each row."""
    g, out_tile = _load_rows(grad, t, T, D, FULL), _load_rows(out, t, T, D, FULL)
    delta = tl.sum(g.to(tl.float32) * (out_tile.to(tl.float32) - bias_v), 1)
    return g, delta, tl.load(lses + t, mask=t < T, other=float("inf"))  # rows past the end get weight 0


@triton.jit
def _accumulate_gradients(
    q, k, v, g, delta, lse, t, s, T, slope, scale, grad_q, grad_k, grad_v,
    DIAGONAL: tl.constexpr, CAUSAL: tl.constexpr, ALIBI: tl.constexpr, FULL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Adds the gradients of queries t, and of keys and values s, through the attention weights between them.

    The weights are transposed, one row per key s, so that they and their gradients pass from one dot to the next in
    registers, except for the queries' gradient. The caller multiplies the gradients of queries and keys by the scale.
    """
    scores, distance = tl.dot(k, tl.trans(q), input_precision=PRECISION) * scale, t[None, :] - s[:, None]
    if ALIBI:
        scores -= slope * tl.abs(distance).to(tl.float32)
    weights = tl.exp2(scores - lse[None, :])
    if CAUSAL and DIAGONAL:
        weights = tl.where(distance >= 0, weights, 0.0)
    if not FULL:
        weights = tl.where(s[:, None] < T, weights, 0.0)
    grad_v = tl.dot(weights.to(g.dtype), g, grad_v, input_precision=PRECISION)
    grad_scores = weights * (tl.dot(v, tl.trans(g), input_precision=PRECISION) - delta[None, :])
    grad_scores = grad_scores.to(q.dtype)
    grad_k = tl.dot(grad_scores, q, grad_k, input_precision=PRECISION)
    grad_q = tl.dot(tl.trans(grad_scores), k, grad_q, input_precision=PRECISION)
    return grad_q, grad_k, grad_v


@triton.jit
def _attention_backward_kernel(
    qkv, bias, slopes, grad, out, lses, grad_qkv, sums, n_samples, T, scale, bias_stride,
    H: tl.constexpr, K: tl.constexpr, SIZE: tl.constexpr, TWO_TILES: tl.constexpr, ATTEND_AHEAD: tl.constexpr,
    CAUSAL: tl.constexpr, HAS_BIAS: tl.constexpr, ALIBI: tl.constexpr, FULL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    D: tl.constexpr = H * K
    QKV_STRIDE: tl.constexpr = 3 * D
    sample, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    column = h * K + tl.arange(0, K)[None, :]
    q_ptr, grad_q_ptr = qkv + sample * T * QKV_STRIDE + column, grad_qkv + sample * T * QKV_STRIDE + column
    k_ptr, v_ptr, grad_k_ptr, grad_v_ptr = q_ptr + D, q_ptr + 2 * D, grad_q_ptr + D, grad_q_ptr + 2 * D
    grad, out, lses = grad + sample * T * D + column, out + sample * T * D + column, lses + (sample * H + h) * T
    sums += sample * QKV_STRIDE + h * K + tl.arange(0, K)
    slope = tl.load(slopes + h) * LOG2_E if ALIBI else 0.0
    log2_scale = scale * LOG2_E
    bias_q, bias_v = 0.0, 0.0
    if HAS_BIAS:
        bias += sample // n_samples * bias_stride + column
        bias_q, bias_v = tl.load(bias).to(tl.float32), tl.load(bias + 2 * D).to(tl.float32)
    t, zeros = tl.arange(0, SIZE), tl.zeros((SIZE, K), tl.float32)
    u = t + SIZE
    q = _load_query(q_ptr, t, T, QKV_STRIDE, bias_q, HAS_BIAS, FULL)
    k, v = _load_rows(k_ptr, t, T, QKV_STRIDE, FULL), _load_rows(v_ptr, t, T, QKV_STRIDE, FULL)
    g, delta, lse = _load_output_grad(grad, out, lses, t, T, bias_v, D, FULL)
    grad_q, grad_k, grad_v = _accumulate_gradients(
        q, k, v, g, delta, lse, t, t, T, slope, log2_scale, zeros, zeros, zeros, True, CAUSAL, ALIBI, FULL, PRECISION
    )
    late_grad_k, late_grad_v = zeros, zeros
    if ATTEND_AHEAD:
        k1, v1 = _load_rows(k_ptr, u, T, QKV_STRIDE, FULL), _load_rows(v_ptr, u, T, QKV_STRIDE, FULL)
        grad_q, late_grad_k, late_grad_v = _accumulate_gradients(
            q, k1, v1, g, delta, lse, t, u, T, slope, log2_scale, grad_q, zeros, zeros,
            False, CAUSAL, ALIBI, FULL, PRECISION,
        )  # fmt: skip
    _store_rows(grad_q_ptr, t, T, QKV_STRIDE, grad_q * scale, FULL)
    sum_q, sum_v = grad_q, g.to(tl.float32)
    if TWO_TILES:
        q = _load_query(q_ptr, u, T, QKV_STRIDE, bias_q, HAS_BIAS, FULL)
        g, delta, lse = _load_output_grad(grad, out, lses, u, T, bias_v, D, FULL)
        sum_v += g.to(tl.float32)
    if HAS_BIAS:
        tl.store(sums + 2 * D, tl.sum(sum_v, 0))
    if TWO_TILES:
        grad_q, grad_k, grad_v = _accumulate_gradients(
            q, k, v, g, delta, lse, u, t, T, slope, log2_scale, zeros, grad_k, grad_v,
            False, CAUSAL, ALIBI, FULL, PRECISION,
        )  # fmt: skip
    _store_rows(grad_k_ptr, t, T, QKV_STRIDE, grad_k * scale, FULL)
    _store_rows(grad_v_ptr, t, T, QKV_STRIDE, grad_v, FULL)
    if TWO_TILES:
        k, v = _load_rows(k_ptr, u, T, QKV_STRIDE, FULL), _load_rows(v_ptr, u, T, QKV_STRIDE, FULL)
        grad_q, grad_k, grad_v = _accumulate_gradients(
            q, k, v, g, delta, lse, u, u, T, slope, log2_scale, grad_q, late_grad_k, late_grad_v,
            True, CAUSAL, ALIBI, FULL, PRECISION,
        )  # fmt: skip
        _store_rows(grad_q_ptr, u, T, QKV_STRIDE, grad_q * scale, FULL)
        _store_rows(grad_k_ptr, u, T, QKV_STRIDE, grad_k * scale, FULL)
        _store_rows(grad_v_ptr, u, T, QKV_STRIDE, grad_v, FULL)
        sum_q += grad_q
    if HAS_BIAS:
        tl.store(sums, tl.sum(sum_q, 0) * scale)
        tl.store(sums + D, tl.zeros((K,), tl.float32))


def _launch_options(
    qkv: Tensor, heads: int, causal: bool, bias: Tensor | None, slopes: Tensor | None
) -> dict[str, Any]:
    """Compile-time constants of both kernels."""
    full_precision = qkv.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    n = qkv.shape[2]
    size, two_tiles = min(TILE_POSITIONS, max(16, triton.next_power_of_2(n))), n > TILE_POSITIONS
    return {
        "H": heads, "K": qkv.shape[3] // 3 // heads, "SIZE": size, "TWO_TILES": two_tiles,
        "ATTEND_AHEAD": two_tiles and not causal, "CAUSAL": causal, "HAS_BIAS": bias is not None,
        "ALIBI": slopes is not None, "FULL": n % size == 0, "PRECISION": "ieee" if full_precision else "tf32",
        "num_warps": 4 if size > 32 else 2,
    }  # fmt: skip


@torch.library.custom_op("seedbed::short_attention", mutates_args=())
def _short_attention_forward(
    qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, heads: int, causal: bool
) -> tuple[Tensor, Tensor]:
    """Output of `short_attention`, and log₂ Σ 2^score of each head and position for the backward pass."""
    n_runs, n_samples, n, width = qkv.shape
    qkv, scale = qkv.contiguous(), (width // 3 // heads) ** -0.5
    out, lses = _allocate_outputs(qkv, heads)
    options = _launch_options(qkv, heads, causal, bias, slopes)
    bias, slopes = qkv if bias is None else bias, qkv if slopes is None else slopes
    grid = (n_runs * n_samples * heads,)
    _attention_kernel[grid](qkv, bias, slopes, out, lses, n_samples, n, scale, bias.stride(0), **options)
    return out, lses


def short_attention(qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, heads: int, causal: bool) -> Tensor:
    """Self-attention from the QKV projection (R, B, T, 3·D) before its bias (R, 3·D), which is added here."""
    return _short_attention_forward(qkv, bias, slopes, heads, causal)[0]


@torch.library.custom_op("seedbed::short_attention_backward", mutates_args=())
def _short_attention_backward(
    grad: Tensor, qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, out: Tensor, lses: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    """Gradient of qkv, and each sample's sum for the gradient of the bias."""
    (n_runs, n_samples, n, width), heads = qkv.shape, lses.shape[2]
    qkv, scale = qkv.contiguous(), (width // 3 // heads) ** -0.5
    grad_qkv, sums = _allocate_gradients(qkv, bias)
    options = _launch_options(qkv, heads, causal, bias, slopes)
    bias, slopes = qkv if bias is None else bias, qkv if slopes is None else slopes
    if qkv.element_size() == 2:
        options["maxnreg"] = MAX_REGISTERS_PER_THREAD
    _attention_backward_kernel[(n_runs * n_samples * heads,)](
        qkv, bias, slopes, grad.contiguous(), out, lses, grad_qkv, sums, n_samples, n, scale, bias.stride(0), **options
    )
    return grad_qkv, sums


def _allocate_outputs(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Uninitialised outputs of the forward pass."""
    n_runs, n_samples, n, width = qkv.shape
    lses = qkv.new_empty(n_runs, n_samples, heads, n, dtype=torch.float32)
    return qkv.new_empty(n_runs, n_samples, n, width // 3), lses


def _allocate_gradients(qkv: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Uninitialised outputs of the backward pass."""
    n_runs, n_samples, _, width = qkv.shape
    sums = (n_runs, n_samples, width) if bias is not None else (0,)
    return torch.empty_like(qkv, memory_format=torch.contiguous_format), qkv.new_empty(sums, dtype=torch.float32)


@_short_attention_forward.register_fake
def _(qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, heads: int, causal: bool) -> tuple[Tensor, Tensor]:
    return _allocate_outputs(qkv, heads)


@_short_attention_backward.register_fake
def _(
    grad: Tensor, qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, out: Tensor, lses: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    return _allocate_gradients(qkv, bias)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    qkv, bias, slopes, _, ctx.causal = inputs
    ctx.save_for_backward(qkv, bias, slopes, *output)
    ctx.set_materialize_grads(False)  # the second output is not differentiable


def _backward(ctx: Any, grad: Tensor, _: None) -> tuple[Tensor | None, ...]:
    bias = ctx.saved_tensors[1]
    grad_qkv, sums = _short_attention_backward(grad, *ctx.saved_tensors, ctx.causal)
    return grad_qkv, None if bias is None else sums.sum(1).to(bias.dtype), None, None, None


_short_attention_forward.register_autograd(_backward, setup_context=_setup_context)
