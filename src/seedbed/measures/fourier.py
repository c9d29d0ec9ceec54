"""The circles of modular arithmetic: how much of the numbers' vectors lies in few frequencies; pure functions.

A model that adds modulo p by turning has its numbers on circles (Nanda et al. 2023, "Progress measures for grokking
via mechanistic interpretability"): the power of its table over the p numbers then sits in a handful of frequencies.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def power(vectors: Floats) -> Floats:
    """The power at frequencies 1 … p // 2 of p vectors (p, D), as shares that sum to 1; the mean does not count.

    >>> turn = 2 * np.pi * 3 * np.arange(11) / 11
    >>> power(np.stack([np.cos(turn), np.sin(turn)], 1)).round(6).tolist()
    [0.0, 0.0, 1.0, 0.0, 0.0]
    """
    n = len(vectors)
    moved = vectors - vectors[0]  # equal vectors then have a power of exactly 0, not one of rounding
    found = (np.abs(np.fft.rfft(moved, axis=0)[1:]) ** 2).sum(1)
    if n % 2 == 0:
        found[-1] /= 2  # the only frequency that is not there twice, at k and at p − k
    total = found.sum()
    return found / total if total > 0 else np.full(len(found), np.nan)


def neuron_shares(values: Floats) -> Floats:
    """How much of each neuron's variance over all pairs (p, p, F) a frequency 1 … p // 2 explains: (p // 2, F).

    A frequency k owns the waves in a, in b and in their products: (±k, 0), (0, ±k) and (±k, ±k) of the transform; a
    neuron that serves one circle has nearly all of its variance there. p is odd, as every prime modulus but 2.

    >>> a, b = np.meshgrid(np.arange(11), np.arange(11), indexing="ij")
    >>> neuron_shares(np.cos(2 * np.pi * 2 * (a + b) / 11)[..., None])[:, 0].round(6).tolist()
    [0.0, 1.0, 0.0, 0.0, 0.0]
    """
    p = len(values)
    found = np.abs(np.fft.fft2(values - values[0, 0], axes=(0, 1))) ** 2
    found[0, 0] = 0
    owned = np.stack([_owned(found, k, p) for k in range(1, p // 2 + 1)])
    total = found.sum((0, 1))
    return np.divide(owned, total, out=np.full(owned.shape, np.nan), where=total > 0)  # type: ignore[no-any-return]


def _owned(found: Floats, k: int, p: int) -> Floats:
    at = (0, k, p - k)
    return found[np.ix_(at, at)].sum((0, 1))  # type: ignore[no-any-return]


def top_share(shares: Floats, k: int = 5) -> float:
    """What the k strongest frequencies hold; k over their number where none is stronger."""
    return float(np.sort(shares)[::-1][:k].sum())


def strongest(shares: Floats, k: int = 5) -> list[int]:
    """The k strongest frequencies, strongest first."""
    return [int(place) + 1 for place in np.argsort(-shares, kind="stable")[:k]]
