"""Fourier analysis of modular arithmetic: how much of embeddings, neurons and logits lies in few frequencies.

All arrays are in the cyclic order of their task, in which its operation adds positions: 0 … p − 1 for sums, powers of a
generator for products, whose positions are discrete logarithms. Below, p is the number of positions.

A model that adds modulo p by rotation places its numbers on circles (Nanda et al. 2023, "Progress measures for grokking
via mechanistic interpretability"): the power of its embeddings over the p numbers concentrates in a few frequencies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def frequency_power(vectors: Floats) -> Floats:
    """Power of p vectors (p, D) at frequencies 1 … p // 2, as shares that sum to 1; the mean is ignored.

    >>> angles = 2 * np.pi * 3 * np.arange(11) / 11
    >>> frequency_power(np.stack([np.cos(angles), np.sin(angles)], 1)).round(6).tolist()
    [0.0, 0.0, 1.0, 0.0, 0.0]
    """
    p = len(vectors)
    shifted = vectors - vectors[0]  # equal vectors then have a power of exactly 0, without rounding errors
    power = (np.abs(np.fft.rfft(shifted, axis=0)[1:]) ** 2).sum(1)
    if p % 2 == 0:
        power[-1] /= 2  # the Nyquist frequency has no mirror image at p − k
    total = power.sum()
    return power / total if total > 0 else np.full(len(power), np.nan)


def neuron_variance_explained(activations: Floats) -> Floats:
    """Share of each neuron's variance over all pairs (p, p, F) explained by each frequency 1 … p // 2: (p // 2, F).

    Frequency k comprises the components (±k, 0), (0, ±k) and (±k, ±k) of the 2D transform: waves in a, in b and their
    products. A neuron tuned to one frequency has nearly all its variance there.

    >>> a, b = np.meshgrid(np.arange(11), np.arange(11), indexing="ij")
    >>> neuron_variance_explained(np.cos(2 * np.pi * 2 * (a + b) / 11)[..., None])[:, 0].round(6).tolist()
    [0.0, 1.0, 0.0, 0.0, 0.0]
    """
    p = len(activations)
    spectrum = np.abs(np.fft.fft2(activations - activations[0, 0], axes=(0, 1))) ** 2
    spectrum[0, 0] = 0
    power = np.stack([_power_of_frequency(spectrum, k, p) for k in range(1, p // 2 + 1)])
    total = spectrum.sum((0, 1))
    return np.divide(power, total, out=np.full(power.shape, np.nan), where=total > 0)  # type: ignore[no-any-return]


def _power_of_frequency(spectrum: Floats, k: int, p: int) -> Floats:
    indices = sorted({0, k, p - k})  # for even p, the highest frequency is its own mirror image
    return spectrum[np.ix_(indices, indices)].sum((0, 1))  # type: ignore[no-any-return]


def top_frequencies(shares: Floats, k: int = 5) -> list[int]:
    """The k strongest frequencies, strongest first."""
    return [int(index) + 1 for index in np.argsort(-shares, kind="stable")[:k]]


def key_frequencies(shares: Floats) -> list[int]:
    """The frequencies with more than the uniform share of the power, strongest first.

    >>> key_frequencies(np.array([0.05, 0.5, 0.1, 0.35]))
    [2, 4]
    """
    return top_frequencies(shares, int((shares > 1 / len(shares)).sum()))


def power_at(shares: Floats, frequencies: Sequence[int]) -> float:
    """Total power of these frequencies."""
    return float(sum(shares[k - 1] for k in frequencies))


def effective_n_frequencies(shares: Floats) -> float:
    """Effective number of frequencies: the exponential of the entropy of the shares, from 1 to p // 2.

    >>> round(effective_n_frequencies(np.array([0.5, 0.0, 0.5, 0.0])), 6)
    2.0
    """
    positive = shares[shares > 0]
    return float(np.exp(-(positive * np.log(positive)).sum())) if len(positive) else float("nan")


def project_to_frequency_plane(vectors: Floats, frequency: int) -> Floats:
    """The p vectors projected to the plane of one frequency: (p, 2) coordinates around their mean.

    The plane is spanned by Σ cos(wa) v_a and Σ sin(wa) v_a; numbers on a circle appear at multiples of w = 2πk / p.
    """
    angles = 2 * np.pi * frequency * np.arange(len(vectors)) / len(vectors)
    centred = vectors - vectors.mean(0)
    axes, triangular = np.linalg.qr(np.stack([np.cos(angles) @ centred, np.sin(angles) @ centred], axis=1))
    return centred @ axes * np.sign(np.diagonal(triangular))  # type: ignore[no-any-return]


def project_logits_to_frequencies(logits: Floats, frequencies: Sequence[int], sign: int = 1) -> Floats:
    """The component of the logits (p, p, V) over all pairs that depends on a ± b through these frequencies only.

    It is the projection onto cos(wk(a ± b)) and sin(wk(a ± b)): the mean over pairs of equal a ± b, filtered. Nanda et
    al. (2023, section 5.1) keep only this component (restricted loss) or remove it (excluded loss).
    """
    p = len(logits)
    a, b = np.divmod(np.arange(p * p), p)
    sums = ((a + sign * b) % p).reshape(p, p)
    means = np.zeros((p, logits.shape[-1]))
    np.add.at(means, sums, logits / p)
    spectrum = np.fft.rfft(means, axis=0)
    kept = np.zeros_like(spectrum)
    kept[list(frequencies)] = spectrum[list(frequencies)]
    return np.fft.irfft(kept, n=p, axis=0)[sums]  # type: ignore[no-any-return]


def mean_cross_entropy(logits: Floats, answers: NDArray[np.int64], mask: NDArray[np.bool_]) -> float:
    """Mean cross-entropy of the correct answers (p, p) over the masked pairs, in nats; NaN if the mask is empty."""
    if not mask.any():
        return float("nan")
    selected, targets = logits[mask], answers[mask]
    highest = selected.max(-1)
    log_sum = np.log(np.exp(selected - highest[:, None]).sum(-1)) + highest
    return float(np.mean(log_sum - selected[np.arange(len(targets)), targets]))
