"""Counter-based random numbers: every draw is a pure function of (seed, stream name, counter, index).

Runs with equal seeds are therefore paired across configs, and neither execution order nor the other runs of a pack nor
the device changes a draw. On the host (initial weights, random search) this is NumPy's Philox keyed by the stream name
(random_streams.py); on the device (data order, dropout) it is a keyed integer hash, cheap enough to evaluate inside the
training step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seedbed.random_streams import stream_key


def device_keys(seeds: Sequence[int], stream: str, device: torch.device) -> Int[Tensor, "R 2"]:
    """Returns the stream's key for every run, each as two 32-bit words."""
    words = [[key & 0xFFFFFFFF, key >> 32] for key in (stream_key(seed, stream) for seed in seeds)]
    # torch has few operations on uint32, so the bits are reinterpreted as int32.
    return torch.from_numpy(np.array(words, dtype=np.uint32).view(np.int32)).to(device)


def random_bits(keys: Int[Tensor, "R 2"], counter: Int[Tensor, "#R"], n: int, start: int = 0) -> Int[Tensor, "R n"]:
    """Returns n random 32-bit words per run for this counter (a step or an epoch), starting at index `start`."""
    return _random_words(keys, counter, torch.arange(start, start + n, dtype=torch.int32, device=keys.device))


def random_int16(keys: Int[Tensor, "R 2"], counter: Int[Tensor, "#R"], n: int, start: int = 0) -> Int[Tensor, "R n"]:
    """Returns n random int16 values per run: the low, then the high half of each word, starting at word `start`."""
    if keys.device.type == "cpu":
        return random_bits(keys, counter, -(-n // 2), start).view(torch.int16)[:, :n]
    return _random_int16_at(
        keys, counter, torch.arange(2 * start, 2 * start + n, dtype=torch.int32, device=keys.device)
    )


def _random_int16_at(
    keys: Int[Tensor, "R 2"], counter: Int[Tensor, "#R"], index: Int[Tensor, "n"]
) -> Int[Tensor, "R n"]:
    """Computes `random_int16` element by element: on a GPU, hashing a word twice is cheaper than storing it."""
    # The left shift moves the wanted half to the top; the arithmetic right shift then sign-extends it.
    return (_random_words(keys, counter, index >> 1) << (16 * (1 - (index & 1)))) >> 16


def uniform(keys: Int[Tensor, "R 2"], counter: Int[Tensor, "#R"], n: int) -> Float[Tensor, "R n"]:
    """Returns n floats in [0, 1) per run, with 24 random bits each."""
    return ((random_bits(keys, counter, n) >> 8) & 0xFFFFFF).float() * 2.0**-24


def _random_words(keys: Int[Tensor, "R 2"], counter: Int[Tensor, "#R"], index: Int[Tensor, "n"]) -> Int[Tensor, "R n"]:
    """Returns the random 32-bit words of every run at these indices."""
    run_keys = _lowbias32_hash(keys ^ _lowbias32_hash(counter.to(torch.int32) + _to_int32(0x9E3779B9))[:, None])
    return _lowbias32_hash(_lowbias32_hash(index ^ run_keys[:, :1]).add_(run_keys[:, 1:]))


def _lowbias32_hash(x: Tensor) -> Tensor:
    """Applies C. Wellons' "lowbias32" integer hash in place: on a CPU, allocating new tensors dominates the cost.

    int32 multiplication wraps; masks turn torch's arithmetic right shifts into logical ones.
    """
    x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF)).mul_(_to_int32(0x7FEB352D))
    x.bitwise_xor_((x >> 15).bitwise_and_(0x1FFFF)).mul_(_to_int32(0x846CA68B))
    return x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF))


def _to_int32(value: int) -> int:
    """Returns the int32 with the same bits as this unsigned 32-bit value."""
    return value - (1 << 32) if value >= 1 << 31 else value
