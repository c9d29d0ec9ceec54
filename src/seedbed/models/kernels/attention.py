"""Attention over short sequences: all scores of a head in one program, read where the product before left its parts.

Up to 64 positions they are one tile. Beyond, the positions are halved, early and late, since tiles of 128 × 128 spill
from the registers, and what nobody may look at ahead is not worked out. The gradient's pass goes tile by tile: log Σ
exp of each row is kept for it, and the outputs tell what softmax takes off a row (Dao et al. 2022, appendix B.2).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 64  # positions; the scores of as many by as many are 32 registers a thread
LONGEST = 2 * TILE
WIDTHS = (16, 32, 64)  # of a head
REGISTERS = 168  # of a thread, so that three programs of four warps fit a processor


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
def _scores(q, k, t, s, T, slope, scale, CAUSAL: tl.constexpr, ALIBI: tl.constexpr, PRECISION: tl.constexpr):
    """How positions t of one head look at positions s; −∞ where they do not."""
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    away = t[:, None] - s[None, :]
    if ALIBI:
        scores -= slope * tl.abs(away).to(tl.float32)
    seen = s[None, :] < T
    if CAUSAL:
        seen = seen & (away >= 0)
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def _look(
    q, k0, k1, v0, v1, t, T, slope, scale,
    BOTH: tl.constexpr, SIZE: tl.constexpr, CAUSAL: tl.constexpr, ALIBI: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Values mixed for positions t that look at the early half, or at both; log Σ exp of each one's scores."""
    s = tl.arange(0, SIZE)
    early = _scores(q, k0, t, s, T, slope, scale, CAUSAL, ALIBI, PRECISION)
    top, late = tl.max(early, 1), early
    if BOTH:
        late = _scores(q, k1, t, s + SIZE, T, slope, scale, CAUSAL, ALIBI, PRECISION)
        top = tl.maximum(top, tl.max(late, 1))
    early = tl.exp(early - top[:, None])
    total = tl.sum(early, 1)
    if BOTH:
        late = tl.exp(late - top[:, None])
        total += tl.sum(late, 1)
    share = (1.0 / total)[:, None]
    mixed = tl.dot((early * share).to(v0.dtype), v0, input_precision=PRECISION)
    if BOTH:
        mixed += tl.dot((late * share).to(v1.dtype), v1, input_precision=PRECISION)
    return mixed, top + tl.log(total)


@triton.jit
def _attend(
    qkv, bias, slopes, out, logs, n_samples, T, scale,
    H: tl.constexpr, K: tl.constexpr, SIZE: tl.constexpr, TWO: tl.constexpr, AHEAD: tl.constexpr,
    CAUSAL: tl.constexpr, BIASED: tl.constexpr, ALIBI: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    D: tl.constexpr = H * K
    sample, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    start, bias = qkv + sample * T * 3 * D, bias + sample // n_samples * 3 * D
    out, logs = out + sample * T * D + h * K + tl.arange(0, K)[None, :], logs + (sample * H + h) * T
    slope = tl.load(slopes + h) if ALIBI else 0.0
    t = tl.arange(0, SIZE)
    q = _load(start, bias, 0, h, t, T, D, K, BIASED)
    k0 = _load(start, bias, 1, h, t, T, D, K, BIASED)
    v0 = _load(start, bias, 2, h, t, T, D, K, BIASED)
    k1, v1 = k0, v0
    if TWO:
        k1 = _load(start, bias, 1, h, t + SIZE, T, D, K, BIASED)
        v1 = _load(start, bias, 2, h, t + SIZE, T, D, K, BIASED)
    mixed, log = _look(q, k0, k1, v0, v1, t, T, slope, scale, AHEAD, SIZE, CAUSAL, ALIBI, PRECISION)
    tl.store(out + t[:, None] * D, mixed.to(out.dtype.element_ty), mask=t[:, None] < T)
    tl.store(logs + t, log, mask=t < T)
    if TWO:
        t += SIZE
        q = _load(start, bias, 0, h, t, T, D, K, BIASED)
        mixed, log = _look(q, k0, k1, v0, v1, t, T, slope, scale, True, SIZE, CAUSAL, ALIBI, PRECISION)
        tl.store(out + t[:, None] * D, mixed.to(out.dtype.element_ty), mask=t[:, None] < T)
        tl.store(logs + t, log, mask=t < T)


@triton.jit
def _load_grad(grad, out, logs, t, T, D: tl.constexpr):
    """The gradient at positions t, what softmax takes off each row of weights' gradients, and the row's log Σ exp."""
    g = tl.load(grad + t[:, None] * D, mask=t[:, None] < T, other=0.0)  # so rows past the end add nothing
    mixed = tl.load(out + t[:, None] * D, mask=t[:, None] < T, other=0.0)
    return g, tl.sum(g.to(tl.float32) * mixed.to(tl.float32), 1), tl.load(logs + t, mask=t < T, other=0.0)


@triton.jit
def _through(
    q, k, v, g, down, log, t, s, T, slope, scale,
    CAUSAL: tl.constexpr, ALIBI: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of queries at t, and of keys and values at s, through the weights of the ones on the others."""
    weights = tl.exp(_scores(q, k, t, s, T, slope, scale, CAUSAL, ALIBI, PRECISION) - log[:, None])
    grad_v = tl.dot(tl.trans(weights.to(g.dtype)), g, input_precision=PRECISION)
    grad_scores = weights * (tl.dot(g, tl.trans(v), input_precision=PRECISION) - down[:, None]) * scale
    grad_scores = grad_scores.to(q.dtype)
    grad_q = tl.dot(grad_scores, k, input_precision=PRECISION)
    grad_k = tl.dot(tl.trans(grad_scores), q, input_precision=PRECISION)
    return grad_q, grad_k, grad_v


@triton.jit
def _store(start, sums, part, h, t, T, x, D: tl.constexpr, K: tl.constexpr, BIASED: tl.constexpr):
    """A gradient of queries, keys or values, and its sum over these positions, which is the bias's."""
    k = tl.arange(0, K)
    place = start + part * D + h * K + t[:, None] * (3 * D) + k[None, :]
    tl.store(place, x.to(start.dtype.element_ty), mask=t[:, None] < T)
    if BIASED:
        tl.store(sums + part * D + h * K + k, tl.sum(x, 0))


@triton.jit
def _attend_backward(
    qkv, bias, slopes, grad, out, logs, grad_qkv, sums, n_samples, T, scale,
    H: tl.constexpr, K: tl.constexpr, SIZE: tl.constexpr, TWO: tl.constexpr, AHEAD: tl.constexpr,
    CAUSAL: tl.constexpr, BIASED: tl.constexpr, ALIBI: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    D: tl.constexpr = H * K
    sample, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    start, bias = qkv + sample * T * 3 * D, bias + sample // n_samples * 3 * D
    into, sums = grad_qkv + sample * T * 3 * D, sums + sample * (6 * D if TWO else 3 * D)
    place, logs = sample * T * D + h * K + tl.arange(0, K)[None, :], logs + (sample * H + h) * T
    grad, out = grad + place, out + place
    slope = tl.load(slopes + h) if ALIBI else 0.0
    t = tl.arange(0, SIZE)
    q = _load(start, bias, 0, h, t, T, D, K, BIASED)
    k = _load(start, bias, 1, h, t, T, D, K, BIASED)
    v = _load(start, bias, 2, h, t, T, D, K, BIASED)
    g, down, log = _load_grad(grad, out, logs, t, T, D)
    grad_q, grad_k, grad_v = _through(q, k, v, g, down, log, t, t, T, slope, scale, CAUSAL, ALIBI, PRECISION)
    u = t + SIZE
    if AHEAD:
        k1 = _load(start, bias, 1, h, u, T, D, K, BIASED)
        v1 = _load(start, bias, 2, h, u, T, D, K, BIASED)
        more_q, ahead_k, ahead_v = _through(q, k1, v1, g, down, log, t, u, T, slope, scale, CAUSAL, ALIBI, PRECISION)
        grad_q += more_q
    _store(into, sums, 0, h, t, T, grad_q, D, K, BIASED)
    if TWO:
        q = _load(start, bias, 0, h, u, T, D, K, BIASED)
        g, down, log = _load_grad(grad, out, logs, u, T, D)
        grad_q, more_k, more_v = _through(q, k, v, g, down, log, u, t, T, slope, scale, CAUSAL, ALIBI, PRECISION)
        grad_k += more_k
        grad_v += more_v
    _store(into, sums, 1, h, t, T, grad_k, D, K, BIASED)
    _store(into, sums, 2, h, t, T, grad_v, D, K, BIASED)
    if TWO:
        k = _load(start, bias, 1, h, u, T, D, K, BIASED)
        v = _load(start, bias, 2, h, u, T, D, K, BIASED)
        more_q, grad_k, grad_v = _through(q, k, v, g, down, log, u, u, T, slope, scale, CAUSAL, ALIBI, PRECISION)
        if AHEAD:
            grad_k += ahead_k
            grad_v += ahead_v
        _store(into, sums + 3 * D, 0, h, u, T, grad_q + more_q, D, K, BIASED)
        _store(into, sums + 3 * D, 1, h, u, T, grad_k, D, K, BIASED)
        _store(into, sums + 3 * D, 2, h, u, T, grad_v, D, K, BIASED)


def _tile(qkv: Tensor, heads: int, causal: bool, bias: Tensor | None, slopes: Tensor | None) -> dict[str, Any]:
    """What both kernels are specialised to."""
    exact = qkv.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    size, two = min(TILE, max(16, triton.next_power_of_2(qkv.shape[2]))), qkv.shape[2] > TILE
    return {
        "H": heads, "K": qkv.shape[3] // 3 // heads, "SIZE": size, "TWO": two, "AHEAD": two and not causal,
        "CAUSAL": causal, "BIASED": bias is not None, "ALIBI": slopes is not None,
        "PRECISION": "ieee" if exact else "tf32", "num_warps": 4 if size > 32 else 2,
    }  # fmt: skip


@torch.library.custom_op("seedbed::short_attention", mutates_args=())
def _short_attention(
    qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, heads: int, causal: bool
) -> tuple[Tensor, Tensor]:
    """What `short_attention` gives, and log Σ exp of the scores of each head and position."""
    n_runs, n_samples, n, width = qkv.shape
    qkv, scale = qkv.contiguous(), (width // 3 // heads) ** -0.5
    out, logs = _made(qkv, heads)
    options = _tile(qkv, heads, causal, bias, slopes)
    bias = qkv if bias is None else bias.contiguous()
    slopes = qkv if slopes is None else slopes
    _attend[(n_runs * n_samples * heads,)](qkv, bias, slopes, out, logs, n_samples, n, scale, **options)
    return out, logs


def short_attention(qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, heads: int, causal: bool) -> Tensor:
    """Attention of queries, keys and values side by side (R, B, T, 3·D), whose bias (R, 3·D) is still to be added."""
    return _short_attention(qkv, bias, slopes, heads, causal)[0]


@torch.library.custom_op("seedbed::short_attention_backward", mutates_args=())
def _short_attention_backward(
    grad: Tensor, qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, out: Tensor, logs: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of qkv, and of the bias by sample, or by half of a sample where there are two."""
    (n_runs, n_samples, n, width), heads = qkv.shape, logs.shape[2]
    qkv, scale = qkv.contiguous(), (width // 3 // heads) ** -0.5
    grad_qkv, sums = _made_backward(qkv, bias)
    options = _tile(qkv, heads, causal, bias, slopes)
    bias = qkv if bias is None else bias.contiguous()
    slopes = qkv if slopes is None else slopes
    if qkv.element_size() == 2:
        options["maxnreg"] = REGISTERS
    _attend_backward[(n_runs * n_samples * heads,)](
        qkv, bias, slopes, grad.contiguous(), out, logs, grad_qkv, sums, n_samples, n, scale, **options
    )
    return grad_qkv, sums


def _made(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Room for what the forward pass writes."""
    n_runs, n_samples, n, width = qkv.shape
    logs = qkv.new_empty(n_runs, n_samples, heads, n, dtype=torch.float32)
    return qkv.new_empty(n_runs, n_samples, n, width // 3), logs


def _made_backward(qkv: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Room for what the gradient's pass writes."""
    n_runs, n_samples, n, width = qkv.shape
    sums = (n_runs, n_samples * (1 + (n > TILE)), width) if bias is not None else (0,)
    return torch.empty_like(qkv, memory_format=torch.contiguous_format), qkv.new_empty(sums, dtype=torch.float32)


@_short_attention.register_fake
def _(qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, heads: int, causal: bool) -> tuple[Tensor, Tensor]:
    return _made(qkv, heads)


@_short_attention_backward.register_fake
def _(
    grad: Tensor, qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, out: Tensor, logs: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    return _made_backward(qkv, bias)


def _keep_attention(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    qkv, bias, slopes, _, ctx.causal = inputs
    ctx.save_for_backward(qkv, bias, slopes, *output)
    ctx.set_materialize_grads(False)  # nobody reads the logarithms


def _attention_gradients(ctx: Any, grad: Tensor, _: None) -> tuple[Tensor | None, ...]:
    bias = ctx.saved_tensors[1]
    grad_qkv, sums = _short_attention_backward(grad, *ctx.saved_tensors, ctx.causal)
    return grad_qkv, None if bias is None else sums.sum(1).to(bias.dtype), None, None, None


_short_attention.register_autograd(_attention_gradients, setup_context=_keep_attention)
