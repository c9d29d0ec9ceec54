"""What an update decides, and what it does to weights, in two kernels of our own for a GPU instead of fifty small ones.

Where several packs share a GPU, a kernel costs about a microsecond however little it does (docs/log.md). Only Adam and
AdamW, in float32; the functions are `Trainer._decide` and the rules of `optim.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from seedbed.training.trainer import Trainer

BLOCK_SIZE = 1024  # weights of a program


@triton.jit
def _active_and_lr_kernel(
    loss, norms, step, ends, broken_at, cause, factors, lr, clip, beta1, beta2, decay, updates,
    active, scales, sizes, shrinks, roots, n, BLOCK: tl.constexpr,
):  # fmt: skip
    run = tl.arange(0, BLOCK)
    here, now = run < n, tl.load(step)
    x, norm = tl.load(loss + run, mask=here, other=0.0), tl.load(norms + run, mask=here, other=0.0)
    why = tl.where(x - x == 0, tl.where(norm - norm == 0, 0, 2), 1)  # of finite numbers alone the difference is 0
    broke = tl.load(broken_at + run, mask=here, other=0)
    new = here & (why > 0) & (broke < 0)
    tl.store(cause + run, why.to(tl.int64), mask=new)
    tl.store(broken_at + run, tl.zeros_like(broke) + now, mask=new)
    on = (broke < 0) & (why == 0) & (now < tl.load(ends + run, mask=here, other=0))
    tl.store(active + run, on.to(tl.int8), mask=here)

    limit = tl.load(clip + run, mask=here, other=0.0)
    scale = tl.where(limit > 0, tl.minimum(limit / (norm + 1e-6), 1.0), 1.0)
    tl.store(scales + run, scale, mask=here)
    rate = tl.where(on, tl.load(factors + run, mask=here, other=0.0), 0.0) * tl.load(lr + run, mask=here, other=0.0)
    done = tl.load(updates + run, mask=here, other=0.0) + 1
    tl.store(updates + run, done, mask=here)
    first = tl.exp(done * tl.log(tl.load(beta1 + run, mask=here, other=0.5)))
    second = tl.exp(done * tl.log(tl.load(beta2 + run, mask=here, other=0.5)))
    tl.store(sizes + run, (rate / (1 - first)).to(tl.float32), mask=here)
    tl.store(roots + run, tl.sqrt(1 - second).to(tl.float32), mask=here)
    shrink = 1 - rate * tl.load(decay + run, mask=here, other=0.0)
    tl.store(shrinks + run, shrink.to(tl.float32), mask=here)


@triton.jit
def _adam_kernel(
    weights, moment1, moment2, gradients, scales, active, sizes, decays, new1s, keep2s, new2s, roots, epsilons, n,
    BLOCK: tl.constexpr, DECOUPLED: tl.constexpr,
):  # fmt: skip
    run, i = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here, place = i < n, run * n + i
    decay = tl.load(decays + run)
    w = tl.load(weights + place, mask=here, other=0.0)
    g = tl.load(gradients + place, mask=here, other=0.0) * tl.load(scales + run)
    g = tl.where(tl.load(active + run) != 0, g, 0.0)  # whatever it holds, NaN too
    if DECOUPLED:
        w *= decay
    else:
        g += decay * w
    first, second = tl.load(moment1 + place, mask=here, other=0.0), tl.load(moment2 + place, mask=here, other=0.0)
    first += tl.load(new1s + run) * (g - first)
    second = second * tl.load(keep2s + run) + tl.load(new2s + run) * g * g
    w -= first * tl.load(sizes + run) / (tl.sqrt(second) / tl.load(roots + run) + tl.load(epsilons + run))
    tl.store(weights + place, w, mask=here)
    tl.store(moment1 + place, first, mask=here)
    tl.store(moment2 + place, second, mask=here)


def active_and_lr(trainer: Trainer, loss: Tensor, norms: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """As `Trainer._decide`."""
    rule, n_runs = trainer.optimizer, len(loss)
    active = torch.empty_like(loss, dtype=torch.int8)
    scales, sizes, shrinks, roots = torch.empty(4, n_runs, 1, dtype=rule.clip.dtype, device=loss.device).unbind()
    _active_and_lr_kernel[(1,)](
        loss, norms, trainer.step, trainer.last_step, trainer.diverged_at, trainer.divergence_cause,
        trainer.schedule.lr_factors(trainer.step), rule.lr, rule.clip, rule.beta1, rule.beta2, rule.weight_decay, rule.n_updates,
        active, scales, sizes, shrinks, roots, n_runs, BLOCK=triton.next_power_of_2(n_runs),
    )  # fmt: skip
    return active.view(torch.bool), (scales, *rule.adam_arguments(sizes, shrinks, roots))


def fused_adam_step(
    w: Tensor, moments: Sequence[Tensor], g: Tensor, scales: Tensor, on: Tensor, *numbers: Tensor, decoupled: bool
) -> None:
    """As the rule of Adam, or of AdamW (`decoupled`), with gradients clipped and of active runs alone."""
    n_runs, n = w.shape
    _adam_kernel[(triton.cdiv(n, BLOCK_SIZE), n_runs)](
        w, *moments, g.contiguous(), scales, on.view(torch.int8), *numbers, n, BLOCK=BLOCK_SIZE, DECOUPLED=decoupled
    )
