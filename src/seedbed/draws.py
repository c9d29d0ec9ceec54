"""Randomness by name: every draw is a function of (seed, stream, counter, index) and of nothing else.

So equal seeds pair across points, and no order of work, neighbour, pack or device changes a draw. On the host
(initial weights) it is NumPy's Philox keyed by the stream's name; on the device (data order, dropout) it is a keyed
integer hash, cheap enough to be drawn inside the training step.

>>> generator(42, "init/embed").standard_normal() == generator(42, "init/embed").standard_normal()
True
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


def stream_key(seed: int, stream: str) -> int:
    """The 64-bit key of one named stream of one seed."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{stream}".encode(), digest_size=8).digest(), "little")


def generator(seed: int, stream: str) -> np.random.Generator:
    """A host generator for one named stream of one seed."""
    return np.random.Generator(np.random.Philox(key=stream_key(seed, stream)))


def device_keys(seeds: Sequence[int], stream: str, device: torch.device) -> Int[Tensor, "R 2"]:
    """The stream's key of every run, as two 32-bit words."""
    words = [[key & 0xFFFFFFFF, key >> 32] for key in (stream_key(seed, stream) for seed in seeds)]
    return torch.from_numpy(np.array(words, dtype=np.uint32).view(np.int32)).to(device)


def bits(keys: Int[Tensor, "R 2"], counter: Int[Tensor, "#R"], n: int) -> Int[Tensor, "R n"]:
    """n random 32-bit words for every run at this counter (a step, an epoch)."""
    words = _mix(keys ^ _mix(counter.to(torch.int32) + _signed(0x9E3779B9))[:, None])
    index = torch.arange(n, dtype=torch.int32, device=keys.device)
    return _mix(_mix(index ^ words[:, :1]) + words[:, 1:])


def uniform(keys: Int[Tensor, "R 2"], counter: Int[Tensor, "#R"], n: int) -> Float[Tensor, "R n"]:
    """n numbers in [0, 1) for every run, 24 bits each."""
    return ((bits(keys, counter, n) >> 8) & 0xFFFFFF).float() * 2.0**-24


def _mix(x: Tensor) -> Tensor:
    """The bijection of 32-bit words found by C. Wellons ("lowbias32"); int32 products wrap, shifts are made logical."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * _signed(0x7FEB352D)
    x = (x ^ ((x >> 15) & 0x1FFFF)) * _signed(0x846CA68B)
    return x ^ ((x >> 16) & 0xFFFF)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word
