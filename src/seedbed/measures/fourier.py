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
    found = (np.abs(np.fft.rfft(vectors, axis=0)[1:]) ** 2).sum(1)
    if n % 2 == 0:
        found[-1] /= 2  # the only frequency that is not there twice, at k and at p − k
    total = found.sum()
    return found / total if total > 0 else np.full(len(found), np.nan)  # type: ignore[no-any-return]


def top_share(shares: Floats, k: int = 5) -> float:
    """What the k strongest frequencies hold; k over their number where none is stronger."""
    return float(np.sort(shares)[::-1][:k].sum())


def strongest(shares: Floats, k: int = 5) -> list[int]:
    """The k strongest frequencies, strongest first."""
    return [int(place) + 1 for place in np.argsort(-shares, kind="stable")[:k]]
