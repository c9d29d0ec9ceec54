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


def make_generator(seed: int, stream: str) -> np.random.Generator:
    """A host generator for one named stream of one seed."""
    return np.random.Generator(np.random.Philox(key=stream_key(seed, stream)))


def device_keys(seeds: Sequence[int], stream: str, device: torch.device) -> Int[Tensor, "R 2"]:
    """The stream's key of every run, as two 32-bit words."""
    words = [[key & 0xFFFFFFFF, key >> 32] for key in (stream_key(seed, stream) for seed in seeds)]
    return torch.from_numpy(np.array(words, dtype=np.uint32).view(np.int32)).to(device)


def random_bits(keys: Int[Tensor, "R 2"], counter: Int[Tensor, "#R"], n: int, start: int = 0) -> Int[Tensor, "R n"]:
    """n random 32-bit words for every run at this counter (a step, an epoch), from index `start` on."""
    return _random_words(keys, counter, torch.arange(start, start + n, dtype=torch.int32, device=keys.device))


def random_int16(keys: Int[Tensor, "R 2"], counter: Int[Tensor, "#R"], n: int, start: int = 0) -> Int[Tensor, "R n"]:
    """n random 16-bit numbers from −2¹⁵ on for every run: the low, then the high half of each word from `start` on."""
    if keys.device.type == "cpu":
        return random_bits(keys, counter, -(-n // 2), start).view(torch.int16)[:, :n]
    return _random_int16_at(
        keys, counter, torch.arange(2 * start, 2 * start + n, dtype=torch.int32, device=keys.device)
    )


def _random_int16_at(
    keys: Int[Tensor, "R 2"], counter: Int[Tensor, "#R"], index: Int[Tensor, "n"]
) -> Int[Tensor, "R n"]:
    """The same number by number: on a GPU making a word twice costs less than storing it."""
    return (_random_words(keys, counter, index >> 1) << (16 * (1 - (index & 1)))) >> 16


def uniform(keys: Int[Tensor, "R 2"], counter: Int[Tensor, "#R"], n: int) -> Float[Tensor, "R n"]:
    """n numbers in [0, 1) for every run, 24 bits each."""
    return ((random_bits(keys, counter, n) >> 8) & 0xFFFFFF).float() * 2.0**-24


def _random_words(keys: Int[Tensor, "R 2"], counter: Int[Tensor, "#R"], index: Int[Tensor, "n"]) -> Int[Tensor, "R n"]:
    """The random words of every run at these indices."""
    own = _lowbias32_hash(keys ^ _lowbias32_hash(counter.to(torch.int32) + _to_int32(0x9E3779B9))[:, None])
    return _lowbias32_hash(_lowbias32_hash(index ^ own[:, :1]).add_(own[:, 1:]))


def _lowbias32_hash(x: Tensor) -> Tensor:
    """The bijection of 32-bit words found by C. Wellons ("lowbias32"), in place: on a CPU new tensors cost most.

    int32 products wrap, shifts are made logical.
    """
    x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF)).mul_(_to_int32(0x7FEB352D))
    x.bitwise_xor_((x >> 15).bitwise_and_(0x1FFFF)).mul_(_to_int32(0x846CA68B))
    return x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF))


def _to_int32(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value
