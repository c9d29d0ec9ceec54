"""Small tensors that never change, made once for a GPU, where making them anew would be kernels of every update.

They come from the host, and the host waits: whoever uses them later, on whatever stream, finds them there. They are
never forgotten, since recorded updates refer to them, and though a text may be the first to need them, training may
use them too.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor


def should_cache(device: torch.device) -> bool:
    """Whether they are worth it: on a GPU, unless the compiler makes them on the way."""
    return device.type == "cuda" and not torch.compiler.is_compiling()


@cache
def cached_identity(n: int, device: torch.device) -> Float[Tensor, "n n"]:
    """Row i is 1 at i and 0 elsewhere."""
    return _to_device(np.eye(n, dtype=np.float32), device)


@cache
def cached_causal_mask(positions: range, n: int, n_past: int, device: torch.device) -> Bool[Tensor, "K S"]:
    """Which of n_past remembered and n new positions those at `at` of the new ones see: all up to their own."""
    return _to_device(np.array(positions)[:, None] >= np.arange(-n_past, n), device)


@torch.inference_mode(False)
def _to_device(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)
