"""Adam and AdamW on a GPU as two Triton kernels instead of about fifty small ones.

Where several packs share a GPU, a kernel launch costs about a microsecond however little it does (docs/log.md). Float32
only; equal to `Trainer._active_and_lr` and the update rules of `optimizers/adam.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from seedbed.training.optimizers.adam import Adam
    from seedbed.training.optimizers.base import ActiveAndHyperparameters
    from seedbed.training.trainer import Trainer

BLOCK_SIZE = 1024  # weights per Triton program


@triton.jit
def _active_and_lr_kernel(
    loss_ptr, norm_ptr, step_ptr, last_step_ptr, diverged_at_ptr, cause_ptr, lr_factor_ptr, lr_ptr, clip_ptr,
    beta1_ptr, beta2_ptr, weight_decay_ptr, n_updates_ptr, active_ptr, clip_scale_ptr, step_size_ptr,
    decay_factor_ptr, bias_correction2_sqrt_ptr, n_runs, BLOCK: tl.constexpr,
):  # fmt: skip
    run = tl.arange(0, BLOCK)
    mask, step = run < n_runs, tl.load(step_ptr)
    loss, norm = tl.load(loss_ptr + run, mask=mask, other=0.0), tl.load(norm_ptr + run, mask=mask, other=0.0)
    # x - x is 0 only for finite x; the codes index DIVERGENCE_CAUSES.
    cause = tl.where(loss - loss == 0, tl.where(norm - norm == 0, 0, 2), 1)
    diverged_at = tl.load(diverged_at_ptr + run, mask=mask, other=0)
    is_new = mask & (cause > 0) & (diverged_at < 0)
    tl.store(cause_ptr + run, cause.to(tl.int64), mask=is_new)
    tl.store(diverged_at_ptr + run, tl.zeros_like(diverged_at) + step, mask=is_new)
    active = (diverged_at < 0) & (cause == 0) & (step < tl.load(last_step_ptr + run, mask=mask, other=0))
    tl.store(active_ptr + run, active.to(tl.int8), mask=mask)

    clip = tl.load(clip_ptr + run, mask=mask, other=0.0)
    clip_scale = tl.where(clip > 0, tl.minimum(clip / (norm + 1e-6), 1.0), 1.0)
    tl.store(clip_scale_ptr + run, clip_scale, mask=mask)
    lr_factor = tl.load(lr_factor_ptr + run, mask=mask, other=0.0)
    lr = tl.where(active, lr_factor, 0.0) * tl.load(lr_ptr + run, mask=mask, other=0.0)
    n_updates = tl.load(n_updates_ptr + run, mask=mask, other=0.0) + 1
    tl.store(n_updates_ptr + run, n_updates, mask=mask)
    beta1_power = tl.exp(n_updates * tl.log(tl.load(beta1_ptr + run, mask=mask, other=0.5)))
    beta2_power = tl.exp(n_updates * tl.log(tl.load(beta2_ptr + run, mask=mask, other=0.5)))
    tl.store(step_size_ptr + run, (lr / (1 - beta1_power)).to(tl.float32), mask=mask)
    tl.store(bias_correction2_sqrt_ptr + run, tl.sqrt(1 - beta2_power).to(tl.float32), mask=mask)
    decay_factor = 1 - lr * tl.load(weight_decay_ptr + run, mask=mask, other=0.0)
    tl.store(decay_factor_ptr + run, decay_factor.to(tl.float32), mask=mask)


@triton.jit
def _adam_kernel(
    weight_ptr, exp_avg_ptr, exp_avg_sq_ptr, gradient_ptr, clip_scale_ptr, active_ptr, step_size_ptr, decay_ptr,
    one_minus_beta1_ptr, beta2_ptr, one_minus_beta2_ptr, bias_correction2_sqrt_ptr, eps_ptr, n_weights,
    BLOCK: tl.constexpr, DECOUPLED: tl.constexpr,
):  # fmt: skip
    run, column = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask, offset = column < n_weights, run * n_weights + column
    decay = tl.load(decay_ptr + run)
    w = tl.load(weight_ptr + offset, mask=mask, other=0.0)
    g = tl.load(gradient_ptr + offset, mask=mask, other=0.0) * tl.load(clip_scale_ptr + run)
    g = tl.where(tl.load(active_ptr + run) != 0, g, 0.0)  # also replaces NaN
    if DECOUPLED:
        w *= decay
    else:
        g += decay * w
    exp_avg = tl.load(exp_avg_ptr + offset, mask=mask, other=0.0)
    exp_avg_sq = tl.load(exp_avg_sq_ptr + offset, mask=mask, other=0.0)
    exp_avg += tl.load(one_minus_beta1_ptr + run) * (g - exp_avg)
    exp_avg_sq = exp_avg_sq * tl.load(beta2_ptr + run) + tl.load(one_minus_beta2_ptr + run) * g * g
    denominator = tl.sqrt(exp_avg_sq) / tl.load(bias_correction2_sqrt_ptr + run) + tl.load(eps_ptr + run)
    w -= exp_avg * tl.load(step_size_ptr + run) / denominator
    tl.store(weight_ptr + offset, w, mask=mask)
    tl.store(exp_avg_ptr + offset, exp_avg, mask=mask)
    tl.store(exp_avg_sq_ptr + offset, exp_avg_sq, mask=mask)


def active_and_lr(trainer: Trainer, loss: Tensor, norms: Tensor) -> ActiveAndHyperparameters:
    """The result of `Trainer._active_and_lr` with Adam or AdamW, by one kernel."""
    optimizer, n_runs = cast("Adam", trainer.optimizer), len(loss)
    active = torch.empty_like(loss, dtype=torch.int8)
    clip_scales, step_sizes, decay_factors, bias_corrections2_sqrt = torch.empty(
        4, n_runs, 1, dtype=trainer.clip.dtype, device=loss.device
    ).unbind()
    _active_and_lr_kernel[(1,)](
        loss, norms, trainer.step, trainer.last_step, trainer.diverged_at, trainer.divergence_cause,
        trainer.schedule.lr_factors(trainer.step), optimizer.lr, trainer.clip, optimizer.beta1, optimizer.beta2,
        optimizer.weight_decay, optimizer.n_updates, active, clip_scales, step_sizes, decay_factors,
        bias_corrections2_sqrt, n_runs, BLOCK=triton.next_power_of_2(n_runs),
    )  # fmt: skip
    hyperparameters = optimizer.arrange(step_sizes, decay_factors, bias_corrections2_sqrt)
    return active.view(torch.bool), (clip_scales, *hyperparameters)


def fused_adam_step(
    w: Tensor,
    moments: Sequence[Tensor],
    g: Tensor,
    clip_scales: Tensor,
    active: Tensor,
    *hyperparameters: Tensor,
    decoupled: bool,
) -> None:
    """The update rule of Adam, or of AdamW (`decoupled`), with clipping; inactive runs get zero gradients."""
    n_runs, n_weights = w.shape
    _adam_kernel[(triton.cdiv(n_weights, BLOCK_SIZE), n_runs)](
        w, *moments, g.contiguous(), clip_scales, active.view(torch.int8), *hyperparameters, n_weights,
        BLOCK=BLOCK_SIZE, DECOUPLED=decoupled,
    )  # fmt: skip
