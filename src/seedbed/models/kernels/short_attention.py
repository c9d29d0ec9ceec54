"""Attention over short sequences: all scores of a head in one program, read where the product before left its parts.

Up to 64 positions they are one tile. Beyond, the positions are halved, early and late, since tiles of 128 × 128 spill
from the registers, and what nobody may look at ahead is not worked out. The gradient's pass goes tile by tile: log₂ Σ
2^score of each row is kept for it (scores are in units of log 2, since exp2 is an instruction and exp is not), and the
outputs tell what softmax takes off a row (Dao et al. 2022, appendix B.2).

Biases cost little, since most of what they do is known: that of keys adds the same to all scores of a row, so softmax
takes it off again and its gradient is 0; that of values is added to each output, so its gradient is the sum of theirs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE_POSITIONS = 64  # positions; the scores of as many by as many are 32 registers a thread
MAX_POSITIONS = 2 * TILE_POSITIONS
SUPPORTED_HEAD_DIMS = (16, 32, 64)  # of a head
MAX_REGISTERS_PER_THREAD = 168  # of a thread, so that three programs of four warps fit a processor
LOG2_E = tl.constexpr(1.4426950408889634)


def is_supported_shape(n: int, width: int) -> bool:
    """Whether `short_attention` takes n positions and heads of this width."""
    return n <= MAX_POSITIONS and width in SUPPORTED_HEAD_DIMS


@triton.jit
def _load_rows(x, t, T, step, FULL: tl.constexpr):
    """The rows t of x; past the end 0, where tiles are not full."""
    if FULL:
        return tl.load(x + t[:, None] * step)
    return tl.load(x + t[:, None] * step, mask=t[:, None] < T, other=0.0)


@triton.jit
def _store_rows(x, t, T, step, value, FULL: tl.constexpr):
    if FULL:
        tl.store(x + t[:, None] * step, value.to(x.dtype.element_ty))
    else:
        tl.store(x + t[:, None] * step, value.to(x.dtype.element_ty), mask=t[:, None] < T)


@triton.jit
def _load_query(x, t, T, step, bias, BIASED: tl.constexpr, FULL: tl.constexpr):
    """Queries with their bias, added in their own precision."""
    q = _load_rows(x, t, T, step, FULL)
    return q + bias.to(q.dtype) if BIASED else q


@triton.jit
def _attention_scores(
    q, k, t, s, T, slope, scale,
    MEET: tl.constexpr, CAUSAL: tl.constexpr, ALIBI: tl.constexpr, FULL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """How positions t of one head look at positions s, −∞ where they do not; MEET: both are the same positions."""
    scores, away = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale, t[:, None] - s[None, :]
    if ALIBI:
        scores -= slope * tl.abs(away).to(tl.float32)
    if CAUSAL and MEET:
        scores = tl.where(away >= 0, scores, float("-inf"))
    return scores if FULL else tl.where(s[None, :] < T, scores, float("-inf"))


@triton.jit
def _attend_tile(
    q, k0, k1, v0, v1, t, T, slope, scale, EARLY: tl.constexpr, BOTH: tl.constexpr,
    SIZE: tl.constexpr, CAUSAL: tl.constexpr, ALIBI: tl.constexpr, FULL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Values mixed for positions t that look at the early half, or at both; log₂ Σ 2^score of each one's scores."""
    s = tl.arange(0, SIZE)
    early = _attention_scores(q, k0, t, s, T, slope, scale, EARLY, CAUSAL, ALIBI, FULL, PRECISION)
    top, late = tl.max(early, 1), early
    if BOTH:
        late = _attention_scores(q, k1, t, s + SIZE, T, slope, scale, True, CAUSAL, ALIBI, FULL, PRECISION)
        top = tl.maximum(top, tl.max(late, 1))
    early = tl.exp2(early - top[:, None])
    total, mixed = tl.sum(early, 1), tl.dot(early.to(v0.dtype), v0, input_precision=PRECISION)
    if BOTH:
        late = tl.exp2(late - top[:, None])
        total += tl.sum(late, 1)
        mixed = tl.dot(late.to(v1.dtype), v1, mixed, input_precision=PRECISION)
    return mixed * (1.0 / total)[:, None], top + tl.log2(total)


@triton.jit
def _attention_kernel(
    qkv, bias, slopes, out, logs, n_samples, T, scale, bias_step,
    H: tl.constexpr, K: tl.constexpr, SIZE: tl.constexpr, TWO: tl.constexpr, AHEAD: tl.constexpr,
    CAUSAL: tl.constexpr, BIASED: tl.constexpr, ALIBI: tl.constexpr, FULL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    D: tl.constexpr = H * K
    STEP: tl.constexpr = 3 * D
    sample, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    column = h * K + tl.arange(0, K)[None, :]
    q, out, logs = qkv + sample * T * STEP + column, out + sample * T * D + column, logs + (sample * H + h) * T
    k, v, t = q + D, q + 2 * D, tl.arange(0, SIZE)
    slope = tl.load(slopes + h) * LOG2_E if ALIBI else 0.0
    scale *= LOG2_E
    of_q, of_v = 0.0, 0.0
    if BIASED:
        bias += sample // n_samples * bias_step + column
        of_q, of_v = tl.load(bias).to(tl.float32), tl.load(bias + 2 * D).to(tl.float32)
    q0 = _load_query(q, t, T, STEP, of_q, BIASED, FULL)
    k0, v0 = _load_rows(k, t, T, STEP, FULL), _load_rows(v, t, T, STEP, FULL)
    q1, k1, v1, u = q0, k0, v0, t + SIZE
    if TWO:
        q1 = _load_query(q, u, T, STEP, of_q, BIASED, FULL)
        k1, v1 = _load_rows(k, u, T, STEP, FULL), _load_rows(v, u, T, STEP, FULL)
    mixed, log = _attend_tile(q0, k0, k1, v0, v1, t, T, slope, scale, True, AHEAD, SIZE, CAUSAL, ALIBI, FULL, PRECISION)
    _store_rows(out, t, T, D, mixed + of_v, FULL)
    tl.store(logs + t, log, mask=t < T)
    if TWO:
        mixed, log = _attend_tile(
            q1, k0, k1, v0, v1, u, T, slope, scale, False, True, SIZE, CAUSAL, ALIBI, FULL, PRECISION
        )
        _store_rows(out, u, T, D, mixed + of_v, FULL)
        tl.store(logs + u, log, mask=u < T)


@triton.jit
def _load_output_grad(grad, out, logs, t, T, of_v, D: tl.constexpr, FULL: tl.constexpr):
    """The gradient at positions t, what softmax takes off each row of weights' gradients, and the row's log₂ Σ."""
    g, mixed = _load_rows(grad, t, T, D, FULL), _load_rows(out, t, T, D, FULL)
    down = tl.sum(g.to(tl.float32) * (mixed.to(tl.float32) - of_v), 1)
    return g, down, tl.load(logs + t, mask=t < T, other=float("inf"))  # so rows past the end weigh nothing


@triton.jit
def _accumulate_gradients(
    q, k, v, g, down, log, t, s, T, slope, scale, grad_q, grad_k, grad_v,
    MEET: tl.constexpr, CAUSAL: tl.constexpr, ALIBI: tl.constexpr, FULL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Adds gradients of queries at t, and of keys and values at s, through the weights of the ones on the others.

    Weights have a row for each s here: so they, and their gradients, go from one product into the next in registers,
    all but those for the queries. What multiplies scores is left to who stores the gradients.
    """
    scores, away = tl.dot(k, tl.trans(q), input_precision=PRECISION) * scale, t[None, :] - s[:, None]
    if ALIBI:
        scores -= slope * tl.abs(away).to(tl.float32)
    weights = tl.exp2(scores - log[None, :])
    if CAUSAL and MEET:
        weights = tl.where(away >= 0, weights, 0.0)
    if not FULL:
        weights = tl.where(s[:, None] < T, weights, 0.0)
    grad_v = tl.dot(weights.to(g.dtype), g, grad_v, input_precision=PRECISION)
    of_scores = weights * (tl.dot(v, tl.trans(g), input_precision=PRECISION) - down[None, :])
    of_scores = of_scores.to(q.dtype)
    grad_k = tl.dot(of_scores, q, grad_k, input_precision=PRECISION)
    grad_q = tl.dot(tl.trans(of_scores), k, grad_q, input_precision=PRECISION)
    return grad_q, grad_k, grad_v


@triton.jit
def _attention_backward_kernel(
    qkv, bias, slopes, grad, out, logs, grad_qkv, sums, n_samples, T, scale, bias_step,
    H: tl.constexpr, K: tl.constexpr, SIZE: tl.constexpr, TWO: tl.constexpr, AHEAD: tl.constexpr,
    CAUSAL: tl.constexpr, BIASED: tl.constexpr, ALIBI: tl.constexpr, FULL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    D: tl.constexpr = H * K
    STEP: tl.constexpr = 3 * D
    sample, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    column = h * K + tl.arange(0, K)[None, :]
    from_q, into_q = qkv + sample * T * STEP + column, grad_qkv + sample * T * STEP + column
    from_k, from_v, into_k, into_v = from_q + D, from_q + 2 * D, into_q + D, into_q + 2 * D
    grad, out, logs = grad + sample * T * D + column, out + sample * T * D + column, logs + (sample * H + h) * T
    sums += sample * STEP + h * K + tl.arange(0, K)
    slope = tl.load(slopes + h) * LOG2_E if ALIBI else 0.0
    raised = scale * LOG2_E
    of_q, of_v = 0.0, 0.0
    if BIASED:
        bias += sample // n_samples * bias_step + column
        of_q, of_v = tl.load(bias).to(tl.float32), tl.load(bias + 2 * D).to(tl.float32)
    t, none = tl.arange(0, SIZE), tl.zeros((SIZE, K), tl.float32)
    u = t + SIZE
    q = _load_query(from_q, t, T, STEP, of_q, BIASED, FULL)
    k, v = _load_rows(from_k, t, T, STEP, FULL), _load_rows(from_v, t, T, STEP, FULL)
    g, down, log = _load_output_grad(grad, out, logs, t, T, of_v, D, FULL)
    grad_q, grad_k, grad_v = _accumulate_gradients(
        q, k, v, g, down, log, t, t, T, slope, raised, none, none, none, True, CAUSAL, ALIBI, FULL, PRECISION
    )
    ahead_k, ahead_v = none, none
    if AHEAD:
        k1, v1 = _load_rows(from_k, u, T, STEP, FULL), _load_rows(from_v, u, T, STEP, FULL)
        grad_q, ahead_k, ahead_v = _accumulate_gradients(
            q, k1, v1, g, down, log, t, u, T, slope, raised, grad_q, none, none, False, CAUSAL, ALIBI, FULL, PRECISION
        )
    _store_rows(into_q, t, T, STEP, grad_q * scale, FULL)
    sum_q, sum_v = grad_q, g.to(tl.float32)
    if TWO:
        q = _load_query(from_q, u, T, STEP, of_q, BIASED, FULL)
        g, down, log = _load_output_grad(grad, out, logs, u, T, of_v, D, FULL)
        sum_v += g.to(tl.float32)
    if BIASED:
        tl.store(sums + 2 * D, tl.sum(sum_v, 0))
    if TWO:
        grad_q, grad_k, grad_v = _accumulate_gradients(
            q, k, v, g, down, log, u, t, T, slope, raised, none, grad_k, grad_v, False, CAUSAL, ALIBI, FULL, PRECISION
        )
    _store_rows(into_k, t, T, STEP, grad_k * scale, FULL)
    _store_rows(into_v, t, T, STEP, grad_v, FULL)
    if TWO:
        k, v = _load_rows(from_k, u, T, STEP, FULL), _load_rows(from_v, u, T, STEP, FULL)
        grad_q, grad_k, grad_v = _accumulate_gradients(
            q,
            k,
            v,
            g,
            down,
            log,
            u,
            u,
            T,
            slope,
            raised,
            grad_q,
            ahead_k,
            ahead_v,
            True,
            CAUSAL,
            ALIBI,
            FULL,
            PRECISION,
        )
        _store_rows(into_q, u, T, STEP, grad_q * scale, FULL)
        _store_rows(into_k, u, T, STEP, grad_k * scale, FULL)
        _store_rows(into_v, u, T, STEP, grad_v, FULL)
        sum_q += grad_q
    if BIASED:
        tl.store(sums, tl.sum(sum_q, 0) * scale)
        tl.store(sums + D, tl.zeros((K,), tl.float32))


def _launch_options(
    qkv: Tensor, heads: int, causal: bool, bias: Tensor | None, slopes: Tensor | None
) -> dict[str, Any]:
    """What both kernels are specialised to."""
    exact = qkv.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    n = qkv.shape[2]
    size, two = min(TILE_POSITIONS, max(16, triton.next_power_of_2(n))), n > TILE_POSITIONS
    return {
        "H": heads, "K": qkv.shape[3] // 3 // heads, "SIZE": size, "TWO": two, "AHEAD": two and not causal,
        "CAUSAL": causal, "BIASED": bias is not None, "ALIBI": slopes is not None, "FULL": n % size == 0,
        "PRECISION": "ieee" if exact else "tf32", "num_warps": 4 if size > 32 else 2,
    }  # fmt: skip


@torch.library.custom_op("seedbed::short_attention", mutates_args=())
def _short_attention_forward(
    qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, heads: int, causal: bool
) -> tuple[Tensor, Tensor]:
    """What `short_attention` gives, and log₂ Σ 2^score of each head and position."""
    n_runs, n_samples, n, width = qkv.shape
    qkv, scale = qkv.contiguous(), (width // 3 // heads) ** -0.5
    out, logs = _allocate_outputs(qkv, heads)
    options = _launch_options(qkv, heads, causal, bias, slopes)
    bias, slopes = qkv if bias is None else bias, qkv if slopes is None else slopes
    grid = (n_runs * n_samples * heads,)
    _attention_kernel[grid](qkv, bias, slopes, out, logs, n_samples, n, scale, bias.stride(0), **options)
    return out, logs


def short_attention(qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, heads: int, causal: bool) -> Tensor:
    """Attention of queries, keys and values side by side (R, B, T, 3·D), whose bias (R, 3·D) is still to be added."""
    return _short_attention_forward(qkv, bias, slopes, heads, causal)[0]


@torch.library.custom_op("seedbed::short_attention_backward", mutates_args=())
def _short_attention_backward(
    grad: Tensor, qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, out: Tensor, logs: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of qkv, and of the bias by sample."""
    (n_runs, n_samples, n, width), heads = qkv.shape, logs.shape[2]
    qkv, scale = qkv.contiguous(), (width // 3 // heads) ** -0.5
    grad_qkv, sums = _allocate_gradients(qkv, bias)
    options = _launch_options(qkv, heads, causal, bias, slopes)
    bias, slopes = qkv if bias is None else bias, qkv if slopes is None else slopes
    if qkv.element_size() == 2:
        options["maxnreg"] = MAX_REGISTERS_PER_THREAD
    _attention_backward_kernel[(n_runs * n_samples * heads,)](
        qkv, bias, slopes, grad.contiguous(), out, logs, grad_qkv, sums, n_samples, n, scale, bias.stride(0), **options
    )
    return grad_qkv, sums


def _allocate_outputs(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Room for what the forward pass writes."""
    n_runs, n_samples, n, width = qkv.shape
    logs = qkv.new_empty(n_runs, n_samples, heads, n, dtype=torch.float32)
    return qkv.new_empty(n_runs, n_samples, n, width // 3), logs


def _allocate_gradients(qkv: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Room for what the gradient's pass writes."""
    n_runs, n_samples, _, width = qkv.shape
    sums = (n_runs, n_samples, width) if bias is not None else (0,)
    return torch.empty_like(qkv, memory_format=torch.contiguous_format), qkv.new_empty(sums, dtype=torch.float32)


@_short_attention_forward.register_fake
def _(qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, heads: int, causal: bool) -> tuple[Tensor, Tensor]:
    return _allocate_outputs(qkv, heads)


@_short_attention_backward.register_fake
def _(
    grad: Tensor, qkv: Tensor, bias: Tensor | None, slopes: Tensor | None, out: Tensor, logs: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    return _allocate_gradients(qkv, bias)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    qkv, bias, slopes, _, ctx.causal = inputs
    ctx.save_for_backward(qkv, bias, slopes, *output)
    ctx.set_materialize_grads(False)  # nobody reads the logarithms


def _backward(ctx: Any, grad: Tensor, _: None) -> tuple[Tensor | None, ...]:
    bias = ctx.saved_tensors[1]
    grad_qkv, sums = _short_attention_backward(grad, *ctx.saved_tensors, ctx.causal)
    return grad_qkv, None if bias is None else sums.sum(1).to(bias.dtype), None, None, None


_short_attention_forward.register_autograd(_backward, setup_context=_setup_context)
