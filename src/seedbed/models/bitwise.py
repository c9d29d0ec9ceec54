"""Operations with the same bits for a run whatever its company in a pack, where torch's own depend on it; decision 11.

On a CPU torch computes most of a tensor's elements with vector instructions, and the last ones by another function of
the C library: which elements those are depends on the size of the whole pack. (Only sigmoid and powers were found to
differ; sums, tanh, exp, GELU and cosine do not.) Matrix products there depend on whether a matrix begins at a multiple
of 16 bytes, as those of all runs do only if the numbers of each fill such multiples. On a GPU sizes of grids and tiles
are chosen by the size of the pack, unless `counted_runs` says otherwise.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

MAX_VECTOR_ELEMENTS = 32  # that torch's CPU loops process at a time: two AVX-512 vectors of float32
ALIGNED_ELEMENTS = 4  # of float32 in 16 bytes

_is_reproducible = False


def set_reproducible(reproducible: bool) -> None:
    """Whether what is computed next belongs to runs with `train.reproducible`; process-wide, as precision is."""
    global _is_reproducible
    _is_reproducible = reproducible


def is_reproducible() -> bool:
    """Whether what is computed now has to be the same bits in every pack."""
    return _is_reproducible


def counted_runs(n_runs: int) -> int:
    """The number of runs by which a GPU kernel may choose its sizes: one, whatever the pack, if that has to be."""
    return 1 if _is_reproducible else n_runs


def sigmoid(x: Float[Tensor, "R *n"]) -> Float[Tensor, "R *n"]:
    """torch.sigmoid of every run."""
    n = x.numel() // len(x)
    if x.is_cuda or n % MAX_VECTOR_ELEMENTS == 0 or torch.compiler.is_compiling():
        return x.sigmoid()
    return F.pad(x.flatten(1), (0, -n % MAX_VECTOR_ELEMENTS)).sigmoid()[:, :n].view_as(x)


def power(base: Float[Tensor, "R #n"], exponent: Float[Tensor, "R #n"]) -> Float[Tensor, "R n"]:
    """base ** exponent of every run."""
    if base.is_cuda or torch.compiler.is_compiling():
        return base**exponent
    base, exponent = torch.broadcast_tensors(base, exponent)
    n = base.shape[1]
    padding = (0, -n % MAX_VECTOR_ELEMENTS)
    return (F.pad(base, padding, value=1.0) ** F.pad(exponent, padding))[:, :n]


def is_aligned(*n_elements: int) -> bool:
    """Whether runs of so many numbers each, side by side in memory, begin where a run alone would, for products."""
    return all(n % ALIGNED_ELEMENTS == 0 for n in n_elements)


def matmul(a: Float[Tensor, "R *n T K"], b: Float[Tensor, "R *n K S"]) -> Float[Tensor, "R *n T S"]:
    """a @ b of every run: at once, or on a CPU one by one, from copies, where their numbers are not aligned."""
    n_runs, n_out = len(a), a.numel() // a.shape[-1] * b.shape[-1]
    sizes = (n // n_runs for n in (a.numel(), b.numel(), n_out))
    if a.is_cuda or torch.compiler.is_compiling() or is_aligned(*sizes):
        return a @ b
    by_run = zip(a.split(1), b.split(1), strict=True)
    return torch.cat([copy_aligned(copy_aligned(one) @ copy_aligned(other)) for one, other in by_run])


def copy_aligned(x: Tensor) -> Tensor:
    """A copy in memory of its own, and so is its gradient."""
    out: Tensor = _Copy.apply(x)
    return out


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone(memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0].clone(memory_format=torch.contiguous_format)
