"""The circles of modular arithmetic: how much of the numbers' vectors lies in few frequencies; pure functions.

A model that adds modulo p by turning has its numbers on circles (Nanda et al. 2023, "Progress measures for grokking
via mechanistic interpretability"): the power of its table over the p numbers then sits in a handful of frequencies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def frequency_power(vectors: Floats) -> Floats:
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


def neuron_variance_explained(activations: Floats) -> Floats:
    """How much of each neuron's variance over all pairs (p, p, F) a frequency 1 … p // 2 explains: (p // 2, F).

    A frequency k owns the waves in a, in b and in their products: (±k, 0), (0, ±k) and (±k, ±k) of the transform; a
    neuron that serves one circle has nearly all of its variance there. p is odd, as every prime modulus but 2.

    >>> a, b = np.meshgrid(np.arange(11), np.arange(11), indexing="ij")
    >>> neuron_shares(np.cos(2 * np.pi * 2 * (a + b) / 11)[..., None])[:, 0].round(6).tolist()
    [0.0, 1.0, 0.0, 0.0, 0.0]
    """
    p = len(activations)
    found = np.abs(np.fft.fft2(activations - activations[0, 0], axes=(0, 1))) ** 2
    found[0, 0] = 0
    owned = np.stack([_power_of_frequency(found, k, p) for k in range(1, p // 2 + 1)])
    total = found.sum((0, 1))
    return np.divide(owned, total, out=np.full(owned.shape, np.nan), where=total > 0)  # type: ignore[no-any-return]


def _power_of_frequency(spectrum: Floats, k: int, p: int) -> Floats:
    at = (0, k, p - k)
    return spectrum[np.ix_(at, at)].sum((0, 1))  # type: ignore[no-any-return]


def top_k_power(shares: Floats, k: int = 5) -> float:
    """What the k strongest frequencies hold; k over their number where none is stronger."""
    return float(np.sort(shares)[::-1][:k].sum())


def top_frequencies(shares: Floats, k: int = 5) -> list[int]:
    """The k strongest frequencies, strongest first."""
    return [int(place) + 1 for place in np.argsort(-shares, kind="stable")[:k]]


def key_frequencies(shares: Floats) -> list[int]:
    """The frequencies that hold more than they would if all held alike, strongest first.

    >>> key_frequencies(np.array([0.05, 0.5, 0.1, 0.35]))
    [2, 4]
    """
    return top_frequencies(shares, int((shares > 1 / len(shares)).sum()))


def power_at(shares: Floats, frequencies: Sequence[int]) -> float:
    """What these frequencies hold together."""
    return float(sum(shares[k - 1] for k in frequencies))


def effective_n_frequencies(shares: Floats) -> float:
    """How many frequencies there would be if those that matter were alike: e to the entropy, from 1 to p // 2.

    >>> round(n_frequencies(np.array([0.5, 0.0, 0.5, 0.0])), 6)
    2.0
    """
    some = shares[shares > 0]
    return float(np.exp(-(some * np.log(some)).sum())) if len(some) else float("nan")


def project_to_frequency_plane(vectors: Floats, frequency: int) -> Floats:
    """The p vectors seen in the plane of one frequency: (p, 2) coordinates around their mean.

    The plane is spanned by Σ cos(wa) v_a and Σ sin(wa) v_a; numbers on a circle stand on it in turns of w = 2πk / p.
    """
    turn = 2 * np.pi * frequency * np.arange(len(vectors)) / len(vectors)
    centred = vectors - vectors.mean(0)
    axes, sizes = np.linalg.qr(np.stack([np.cos(turn) @ centred, np.sin(turn) @ centred], axis=1))
    return centred @ axes * np.sign(np.diagonal(sizes))  # type: ignore[no-any-return]


def project_logits_to_frequencies(logits: Floats, frequencies: Sequence[int], sign: int = 1) -> Floats:
    """What the logits (p, p, V) over all pairs owe to a ± b through these frequencies, and through nothing else.

    It is their projection on cos(wk(a ± b)) and sin(wk(a ± b)): the mean over pairs of equal a ± b, filtered. Nanda et
    al. (2023, section 5.1) keep this part alone (restricted loss) or take it out (excluded loss).
    """
    p = len(logits)
    a, b = np.divmod(np.arange(p * p), p)
    sums = ((a + sign * b) % p).reshape(p, p)
    means = np.zeros((p, logits.shape[-1]))
    np.add.at(means, sums, logits / p)
    waves = np.fft.rfft(means, axis=0)
    kept = np.zeros_like(waves)
    kept[list(frequencies)] = waves[list(frequencies)]
    return np.fft.irfft(kept, n=p, axis=0)[sums]  # type: ignore[no-any-return]


def mean_cross_entropy(logits: Floats, answers: NDArray[np.int64], mask: NDArray[np.bool_]) -> float:
    """Cross-entropy in nats of the right answers (p, p), over the pairs that count."""
    if not mask.any():
        return float("nan")
    some, right = logits[mask], answers[mask]
    high = some.max(-1)
    return float(np.mean(np.log(np.exp(some - high[:, None]).sum(-1)) + high - some[np.arange(len(right)), right]))
