"""Small constant tensors, created once per GPU instead of by extra kernels in every step.

Copied synchronously from the host, so any CUDA stream may read them. Cached for the life of the process because CUDA
graphs hold their addresses, and never inference tensors, so that training can use one that sampling created.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor


def should_cache(device: torch.device) -> bool:
    """Cache constants on this device? Only on a GPU, and not when compiling, where Inductor generates them in place."""
    return device.type == "cuda" and not torch.compiler.is_compiling()


@cache
def cached_identity(n: int, device: torch.device) -> Float[Tensor, "n n"]:
    """Identity matrix, whose rows are one-hot vectors."""
    return _to_device(np.eye(n, dtype=np.float32), device)


@cache
def cached_causal_mask(positions: range, n: int, n_past: int, device: torch.device) -> Bool[Tensor, "K S"]:
    """Causal mask of the given ones of n new positions over n_past cached and n new ones."""
    return _to_device(np.array(positions)[:, None] >= np.arange(-n_past, n), device)


@torch.inference_mode(False)
def _to_device(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)
